"""What the sections of one kind of operation must mean together: no policy without its support (MISSION A6, A7).

`base` is where the sections stand in the file: at the top, or under `actions.NAME`.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from providers.contract_faults import Faults, Path
from providers.contract_parts import check_headers, check_origins, expressions, places, request, template, tried
from providers.places import compile_place, template_fields
from providers.tokens import LEAST
from schemas.contract import RESEND_MARGIN_SECONDS, CancelRule, CreateRule, RecoveryRule, ResultFile, ResultRule, StatusRule, TokenRule
from schemas.states import ENDED_READINGS

OURS: Final = ("token", "operation", "reference", "trace_id", "param.*")
"""Template fields known before the provider has answered."""
MAX_EFFECTS: Final = 16
"""Names of [status.effects]: each is shown with every ended operation."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_STATUS = re.compile(r"[1-5][0-9]{2}")

Sections = Mapping[str, Any]


def check_job(sections: Sections, faults: Faults, base: Path) -> None:
    """Add every fault of create, recovery, status, cancel and result, alone and together."""
    create, recovery, status = sections.get("create"), sections.get("recovery"), sections.get("status")
    cancel, result = sections.get("cancel"), sections.get("result")
    ours = (*OURS, *(f"request.{name}" for name in (*create.take, *create.keep))) if create is not None else OURS
    remembered = tuple(create.remember) if create is not None else ()
    with_job = ("remote_job_id", *ours, *(f"create.{name}" for name in remembered))
    if create is not None:
        _create(create, ours, (*base, "create"), faults)
    if recovery is not None:
        _recovery(recovery, create, ours, (*base, "recovery"), faults)
    if status is not None:
        _status(status, with_job, (*base, "status"), faults)
    if cancel is not None:
        _cancel(cancel, with_job, (*base, "cancel"), faults)
    for name, section in (("status", status), ("cancel", cancel)):
        if section is not None and section.url and section.url not in remembered:
            faults.add((*base, name, "url"), f"{section.url[:60]!r} is no value of create.remember")
    if result is not None:
        _result(result, with_job, (*base, "result"), faults)
    if status is None:
        for name, section in (("create", create), ("cancel", cancel), ("result", result)):
            if section is not None:
                faults.add((*base, name), "needs a [status] section: only an authoritative read says how a job ended")
    if recovery is not None:
        _support(recovery, create, (*base, "recovery"), faults)


def _create(create: CreateRule, ours: tuple[str, ...], path: Path, faults: Faults) -> None:
    request(create.method, create.path, (*ours, "callback_url"), path, faults)
    places({"error": create.error}, path, faults)
    if create.job_id.startswith("{"):
        template(create.job_id, ours, (*path, "job_id"), faults)
    else:
        places({"job_id": create.job_id}, path, faults)
    if create.job_id_re:
        _pattern(create.job_id_re, (*path, "job_id_re"), faults)
    for target, text in create.add:
        template(text, (*ours, "callback_url"), (*path, "add", target), faults)
    check_headers(create.headers, (*path, "headers"), faults)
    for name, text in create.headers.items():
        template(text, ours, (*path, "headers", name), faults)
    for key, names in (("take", create.take), ("keep", create.keep), ("remember", tuple(create.remember))):
        for name in names:
            if not _NAME.fullmatch(name):
                faults.add((*path, key), f"{name[:60]!r} is no name: letters, digits, _ and -")
    for name in sorted(set(create.take) & set(create.keep)):
        faults.add((*path, "take"), f"{name} is also in keep: decide")
    places(create.remember, (*path, "remember"), faults)
    check_origins(create.origins, (*path, "origins"), faults)
    _token(create, (*path, "token"), faults)
    for status in sorted(set(create.accepted) & (set(create.rejected) | set(create.not_executed))):
        faults.add((*path, "accepted"), f"{status} is also said to be refused or not executed: decide")
    for status in sorted(set(create.rejected) & set(create.not_executed)):
        faults.add((*path, "not_executed"), f"{status} is also in rejected: decide")


def _token(create: CreateRule, path: Path, faults: Faults) -> None:
    token = create.token
    match token.place:
        case "none":
            if token.window_seconds:
                faults.add((*path, "window_seconds"), "needs a token: say where it goes by in and name")
        case "path":
            if not _uses(create.path, "token"):
                faults.add((*path, "in"), "is path, but create.path has no {token}")
        case _ if not token.name:
            faults.add((*path, "name"), "is missing; name the header, the parameter or the body field that carries the token")
        case "header":
            tried(compile_place, f"header:{token.name}", (*path, "name"), faults)
        case _:
            pass
    if token.max_length < LEAST[token.form]:
        faults.add(
            (*path, "max_length"), f"must be {LEAST[token.form]} or more for the form {token.form}: two operations must never share a token"
        )
    places({"replayed": token.replayed, "original": token.original}, path, faults)
    if (token.repeats == "conflict") != bool(token.original):
        faults.add((*path, "original"), 'goes with repeats = "conflict": the place where such an answer names the original job')


