"""What a contract's sections must mean together: places and templates are readable, and no policy lacks its support."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from providers.contract_faults import Faults, Path
from providers.origins import fault_of, is_any
from providers.places import compile_expression, compile_place, first_unknown
from providers.verification.times import UNITS
from schemas.contract import Auth, CancelRule, CreateRule, EventMap, RecoveryRule, ResultRule, RetryRules, StatusRule

OURS: Final = ("token", "operation", "reference", "trace_id")
"""Template fields known before the provider has answered."""
WITH_JOB: Final = ("remote_job_id", *OURS)
"""Template fields once the job id is known."""

_ANSWERS = re.compile(r"[1-5](?:xx|[0-9]{2})")
_METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD")
_MIN_SUCCESS, _MAX_SUCCESS = 200, 299
# Keys that no default can know: a guessed address or place would pass every check and fail at the first operation.
_NEEDED: Final = (
    ("create", "path", "name the address, as in /v1/reports"),
    ("create", "job_id", "name the place of the job's id in the answer, as in body:id"),
    ("status", "path", "name the address of one job, as in /v1/reports/{remote_job_id}"),
    ("status", "state", "name the place of the provider's word, as in body:status"),
    ("cancel", "path", "name the address, as in /v1/reports/{remote_job_id}/cancel"),
)

Sections = Mapping[str, Any]


def check_sections(sections: Sections, faults: Faults) -> None:
    """Add every fault of the sections that were readable. Keys are section names; an absent one is missing or None."""
    checks: dict[type, Callable[[Any, Faults], None]] = {
        EventMap: _event,
        RetryRules: _retry,
        Auth: _auth,
        CreateRule: _create,
        RecoveryRule: _recovery,
        StatusRule: _status,
        CancelRule: _cancel,
        ResultRule: _result,
    }
    for section in sections.values():
        if check := checks.get(type(section)):
            check(section, faults)
    _support(sections, faults)


def check_complete(document: Mapping[str, Any], faults: Faults) -> None:
    """Add a fault for every section and key without which the contract cannot work. A contract without [signature] is only polled."""
    for section, key, cure in _NEEDED:
        table = document.get(section)
        if isinstance(table, Mapping) and key not in table:
            faults.add((section, key), f"is missing; {cure}")
    event, polled = document.get("event"), "status" in document
    if not document.get("signature"):
        if not polled:
            faults.add(("signature",), "is missing; say how deliveries are signed, or write [status] for a provider that is only read")
        elif event is not None:
            faults.add(("event",), "needs a [signature] section: unsigned deliveries are refused (primitive refetch takes them as hints)")
    elif event is None:
        faults.add(("event",), "is missing; say where a delivery names its event and its job")
    elif polled and isinstance(event, Mapping) and not (event.get("job_id") or event.get("client_reference")):
        faults.add(("event", "job_id"), "is missing; without it or client_reference no delivery finds its operation")


def check_origin(origin: str, path: Path, faults: Faults) -> None:
    """Add a fault unless `origin` is empty or scheme, host and port alone."""
    if origin and (is_any(origin) or origin.endswith("/") or fault_of(origin)):
        faults.add(path, "must be an origin alone, as in https://api.example.com (no path, no slash at the end)")


def says(word: str, status: int) -> bool:
    """Say whether `word` ("410" or "4xx") means `status`."""
    return word in {str(status), f"{status // 100}xx"}


def _places(table: Mapping[str, str], path: Path, faults: Faults) -> None:
    for key, text in table.items():
        if text:
            _tried(compile_place, text, (*path, key), faults)


def _expressions(table: Mapping[str, str], path: Path, faults: Faults) -> None:
    for key, text in table.items():
        if text:
            _tried(compile_expression, text, (*path, key), faults)


def _template(text: str, known: tuple[str, ...], path: Path, faults: Faults) -> None:
    try:
        unknown = first_unknown(text, known)
    except ValueError as error:
        faults.add(path, str(error))
        return
    if unknown is not None:
        faults.add(path, f"{{{unknown}}} has no value here; known are {', '.join('{' + name + '}' for name in known)}")


def _request(method: str, template: str, known: tuple[str, ...], path: Path, faults: Faults) -> None:
    if method not in _METHODS:
        faults.word((*path, "method"), method, _METHODS)
    if not template.startswith("/"):
        faults.add((*path, "path"), "must begin with / (it stands on the provider's origin)")
    _template(template, known, (*path, "path"), faults)


def _tried(make: Any, text: str, path: Path, faults: Faults) -> None:
    try:
        make(text)
    except ValueError as error:
        faults.add(path, str(error))


def _event(event: EventMap, faults: Faults) -> None:
    path: Path = ("event",)
    names = ("id", "type", "job_id", "client_reference", "state", "time")
    _places({name: getattr(event, name) for name in names}, path, faults)
    _expressions({"each": event.each}, path, faults)
    if event.time_unit not in UNITS:
        faults.word((*path, "time_unit"), event.time_unit, UNITS)


def _retry(retry: RetryRules, faults: Faults) -> None:
    if not _MIN_SUCCESS <= retry.success_status <= _MAX_SUCCESS:
        faults.add(("retry", "success_status"), "must be 200 to 299: another answer makes the provider deliver again")
    for key, words in (("success", retry.success), ("stops_on", retry.stops_on)):
        for word in words:
            if not _ANSWERS.fullmatch(word):
                faults.add(("retry", key), f'{word[:20]!r} is no status: write "410" or "4xx"')
    if not any(says(word, retry.success_status) for word in retry.success):
        faults.add(("retry", "success_status"), "is not among success: the provider would deliver again")


def _auth(auth: Auth, faults: Faults) -> None:
    _tried(compile_place, f"header:{auth.header}", ("auth", "header"), faults)
    _template(auth.value, ("credential",), ("auth", "value"), faults)


def _create(create: CreateRule, faults: Faults) -> None:
    path: Path = ("create",)
    _request(create.method, create.path, OURS, path, faults)
    _places({"job_id": create.job_id, "error": create.error}, path, faults)
    for target, template in create.add:
        _template(template, (*OURS, "callback_url"), (*path, "add", target), faults)
    token = create.token
    if token.place != "none" and not token.name:
        faults.add((*path, "token", "name"), "is missing; name the header or body field that carries the token")
    if token.place == "none" and token.window_seconds:
        faults.add((*path, "token", "window_seconds"), 'needs a token: set in = "header" or "body" and a name')
    if token.place == "header" and token.name:
        _tried(compile_place, f"header:{token.name}", (*path, "token", "name"), faults)
    for status in sorted(set(create.accepted) & (set(create.rejected) | set(create.not_executed))):
        faults.add((*path, "accepted"), f"{status} is also said to be refused or not executed: decide")
    for status in sorted(set(create.rejected) & set(create.not_executed)):
        faults.add((*path, "not_executed"), f"{status} is also in rejected: decide")


def _recovery(recovery: RecoveryRule, faults: Faults) -> None:
    path: Path = ("recovery",)
    searching = [name for name in ("lookup", "list") if name in recovery.strategies]
    if searching:
        if recovery.path:
            _request("GET", recovery.path, OURS, path, faults)
        else:
            faults.add((*path, "path"), f"is missing; {searching[0]} needs a request")
        if not recovery.match:
            faults.add((*path, "match"), f"is missing; {searching[0]} must compare our echo in what it finds (see create.add)")
    if "list" in recovery.strategies and not recovery.items:
        faults.add((*path, "items"), "is missing; list needs the place of the array")
    if recovery.confirmations < 1:
        faults.add((*path, "confirmations"), "must be 1 or more")
    _places({"items": recovery.items, "next": recovery.next}, path, faults)
    _expressions({"match": recovery.match, "job_id": recovery.job_id}, path, faults)
    _template(recovery.equals, OURS, (*path, "equals"), faults)


def _status(status: StatusRule, faults: Faults) -> None:
    path: Path = ("status",)
    _request(status.method, status.path, WITH_JOB, path, faults)
    _places({name: getattr(status, name) for name in ("state", "job_id", "progress", "provider_time", "error")}, path, faults)
    if not status.readings:
        faults.add((*path, "readings"), 'is missing; say what the provider\'s words mean, as in done = "succeeded"')
    if set(status.ok) & set(status.not_found):
        faults.add((*path, "not_found"), "has a status that is also ok: decide")
    if not 1 <= status.poll_seconds <= status.max_poll_seconds:
        faults.add((*path, "poll_seconds"), "must be 1 or more and not above max_poll_seconds")


def _cancel(cancel: CancelRule, faults: Faults) -> None:
    _request(cancel.method, cancel.path, WITH_JOB, ("cancel",), faults)
    for status in sorted(set(cancel.accepted) & (set(cancel.refused) | set(cancel.not_executed))):
        faults.add(("cancel", "accepted"), f"{status} is also said to be refused or not executed: decide")


def _result(result: ResultRule, faults: Faults) -> None:
    _places(result.values, ("result", "values"), faults)
    for origin in result.origins:
        if fault := fault_of(origin):
            faults.add(("result", "origins"), fault)
    known = (*WITH_JOB, *(f"result.{name}" for name in result.values))
    for index, file in enumerate(result.files):
        path: Path = ("result", "files", index)
        if bool(file.url) == bool(file.path):
            faults.add(path, "needs either url (a place in the status answer) or path (on the provider's origin), not both")
        _places({"url": file.url, "bytes": file.bytes, "sha256": file.sha256}, path, faults)
        if file.path:
            _request("GET", file.path, known, path, faults)


def _support(sections: Sections, faults: Faults) -> None:
    create, status, recovery = sections.get("create"), sections.get("status"), sections.get("recovery")
    if status is None:
        for name in ("create", "cancel", "result"):
            if sections.get(name) is not None:
                faults.add((name,), "needs a [status] section: only an authoritative read says how a job ended")
    if not isinstance(recovery, RecoveryRule):
        return
    if recovery.strategies and create is None:
        faults.add(("recovery", "strategies"), "needs a [create] section: there is nothing to recover")
    token = create.token if isinstance(create, CreateRule) else None
    if token is None:
        return
    if "resend" in recovery.strategies and token.place == "none":
        faults.add(("recovery", "strategies"), "resend needs [create.token]: without a token a resend is a second job")
    elif "resend" in recovery.strategies and token.window_seconds == 0:
        faults.add(("recovery", "strategies"), "resend needs create.token.window_seconds: how long the provider answers the same token")
    if recovery.replay_guaranteed and "resend" not in recovery.strategies:
        faults.add(("recovery", "replay_guaranteed"), 'needs "resend" among the strategies')
