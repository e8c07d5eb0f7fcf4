"""What a contract's sections must mean together: places and templates are readable, and no policy lacks its support."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from providers.contract_faults import Faults, Path
from providers.contract_jobs import check_job
from providers.contract_parts import expressions, places, request, template, tried
from providers.contract_sense import check_sense
from providers.places import compile_place
from providers.verification.times import UNITS
from schemas.contract import Auth, EventMap, ListRule, RetryRules

_ANSWERS = re.compile(r"[1-5](?:xx|[0-9]{2})")
_MIN_SUCCESS, _MAX_SUCCESS = 200, 299
# Keys that no default can know: a guessed address or place would pass every check and fail at the first operation.
_NEEDED: Final = (
    ("create", "path", "", "name the address, as in /v1/reports"),
    ("create", "job_id", "", "name the place of the job's id in the answer, as in body:id"),
    ("status", "path", "url", "name the address of one job, as in /v1/reports/{remote_job_id}"),
    ("status", "state", "http_readings", "name the place of the provider's word, as in body:status"),
    ("cancel", "path", "url", "name the address, as in /v1/reports/{remote_job_id}/cancel"),
    ("list", "path", "", "name the address of the list, as in /v1/reports?limit=100"),
)

Sections = Mapping[str, Any]


def check_sections(sections: Sections, faults: Faults, base: Path = ()) -> None:
    """Add every fault of the sections that were readable. Keys are section names; an absent one is missing or None.

    `base` is where they stand in the file: at the top, or under an action.
    """
    checks: dict[type, Callable[[Any, Faults], None]] = {EventMap: _event, RetryRules: _retry, Auth: _auth, ListRule: _list}
    for section in sections.values():
        if check := checks.get(type(section)):
            check(section, faults)
    check_job(sections, faults, base)
    check_sense(sections, faults, base)


def check_complete(document: Mapping[str, Any], faults: Faults) -> None:
    """Add a fault for every section and key without which the contract cannot work. A contract without [signature] is only polled."""
    actions = document.get("actions")
    several = {name: own for name, own in actions.items() if isinstance(own, Mapping)} if isinstance(actions, Mapping) else {}
    _needed(document, (), faults)
    for name, own in several.items():
        _needed(own, ("actions", name), faults)
        if "status" not in own:
            faults.add(("actions", name), "needs a status: only an authoritative read says how a job ended")
    _list_of(document.get("list"), several, faults)
    event, polled = document.get("event"), "status" in document or bool(several)
    if not document.get("signature"):
        if not polled:
            faults.add(("signature",), "is missing; say how deliveries are signed, or write [status] for a provider that is only read")
        elif event is not None:
            faults.add(("event",), "needs a [signature] section: unsigned deliveries are refused (primitive refetch takes them as hints)")
    elif event is None:
        faults.add(("event",), "is missing; say where a delivery names its event and its job")
    elif polled and isinstance(event, Mapping) and not (event.get("job_id") or event.get("client_reference")):
        faults.add(("event", "job_id"), "is missing; without it or client_reference no delivery finds its operation")


def _needed(document: Mapping[str, Any], base: Path, faults: Faults) -> None:
    for section, key, instead, cure in _NEEDED:
        table = document.get(section)
        if isinstance(table, Mapping) and key not in table and not (instead and instead in table):
            faults.add((*base, section, key), f"is missing; {cure}")


def says(word: str, status: int) -> bool:
    """Say whether `word` ("410" or "4xx") means `status`."""
    return word in {str(status), f"{status // 100}xx"}


def _event(event: EventMap, faults: Faults) -> None:
    path: Path = ("event",)
    names = ("id", "type", "job_id", "client_reference", "state", "time")
    places({name: getattr(event, name) for name in names}, path, faults)
    expressions({"each": event.each}, path, faults)
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
    tried(compile_place, f"header:{auth.header}", ("auth", "header"), faults)
    template(auth.value, ("credential",), ("auth", "value"), faults)


def _list_of(rule: Any, several: Mapping[str, Any], faults: Faults) -> None:
    """Add a fault where a list leaves open which kinds of jobs it shows: those of another kind would be told as missing."""
    if not isinstance(rule, Mapping):
        return
    named = rule.get("actions") or ()
    if len(several) > 1 and not named:
        faults.add(
            ("list", "actions"), f'name the kinds of jobs that it lists, as in ["{next(iter(several))}"]: others would seem to be missing'
        )
    if isinstance(named, list) and any(name not in several for name in named):
        faults.add(("list", "actions"), f"names what is none of [actions]: {', '.join(several) or 'there are none'}")


def _list(rule: ListRule, faults: Faults) -> None:
    path: Path = ("list",)
    request("GET", rule.path, (), path, faults)
    places({"items": rule.items, "next": rule.next}, path, faults)
    expressions({"job_id": rule.job_id, "reference": rule.reference, "time": rule.time}, path, faults)
    if not rule.items or not rule.job_id:
        faults.add(path, "needs items (the place of the array) and job_id (the id in an item)")
    if rule.newest_first and not rule.time:
        faults.add((*path, "newest_first"), "needs time: where to stop is judged by it")
    for key in ("max_pages", "overlap_seconds", "grace_seconds"):
        if getattr(rule, key) < 1:
            faults.add((*path, key), "must be 1 or more")