def _pattern(text: str, path: Path, faults: Faults) -> None:
    try:
        groups = re.compile(text).groups
    except re.error as error:
        faults.add(path, f"is no regular expression: {error}")
        return
    if groups != 1:
        faults.add(path, "needs one group, as in /operations/([^/?]+)")


def _uses(text: str, *names: str) -> bool:
    try:
        return bool(set(names) & set(template_fields(text)))
    except ValueError:
        return False  # a fault of its own


def _recovery(recovery: RecoveryRule, create: CreateRule | None, ours: tuple[str, ...], path: Path, faults: Faults) -> None:
    searching = [name for name in ("lookup", "list") if name in recovery.strategies]
    named = create is not None and create.token.place != "none" and not recovery.items and _uses(recovery.path, "token")
    if searching:
        if recovery.path:
            request(recovery.method, recovery.path, ours, path, faults)
        else:
            faults.add((*path, "path"), f"is missing; {searching[0]} needs a request")
        if not recovery.match and not (named and searching == ["lookup"]):
            faults.add((*path, "match"), f"is missing; {searching[0]} must compare our echo in what it finds (see create.add)")
    if "list" in recovery.strategies and not recovery.items:
        faults.add((*path, "items"), "is missing; list needs the place of the array")
    if recovery.confirmations < 1:
        faults.add((*path, "confirmations"), "must be 1 or more")
    if recovery.max_pages < 1:
        faults.add((*path, "max_pages"), "must be 1 or more")
    if recovery.paging in {"page", "offset"} and "list" in recovery.strategies and not recovery.next_param:
        faults.add((*path, "next_param"), f"is missing; paging by {recovery.paging} needs the parameter that carries it")
    _send(recovery.send, recovery.method, ours, path, faults)
    places({"items": recovery.items, "next": recovery.next}, path, faults)
    expressions({"match": recovery.match, "job_id": recovery.job_id, "created": recovery.created}, path, faults)
    template(recovery.equals, ours, (*path, "equals"), faults)


def _send(send: Iterable[tuple[str, str]], method: str, known: tuple[str, ...], path: Path, faults: Faults) -> None:
    for target, text in send:
        template(text, known, (*path, "send", target), faults)
        if method in {"GET", "HEAD"}:
            faults.add((*path, "send"), f"a {method} has no body: set the method")


def _status(status: StatusRule, with_job: tuple[str, ...], path: Path, faults: Faults) -> None:
    if status.path or not status.url:
        request(status.method, status.path, with_job, path, faults)
    _send(status.send, status.method, with_job, path, faults)
    names = ("state", "job_id", "match", "progress", "provider_time", "error")
    places({name: getattr(status, name) for name in names}, path, faults)
    template(status.equals, with_job, (*path, "equals"), faults)
    places(status.effects, (*path, "effects"), faults)
    if len(status.effects) > MAX_EFFECTS:
        faults.add((*path, "effects"), f"has more than {MAX_EFFECTS} names")
    if not status.readings and not status.http_readings and not status.outcome:
        faults.add((*path, "readings"), 'is missing; say what the provider\'s words mean, as in done = "succeeded"')
    if set(status.ok) & set(status.not_found):
        faults.add((*path, "not_found"), "has a status that is also ok: decide")
    if not 1 <= status.poll_seconds <= status.max_poll_seconds:
        faults.add((*path, "poll_seconds"), "must be 1 or more and not above max_poll_seconds")
    for word in status.http_readings:
        if not _STATUS.fullmatch(word):
            faults.add((*path, "http_readings", word), "is no HTTP status (100 to 599)")
        elif int(word) in status.not_found or (status.state and int(word) in status.ok):
            faults.add((*path, "http_readings", word), "is also in ok or not_found: decide")
    _outcomes(status, (*path, "outcome"), faults)
    if status.watch_seconds and not status.reversible:
        faults.add((*path, "reversible"), "is missing; name the ends that are read on")
    if set(status.reversible) - ENDED_READINGS:
        faults.add((*path, "reversible"), "has a reading that is no end: succeeded, failed, cancelled, expired")


