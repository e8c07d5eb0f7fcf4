"""`gateway deliveries`: what came in and what was refused; looked at, explained, verified again, applied again."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cli import opening, show
from cli.failure import FAILED, WRONG_USAGE, CommandError

if TYPE_CHECKING:
    from cli.inbox import Item

app = typer.Typer(help="Stored deliveries and refusals: list, show, replay, diagnose.", rich_markup_mode=None)

STATUSES: Final = ("received", "applied", "orphan", "unclaimed", "ignored", "dead", "refused")
MAX_LISTED: Final = 1_000
Id = Annotated[str, typer.Argument(metavar="ID", help="A delivery's id (dlv_…) or a refusal's (rfs_…).")]


@app.command("list")
def list_(
    status: Annotated[str | None, typer.Option(help=f"Only of this status: {', '.join(STATUSES)}.")] = None,
    provider: Annotated[str | None, typer.Option(help="Only of this provider.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=MAX_LISTED, help="At most so many, the newest first.")] = 50,
    config: opening.Config = None,
    database_url: opening.DatabaseUrl = None,
    json: show.Json = False,
) -> None:
    """List deliveries and refusals, the newest first; dead letters are --status dead."""
    from ledger import inbox

    if status is not None and status not in STATUSES:
        raise CommandError(f"--status takes one of: {', '.join(STATUSES)}", code=WRONG_USAGE)
    rows: list[dict[str, Any]] = []
    with opening.record(config, database_url) as house:
        if status != "refused":
            rows += [_of_delivery(row) for row in house.ledger.read_now(inbox.listed, status=status, provider=provider, limit=limit)]
        if status in {None, "refused"}:
            rows += [_of_refusal(row) for row in house.ledger.read_now(inbox.refused, provider=provider, limit=limit)]
    rows = sorted(rows, key=lambda row: (row["at"], row["id"]), reverse=True)[:limit]
    shown = [{**row, "at": show.when(row["at"])} for row in rows]
    if json:
        show.emit(shown)
    else:
        show.table(("ID", "PROVIDER", "STATUS", "AT", "ABOUT", "JOB", "OPERATION"), [list(row.values()) for row in shown])


@app.command("show")
def show_(
    identity: Id,
    verify: Annotated[bool, typer.Option("--verify", help="Verify the stored bytes again, at the time of their receipt.")] = False,
    config: opening.Config = None,
    database_url: opening.DatabaseUrl = None,
    json: show.Json = False,
) -> None:
    """Show one, without its body. With --verify exit 1 when its signature is not right by today's contract and secrets."""
    from cli import inbox

    right = True
    with opening.record(config, database_url) as house:
        found = inbox.find(house, identity)
        shown = _described(found)
        if verify:
            review = found.review()
            right = review.right
            shown |= {
                "verified_again": "genuine" if right else "not genuine",
                "verified_reason": str(getattr(review.verdict, "reason", "")),
                "verified_by": review.verdict.secret_id,
            }
    if json:
        show.emit(shown)
    else:
        show.facts(shown)
    if not right:
        raise typer.Exit(FAILED)


@app.command()
def diagnose(identity: Id, config: opening.Config = None, database_url: opening.DatabaseUrl = None, json: show.Json = False) -> None:
    """Say why it was refused: which change would have made its signature right. Accepts nothing and shows no secret."""
    from cli import inbox
    from providers.diagnosis import diagnose as explain

    with opening.record(config, database_url) as house:
        found = inbox.find(house, identity)
        right = found.review().right
        assert found.request is not None
        causes = explain(found.request, found.account, found.at)
    shown: dict[str, Any] = {
        "id": identity,
        "provider": found.row["provider"],
        "verdict": "genuine by today's contract and secrets" if right else "refused",
        "reason": found.row["reason"] if found.refusal else None,
        "causes": [{"code": cause.code, "certain": cause.certain, "text": cause.text, "secret": cause.secret_id} for cause in causes],
    }
    if json:
        show.emit(shown)
        return
    show.facts({**shown, "causes": None})
    for cause in causes:
        typer.echo(show.cell(f"{'surely' if cause.certain else 'perhaps'}: {cause.text}", 500))
    if right and found.refusal:
        typer.echo(f"take it in by: gateway deliveries replay {found.row['id']}")


@app.command()
def replay(
    identity: Id,
    name: opening.Who = None,
    config: opening.Config = None,
    database_url: opening.DatabaseUrl = None,
    json: show.Json = False,
) -> None:
    """Apply it again by today's contract; it owes a read and nothing more. A refusal must be genuine by now."""
    from cli import inbox

    by = opening.who(name)
    with opening.record(config, database_url) as house:
        told = inbox.replay(house, inbox.find(house, identity), by)
    if json:
        show.emit([{"delivery": delivery, "status": status, "operation": operation} for delivery, status, operation in told])
    else:
        for delivery, status, operation in told:
            typer.echo(f"{delivery} {status}{f', {operation}' if operation else ''}")
    if any(status in {"unreadable", "revoked"} for _, status, _ in told):
        raise typer.Exit(FAILED)


def _of_delivery(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": row["id"],
        "provider": row["provider"],
        "status": row["status"],
        "at": row["received_at"],
        "about": row["problem"] or row["event_type"],
        "job": row["remote_job_id"],
        "operation": row["operation"],
    }


def _of_refusal(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": row["id"],
        "provider": row["provider"],
        "status": "refused",
        "at": row["at"],
        "about": row["reason"],
        "job": "",
        "operation": None,
    }


def _described(found: "Item") -> dict[str, Any]:
    """Return everything but the bytes: names of headers are shown, their values may be signatures."""
    row = found.row
    hidden = {"headers", "body", "target", "at", "received_at", "provider_time"}
    request = found.request
    return {
        **{name: value for name, value in row.items() if name not in hidden},
        "status": "refused" if found.refusal else row["status"],
        "received_at": show.when(found.at),
        "provider_time": None if found.refusal else show.when(row["provider_time"]),
        "bytes": row["bytes"] if found.refusal else len(row["body"] or b""),
        "path": None if request is None else request.path.decode("latin-1"),
        "header_names": None if request is None else sorted({name.decode("latin-1") for name, _ in request.headers}),
    }
