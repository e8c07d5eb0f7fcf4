"""`gateway operations`: the operator's view of any owner's operations, and what people may ask of them."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cli import opening, show
from cli.failure import FAILED, WRONG_USAGE, CommandError

if TYPE_CHECKING:
    from cli.house import House
    from schemas.evidence import Evidence
    from schemas.operation import Operation
    from schemas.settings import RetentionSettings

app = typer.Typer(help="Operations of every owner: look, refresh, cancel, decide.", rich_markup_mode=None)

MAX_LISTED: Final = 10_000
PAGE: Final = 500
Id = Annotated[str, typer.Argument(metavar="ID", help="The operation's id (op_…).")]


@app.command("list")
def list_(
    owner: Annotated[str | None, typer.Option(help="Only this owner's.")] = None,
    status: Annotated[str | None, typer.Option(help="Only of this public status, e.g. attention.")] = None,
    state: Annotated[str | None, typer.Option(help="Only in this state, e.g. create_unknown.")] = None,
    provider: Annotated[str | None, typer.Option(help="Only of this provider.")] = None,
    reference: Annotated[str | None, typer.Option(help="Only with this reference of the caller.")] = None,
    remote_job_id: Annotated[str | None, typer.Option(help="Only of this remote job.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=MAX_LISTED, help="At most so many, the newest first.")] = 50,
    config: opening.Config = None,
    database_url: opening.DatabaseUrl = None,
    json: show.Json = False,
) -> None:
    """List operations, the newest first."""
    from ledger.queries import OperationFilter
    from schemas.states import PublicStatus, State

    states = None if state is None else frozenset({_word(State, "--state", state)})
    wanted_status = None if status is None else _word(PublicStatus, "--status", status)
    wanted = OperationFilter(owner=owner, states=states, provider=provider, reference=reference, remote_job_id=remote_job_id)
    with opening.record(config, database_url) as house:
        found = list(_take(house, wanted, wanted_status, limit))
    if json:
        show.emit([described(op, house.settings.retention) for op in found])
        return
    from lifecycle.public import public_status

    show.table(
        ("ID", "OWNER", "PROVIDER", "STATUS", "STATE", "JOB", "CREATED", "NEXT CHECK"),
        [
            (op.id, op.owner, op.provider, public_status(op), op.state, op.remote_job_id, show.when(op.created_at), show.when(op.due_at))
            for op in found
        ],
    )


@app.command("show")
def show_(operation: Id, config: opening.Config = None, database_url: opening.DatabaseUrl = None, json: show.Json = False) -> None:
    """Show one operation: what its owner sees, and whose it is."""
    with opening.record(config, database_url) as house:
        op = _load(house, operation)
    if json:
        show.emit(described(op, house.settings.retention))
    else:
        show.facts({name: value for name, value in described(op, house.settings.retention).items() if name != "links"})


@app.command()
def history(operation: Id, config: opening.Config = None, database_url: opening.DatabaseUrl = None, json: show.Json = False) -> None:
    """Show everything that happened to an operation, in order."""
    from gateway.view import history_row
    from ledger import queries

    with opening.record(config, database_url) as house:
        _load(house, operation)
        rows: list[dict[str, Any]] = []
        while True:
            page = house.ledger.read_now(queries.history, operation, rows[-1]["seq"] if rows else 0, PAGE)
            rows.extend(history_row(row) for row in page)
            if len(page) < PAGE:
                break
    if json:
        show.emit(rows)
        return
    shown = [
        (row["seq"], row["at"], row["actor"], row["from_state"], row["to_state"], row["cause"], row["code"], row["text"] or row["meaning"])
        for row in rows
    ]
    show.table(("SEQ", "AT", "ACTOR", "FROM", "TO", "CAUSE", "CODE", "WORDS"), shown)


@app.command()
def bundle(
    operation: Id,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write a new file, readable by you alone, instead.")] = None,
    config: opening.Config = None,
    database_url: opening.DatabaseUrl = None,
    json: show.Json = False,
) -> None:
    """Print everything on record about an operation as one JSON document: for the provider's support, or an auditor."""
    del json  # a bundle is JSON, asked for or not
    from gateway.bundle import document
    from ledger.bundle import gather

    with opening.record(config, database_url) as house:
        gathered = house.ledger.read_now(gather, operation, None)
    if gathered is None:
        raise CommandError(f"there is no operation {operation[:100]}; see gateway operations list")
    if output is None:
        show.emit(document(gathered, house.settings.retention))
        return
    try:
        with open(output, "x", encoding="utf-8", opener=_private) as file:
            file.write(show.document(document(gathered, house.settings.retention)) + "\n")
    except FileExistsError:
        raise CommandError(f"{output} is there already: name another file, or remove it") from None
    except OSError as error:
        raise CommandError(f"{output} cannot be written: {error.strerror}") from None
    typer.echo(f"{output}")


