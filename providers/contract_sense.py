"""What could be loaded and would never work, or would be paid twice: addresses that name no job, echoes that are never sent (A6, A7)."""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, Final

from providers.contract_faults import Faults, Path
from providers.places import template_fields
from schemas.contract import CancelRule, CreateRule, Deadlines, Limits, RecoveryRule, ResultRule, StatusRule
from schemas.states import Reading

_OURS: Final = frozenset({"operation", "token", "reference"})
_SHARED: Final = ("param.", "trace_id")
"""Fields that tell no job from another: the account's constants, and what no provider looks up by."""


def check_sense(sections: Mapping[str, Any], faults: Faults, base: Path) -> None:
    """Add the faults of sections that are well formed, each for itself, and cannot do what they are for."""
    for name, section in sections.items():
        path: Path = (*base, name)
        match section:
            case RecoveryRule():
                _echo(section, sections.get("create"), path, faults)
            case StatusRule():
                _status(section, path, faults)
            case CancelRule():
                _names_a_job(section.path, (text for _, text in section.send), path, faults)
            case ResultRule():
                _result(section, path, faults)
            case Deadlines() | Limits():
                for field in fields(section):
                    if getattr(section, field.name) <= 0:
                        faults.add((*path, field.name), "must be above 0")
            case _:
                pass


def _echo(recovery: RecoveryRule, create: CreateRule | None, path: Path, faults: Faults) -> None:
    """Add a fault where jobs never carry what they are compared with: each seems to be absent, so the create is sent again."""
    if create is None or not recovery.match or not {"lookup", "list"} & set(recovery.strategies):
        return
    sent = _fields((create.path, *(text for _, text in create.add), *create.headers.values()))
    if create.token.place != "none":
        sent |= {"token"}
    for name in sorted((_fields((recovery.equals,)) & _OURS) - sent):
        faults.add(
            (*path, "match"),
            f"is compared with {{{name}}}, which [create] does not send: every job would seem to be absent and be made again;"
            f' send it, as in add = {{ "metadata.{name}" = "{{{name}}}" }}',
        )


def _status(status: StatusRule, path: Path, faults: Faults) -> None:
    _names_a_job(status.path, (text for _, text in status.send), path, faults)
    said = [*status.readings.values(), *status.http_readings.values()]
    for rule in status.outcome:
        said += [*rule.readings.values(), *(reading for reading in (rule.present, rule.absent) if reading is not None)]
    if said and Reading.SUCCEEDED not in said:
        faults.add((*path, "readings"), "has no word that means succeeded: no operation could ever succeed")


def _names_a_job(address: str, more: Iterable[str], path: Path, faults: Faults) -> None:
    if address.startswith("/") and all(name.startswith(_SHARED) for name in _fields((address, *more))):
        faults.add((*path, "path"), "names no job: all operations would share one; put {remote_job_id} where its id stands")


def _result(result: ResultRule, path: Path, faults: Faults) -> None:
    if result.one_shot and not result.files:
        faults.add((*path, "one_shot"), "needs [[result.files]]: without them the status answer is the result, and is read again and again")
    if result.retention_seconds < 1:
        faults.add((*path, "retention_seconds"), "must be 1 second or more")
    roles: set[str] = set()
    for index, file in enumerate(result.files):
        _names_a_job(file.path, (), (*path, "files", index), faults)
        if file.role in roles:
            faults.add((*path, "files", index, "role"), f"{file.role[:60]!r} is taken: each file has a role of its own")
        roles.add(file.role)


def _fields(templates: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for text in templates:
        try:
            found |= set(template_fields(text))
        except ValueError:  # a fault of its own
            continue
    return found