def _outcomes(status: StatusRule, path: Path, faults: Faults) -> None:
    for index, rule in enumerate(status.outcome):
        here: Path = (*path, index)
        if not rule.words:
            faults.add((*here, "words"), "is missing; name the words of the state for which this decides")
        if not rule.at:
            faults.add((*here, "at"), "is missing; name the place that decides, as in body:conclusion")
        places({"at": rule.at}, here, faults)
        if not rule.readings and rule.present is None and rule.absent is None:
            faults.add((*here, "readings"), "is missing; say what stands there, or present and absent")
        for word in rule.words:
            if word in status.readings:
                faults.add((*here, "words"), f"{word[:60]!r} is also in readings, which has no say then: decide")


def _cancel(cancel: CancelRule, with_job: tuple[str, ...], path: Path, faults: Faults) -> None:
    if cancel.path or not cancel.url:
        request(cancel.method, cancel.path, with_job, path, faults)
    _send(cancel.send, cancel.method, with_job, path, faults)
    for status in sorted(set(cancel.accepted) & (set(cancel.refused) | set(cancel.not_executed))):
        faults.add((*path, "accepted"), f"{status} is also said to be refused or not executed: decide")


def _inside(file: ResultFile, path: Path, faults: Faults) -> None:
    """Check what is said about the records of a file, and their items."""
    if file.records and file.format != "json":
        faults.add((*path, "records"), 'needs format = "json": it is the place of the array in a document')
    elif file.records and not all(file.records.split(".")):
        faults.add((*path, "records"), "must be names with dots between them, as in data.results")
    if file.compression != "none" and file.format == "opaque":
        faults.add((*path, "compression"), "needs a format: a file that is not looked into is never inflated")
    items = file.items
    if items is None:
        return
    if file.format == "opaque":
        faults.add((*path, "items"), 'needs format = "jsonl", "csv" or "json"')
    if not items.id:
        faults.add((*path, "items", "id"), "is missing; say where a record names its item")
    if bool(items.outcome) != bool(items.ok):
        faults.add((*path, "items", "outcome"), "and ok go together: the word, and which of its values mean success")
    if file.format != "csv":
        names = ("id", "outcome", "error", "value")
        expressions({name: getattr(items, name) for name in names}, (*path, "items"), faults)


def _result(result: ResultRule, with_job: tuple[str, ...], path: Path, faults: Faults) -> None:
    places(result.values, (*path, "values"), faults)
    places({"total": result.total}, path, faults)
    for key in ("max_record_bytes", "max_inflated_bytes"):
        if getattr(result, key) < 1:
            faults.add((*path, key), "must be 1 or more")
    if result.total and not any(file.items is not None for file in result.files):
        faults.add((*path, "total"), "needs a file with items: nothing else can be missing")
    check_origins(result.origins, (*path, "origins"), faults)
    known = (*with_job, *(f"result.{name}" for name in result.values))
    for index, file in enumerate(result.files):
        here: Path = (*path, "files", index)
        if bool(file.url) == bool(file.path):
            faults.add(here, "needs either url (a place in the status answer) or path (on the provider's origin), not both")
        places({"url": file.url, "bytes": file.bytes, "sha256": file.sha256}, here, faults)
        _inside(file, here, faults)
        if file.path:
            request("GET", file.path, known, here, faults)


def _support(recovery: RecoveryRule, create: CreateRule | None, path: Path, faults: Faults) -> None:
    if create is None:
        if recovery.strategies:
            faults.add((*path, "strategies"), "needs a [create] section: there is nothing to recover")
        return
    token: TokenRule = create.token
    if "resend" in recovery.strategies and token.place == "none":
        faults.add((*path, "strategies"), "resend needs [create.token]: without a token a resend is a second job")
    elif "resend" in recovery.strategies and token.window_seconds == 0:
        faults.add((*path, "strategies"), "resend needs create.token.window_seconds: how long the provider answers the same token")
    elif "resend" in recovery.strategies and token.window_seconds <= RESEND_MARGIN_SECONDS:
        faults.add(
            (*path, "strategies"),
            f"resend needs a create.token.window_seconds above {RESEND_MARGIN_SECONDS}: a shorter one may be over; look the job up instead",
        )
    if recovery.replay_guaranteed and "resend" not in recovery.strategies:
        faults.add((*path, "replay_guaranteed"), 'needs "resend" among the strategies')
    if recovery.replay_guaranteed and token.repeats == "success":
        faults.add((*path, "replay_guaranteed"), 'is not so where create.token.repeats is "success": what failed is executed again')
    if not recovery.proves_absence and not {"lookup", "list"} & set(recovery.strategies):
        faults.add((*path, "proves_absence"), "speaks of a lookup or a list: put one among the strategies")