@app.command()
def refresh(
    operation: Id,
    name: opening.Who = None,
    config: opening.Config = None,
    database_url: opening.DatabaseUrl = None,
    json: show.Json = False,
) -> None:
    """Ask for a status read now, within the budget."""
    from schemas.evidence import RefreshAsked

    by = opening.who(name)
    with opening.record(config, database_url) as house:
        _told(house, _petition(house, operation, by, RefreshAsked(by=by)), json)


@app.command()
def cancel(
    operation: Id,
    reason: Annotated[str, typer.Option(help="Why, for the history.")] = "",
    effect: Annotated[str, typer.Option(help="What effect is expected.")] = "",
    name: opening.Who = None,
    config: opening.Config = None,
    database_url: opening.DatabaseUrl = None,
    json: show.Json = False,
) -> None:
    """Record the wish to stop; what becomes of it is shown as cancel.outcome."""
    from schemas.evidence import CancelAsked

    by = opening.who(name)
    with opening.record(config, database_url) as house:
        _told(house, _petition(house, operation, by, CancelAsked(by=by, reason=_words(reason), expected_effect=_words(effect))), json)


@app.command()
def decide(
    operation: Id,
    answer: Annotated[str, typer.Argument(help="One of the answers that `operations show` lists under question.")],
    question: Annotated[str | None, typer.Option(help="The question's id (q_…); else the open one.")] = None,
    reason: Annotated[str, typer.Option(help="Why, for the history.")] = "",
    remote_job_id: Annotated[str | None, typer.Option(help="For adopt: the job that is ours.")] = None,
    seconds: Annotated[int | None, typer.Option(min=1, max=7_776_000, help="For resume, wait and retry: the new clock.")] = None,
    accept_duplicate_risk: Annotated[
        bool, typer.Option("--accept-duplicate-risk", help="For resend where the contract does not promise a replay.")
    ] = False,
    name: opening.Who = None,
    config: opening.Config = None,
    database_url: opening.DatabaseUrl = None,
    json: show.Json = False,
) -> None:
    """Answer the open question of an operation. The first answer counts."""
    from lifecycle.questions import answers_for
    from schemas.evidence import Answered
    from schemas.states import Answer

    chosen = _word(Answer, "ANSWER", answer)
    by = opening.who(name)
    with opening.record(config, database_url) as house:
        op = _load(house, operation)
        if op.question_id is None or op.question_kind is None:
            raise CommandError(f"{op.id} is {op.state} and asks nothing; see gateway operations show {op.id}")
        if chosen not in answers_for(op.question_kind):
            raise CommandError(
                f"the question {op.question_kind} takes {', '.join(answers_for(op.question_kind))}, not {chosen}", code=WRONG_USAGE
            )
        evidence = Answered(
            by=by,
            question_id=question or op.question_id,
            question=op.question_kind,
            answer=chosen,
            reason=_words(reason),
            remote_job_id=remote_job_id,
            seconds=seconds,
            accept_duplicate_risk=accept_duplicate_risk,
        )
        _told(house, _petition(house, operation, by, evidence), json)


