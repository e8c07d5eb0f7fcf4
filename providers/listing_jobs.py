"""The table of shipped job contracts (docs/providers.md), made from the contracts: what a kind of operation promises."""

from collections.abc import Iterable
from typing import Final

from schemas.contract import Contract

JOBS_HEAD: Final = """\
| Contract and action | Known by | After a lost answer to a create | Words | Cancel | Result |
|---|---|---|---|---|---|
"""
_DASH: Final = "–"  # noqa: RUF001 - an empty cell of the table is an en dash
_REPEATS: Final = {
    "answer": "the first answer comes again, errors too",
    "success": "only a success is kept",
    "resume": "unfinished work is resumed",
    "conflict": "a conflict names the original",
}
_HOUR: Final = 3_600
_DAY: Final = 24 * _HOUR


def jobs_table(contracts: Iterable[Contract]) -> str:
    """Return the table in Markdown, one row for each kind of operation, by name."""
    rows = [
        _row(whole, action if whole.actions else "", contract)
        for whole in sorted(contracts, key=lambda contract: contract.name)
        for action, contract in whole.kinds().items()
    ]
    return JOBS_HEAD + "".join(rows)


def _row(whole: Contract, action: str, contract: Contract) -> str:
    cells = (
        f"`{whole.name}`" + (f" `{action}`" if action else ""),
        "callbacks and reads" if whole.signatures else "reads",
        _recovery(contract, echoed=bool(whole.signatures) and whole.event.body_signed and bool(whole.event.client_reference)),
        _words(contract),
        _cancel(contract),
        _result(contract),
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _recovery(contract: Contract, *, echoed: bool) -> str:
    create, rule = contract.create, contract.recovery
    if create is None:
        return "adopted only"
    steps = []
    for strategy in rule.strategies:
        match strategy:
            case "resend":
                steps.append(f"same token again for {_time(create.token.window_seconds)} ({_REPEATS[create.token.repeats]})")
            case "lookup":
                steps.append("looked up by " + ("its name, which is our token" if "{token}" in rule.path else f"`{rule.match}`"))
            case _:
                steps.append(f"list, compared by `{rule.match}`")
    if echoed and not rule.strategies:
        steps.append("a callback that names the operation")
    return "; then ".join([*steps, "a person is asked"]) if not rule.strategies else "; then ".join(steps)


def _words(contract: Contract) -> str:
    status = contract.status
    assert status is not None, "a kind of operation has a status"
    told = [f"`{word}` {reading}" for word, reading in status.readings.items()]
    told += [f"`{word}` by `{rule.at.removeprefix('body:')}`" for rule in status.outcome for word in rule.words]
    watched = [f"ends are watched for {_time(status.watch_seconds)}"] if status.watch_seconds else []
    return ", ".join(dict.fromkeys([*told, *watched]))


def _cancel(contract: Contract) -> str:
    cancel = contract.cancel
    if cancel is None:
        return _DASH
    return "yes" + (", and a finished job is deleted" if cancel.destructive else "")


def _result(contract: Contract) -> str:
    rule = contract.result
    if rule is None:
        return "the status answer"
    files = ", ".join(file.role for file in rule.files)
    partial = ", of partial ends too" if len(rule.readings) > 1 else ""
    return f"{files}; kept for {_time(rule.retention_seconds)}{partial}" + (", can be read once" if rule.one_shot else "")


def _time(seconds: int) -> str:
    amount, unit = (
        (seconds // _DAY, "day") if seconds >= 2 * _DAY else (seconds // _HOUR, "hour") if seconds >= _HOUR else (seconds, "second")
    )
    return f"{amount} {unit}" + ("" if amount == 1 else "s")