@app.command()
def sweep(
    provider: Annotated[str | None, typer.Option(help="Only of this provider.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="Also those that are none any more.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=MAX_LISTED, help="At most so many, the newest first.")] = 100,
    config: opening.Config = None,
    database_url: opening.DatabaseUrl = None,
    json: show.Json = False,
) -> None:
    """List what the walks through the providers' lists of jobs found: leaks, duplicates, records without a job. Exit 1 if any is open."""
    from ledger.walks import findings, walks

    with opening.record(config, database_url) as house:
        found = [_finding(row) for row in house.ledger.read_now(findings, provider, limit, resolved=all_)]
        stands = [_walk(row) for row in house.ledger.read_now(walks) if provider in {None, row["provider"]}]
    if json:
        show.emit({"findings": found, "walks": stands})
    else:
        show.table(("PROVIDER", "KIND", "JOB", "OPERATION", "FIRST", "LAST", "RESOLVED"), [list(row.values()) for row in found])
        for row in stands:
            show.facts(row)
    if any(row["resolved_at"] is None for row in found):
        raise typer.Exit(FAILED)


def _finding(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "provider": row["provider"],
        "kind": row["kind"],
        "remote_job_id": row["remote_job_id"],
        "operation": row["operation"] or None,
        **{name: show.when(row[name]) for name in ("first_at", "last_at", "resolved_at")},
    }


def _walk(row: Mapping[str, Any]) -> dict[str, Any]:
    shown = {name: row[name] for name in ("provider", "walks", "pages", "failures", "error")}
    return {**shown, **{name: show.when(row[name]) for name in ("last_at", "due_at", "began_at", "watermark")}}


def described(op: "Operation", retention: "RetentionSettings") -> dict[str, Any]:
    """Return what the owner sees, and what only the operator may know."""
    from gateway.view import operation, time_text

    return {
        "owner": op.owner,
        "subject": op.subject,
        **operation(op, retention),
        "origin": op.origin,
        "mode": op.mode,
        "contract_digest": op.contract_digest,
        "attempts": {"creates": op.sends, "unsure": op.unsure_creates, "open": op.open_errand},
        "reads": {"failures": op.read_failures, "last_error": op.last_read_error, "last_at": time_text(op.last_read_at)},
        "lease": {"owner": op.lease_owner, "until": time_text(op.lease_until)} if op.lease_owner else None,
    }


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, mode=0o600)


def _load(house: "House", operation: str) -> "Operation":
    from ledger import queries

    found = house.ledger.read_now(queries.operation, operation, None)
    if found is None:
        raise CommandError(f"there is no operation {operation[:100]}; see gateway operations list")
    return found


def _take(house: "House", wanted: Any, status: Any, limit: int) -> Iterator["Operation"]:
    """Yield the newest operations of a filter. The public status is no column, so pages are read until there are enough."""
    from ledger import queries
    from lifecycle.public import public_status

    taken, place = 0, None
    while taken < limit:
        page = house.ledger.read_now(queries.operations, wanted, PAGE, place)
        for name in page.unreadable:
            typer.echo(f"gateway: {name} is stored and cannot be read; gateway database check tells why", err=True)
        for op in page:
            if status is None or public_status(op) == status:
                yield op
                taken += 1
                if taken == limit:
                    return
        if len(page) < PAGE:
            return
        place = (page[-1].created_at, page[-1].id)


def _petition(house: "House", operation: str, by: str, evidence: "Evidence") -> "Operation":
    """Commit a person's evidence and return the operation after it. Raises CommandError where it is refused."""
    from schemas.commands import Petition

    world = house.world
    answer = house.ledger.write_now(
        Petition(operation_id=operation, owner=None, actor=f"operator:{by}", evidence=evidence, now=world.now(), chance=world.chance())
    )
    if answer.operation is None:
        raise CommandError(f"there is no operation {operation[:100]}; see gateway operations list")
    if answer.outcome == "refused":
        detail = f" ({answer.detail})" if answer.detail else ""
        raise CommandError(f"refused: {answer.code}{detail}; {answer.operation.id} is {answer.operation.state}")
    return answer.operation


def _told(house: "House", op: "Operation", json: bool) -> None:
    if json:
        show.emit(described(op, house.settings.retention))
        return
    from lifecycle.public import message, stage

    typer.echo(f"{op.id} {op.state}: {stage(op)}. {message(op)}")


def _word(kind: Any, option: str, text: str) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise CommandError(f"{option} takes one of: {', '.join(kind)}", code=WRONG_USAGE) from None


def _words(text: str) -> str:
    if len(text) > 2_000:  # noqa: PLR2004 - as long as the API takes
        raise CommandError("a reason has at most 2,000 characters", code=WRONG_USAGE)
    return text
