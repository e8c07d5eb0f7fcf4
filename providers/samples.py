"""Samples of answers in a contract file: what the engine makes of each, and where that differs from what the sample says.

Deliveries are samples too; `providers/vectors.py` judges those. docs/contracts.md tells the keys of both.
"""

import hashlib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Final

from providers.interpret import cancel, check_file, create, download, expected, has_result, status
from providers.recovery import ListWalk, interpret_lookup
from providers.requests import UnbuildableError
from providers.results import FileRequest, collect_requests
from schemas.contract import Contract
from schemas.evidence import Collected, Evidence, JobKnown, Kind, Read, ResultInvalid
from schemas.http import AnsweredOutcome, HttpRequest
from schemas.operation import SECOND, Operation
from schemas.states import Mode, Reading, State

KINDS: Final = ("create", "status", "cancel", "lookup", "list", "file")
"""The calls whose answers may be samples."""

ANSWER_KEYS: Final[Mapping[str, type | tuple[type, ...]]] = {
    "name": str, "why": str, "kind": str, "action": str, "request": str, "remembered": dict, "params": dict,
    "status": int, "headers": dict, "body": str, "operation": str, "evidence": str, "role": str,
    "reading": str, "state": str, "job": str, "code": str, "progress": (int, float), "files": list,
}  # fmt: skip
"""Keys of a sample answer and their types."""

_WANTED: Final = {str: "a text (in quotes)", int: "a number (without quotes)", dict: "a table", list: "a list"}
_EVIDENCE: Final[Mapping[str, tuple[str, ...]]] = {
    "create": (Kind.JOB_KNOWN, Kind.CREATE_REJECTED, Kind.NOT_SENT, Kind.CREATE_AMBIGUOUS),
    "status": (Kind.READ, Kind.READ_FAILED, Kind.JOBS_CONFLICT),
    "cancel": (Kind.CANCEL_TAKEN, Kind.CANCEL_REFUSED, Kind.CANCEL_AMBIGUOUS, Kind.NOT_SENT),
    "lookup": (Kind.JOB_KNOWN, Kind.JOB_NOT_FOUND, Kind.JOBS_CONFLICT, Kind.READ_FAILED),
    "list": (Kind.JOB_KNOWN, Kind.JOB_NOT_FOUND, Kind.JOBS_CONFLICT, Kind.READ_FAILED),
    "file": (Kind.COLLECTED, Kind.RESULT_INVALID, Kind.RESULT_GONE, Kind.COLLECT_FAILED),
}
_DECIDES: Final = {
    "create": "create.accepted, create.rejected, create.not_executed, create.codes and create.job_id",
    "status": "status.ok, status.not_found, status.state and status.job_id",
    "cancel": "cancel.accepted, cancel.refused and cancel.not_executed",
    "lookup": "recovery.items, recovery.match, recovery.equals, recovery.job_id and recovery.not_found",
    "list": "recovery.items, recovery.match, recovery.equals, recovery.job_id and recovery.next",
    "file": "the status and the file's media_type",
}
_PLACES: Final = {
    "reading": "status.state, status.readings and status.outcome",
    "state": "status.state and status.outcome",
    "code": "create.error and status.error",
    "progress": "status.progress and status.progress_scale",
    "files": "result.readings, result.values and result.files",
    "job": "create.job_id and recovery.job_id",
    "remembered": "create.remember",
}
"""The keys of the contract that decide what an answer means: what a fault of a sample points to."""

_NOW: Final = 1_790_000_000 * SECOND  # any moment: answers are judged alike at all of them
_NO_ORIGIN: Final = "https://provider.invalid"


def answer_faults(contract: Contract) -> Iterator[tuple[str, str]]:
    """Yield (sample, fault) for every sample answer that cannot be read or means something else than it says."""
    for sample in contract.samples:
        if "kind" in sample:
            fault = _unreadable(sample, contract)
            faults = [fault] if fault else _differences(sample, contract.of(sample.get("action", "")).with_params(_params(sample)))
            yield from ((str(sample["name"]), text) for text in faults)


def _unreadable(sample: Mapping[str, Any], contract: Contract) -> str:
    for key, value in sample.items():
        if key not in ANSWER_KEYS:
            near = get_close_matches(key, ANSWER_KEYS, n=1, cutoff=0.6)
            return f"{key} is no key of a sample answer; " + (f"did you mean {near[0]}?" if near else "known are " + ", ".join(ANSWER_KEYS))
        if not isinstance(value, ANSWER_KEYS[key]) or isinstance(value, bool):
            return f"{key} must be {_WANTED.get(ANSWER_KEYS[key], 'a number')}"  # type: ignore[arg-type] # the one tuple is of numbers
    kind = sample["kind"]
    if kind not in KINDS:
        return f"kind {str(kind)[:60]!r} is not allowed; use one of {', '.join(KINDS)} (a delivery has none)"
    if "status" not in sample:
        return "status is missing: the HTTP status of the answer"
    for key, words in (("reading", [item.value for item in Reading]), ("evidence", _EVIDENCE[kind])):
        if sample.get(key, words[0]) not in words:
            return f"{key} {sample[key][:60]!r} is not allowed here; use one of {', '.join(words)}"
    action = sample.get("action", "")
    if contract.actions and action not in contract.actions:
        return f"action must be one of {', '.join(contract.actions)}: which one's answer it is"
    contract = contract.of(action)
    sections = {"create": contract.create, "status": contract.status, "cancel": contract.cancel, "file": contract.result}
    section = sections.get(kind, kind in contract.recovery.strategies)
    roles = [file.role for file in contract.result.files] if kind == "file" and contract.result is not None else []
    if roles and sample.get("role", roles[0]) not in roles:
        return f"role {sample['role'][:60]!r} is none of the result's files; use one of {', '.join(roles)}"
    return "" if section else f"the contract has no {kind}: write its section, or leave the sample out"


def _differences(sample: Mapping[str, Any], contract: Contract) -> list[str]:
    operation = _asked(sample, contract)
    headers = tuple((str(name).lower(), str(value)) for name, value in sample.get("headers", {}).items())
    outcome = AnsweredOutcome(status=sample["status"], headers=headers, body=sample.get("body", "").encode())
    try:
        evidence = _evidence(sample, outcome, operation, contract)
    except UnbuildableError as error:
        return [f"its request cannot be built: {error}"]
    wanted = sample.get("evidence", Kind.READ.value)
    if evidence is None or evidence.kind.value != wanted:
        came = evidence.kind.value if evidence is not None else "a page with more to come"
        return [f"expected the evidence {wanted}, but it is {came}; {_DECIDES[sample['kind']]} decide"]
    found: dict[str, Any] = {"code": getattr(evidence, "code", None), "job": getattr(evidence, "remote_job_id", None)}
    facts = evidence.facts if isinstance(evidence, Read) else evidence.status if isinstance(evidence, JobKnown) else None
    if facts is not None:
        found |= {"reading": facts.reading.value, "state": facts.remote_state, "code": facts.error_code, "progress": facts.progress}
    if isinstance(evidence, JobKnown):
        found["remembered"] = dict(evidence.remembered)
    if "files" in sample:
        found["files"] = _files(outcome, operation, contract)
    compared = ["reading", "state", "code", "progress", "files", *(["job", "remembered"] if isinstance(evidence, JobKnown) else [])]
    return [
        f"expected {key} {sample[key]!r}, but found {found.get(key)!r}; {_PLACES.get(key, _DECIDES[sample['kind']])} decide"
        for key in compared
        if key in sample and sample[key] != found.get(key)
    ]


def _evidence(sample: Mapping[str, Any], outcome: AnsweredOutcome, operation: Operation, contract: Contract) -> Evidence | None:
    match sample["kind"]:
        case "create":
            return create(outcome, operation, contract, _NOW)
        case "status":
            return status(outcome, operation, contract, _NOW)
        case "cancel":
            return cancel(outcome, operation, contract, _NOW)
        case "lookup":
            return interpret_lookup(outcome, operation, contract, _NOW)
        case "file":
            return _file(sample, outcome, operation, contract)
        case _:
            end = ListWalk.start(operation, contract, credential=None, now=_NOW).step(outcome, _NOW)
            return None if isinstance(end, ListWalk) else end


def _file(sample: Mapping[str, Any], outcome: AnsweredOutcome, operation: Operation, contract: Contract) -> Evidence:
    """Return what an answer to a download says, without what a status answer would have declared of it."""
    assert contract.result is not None, "a sample of a file is readable where there is a result"
    files = contract.result.files
    file = next((file for file in files if file.role == sample.get("role", files[0].role)), files[0])
    wanted = expected(operation, contract, file, AnsweredOutcome(status=200, body=b"{}"))
    request = HttpRequest(method="GET", url=operation.origin + "/")
    refused = download(outcome, FileRequest(file=file, request=request, expected=wanted), operation, _NOW)
    if refused is not None:
        return refused
    digest = hashlib.sha256(outcome.body).hexdigest()
    problem = check_file(wanted, outcome, size=len(outcome.body), sha256=digest, head=outcome.body[:512])
    return Collected(files=()) if problem is None else ResultInvalid(code=problem, files=())


def _files(outcome: AnsweredOutcome, operation: Operation, contract: Contract) -> list[str]:
    if operation.ending is None or not has_result(contract, operation.ending, outcome):
        return []
    files = collect_requests(operation, contract, outcome, credential=None)
    return [file.request.url for file in files] if isinstance(files, tuple) else [f"({files.kind.value})"]


def _params(sample: Mapping[str, Any]) -> dict[str, str]:
    return {str(name): str(value) for name, value in sample.get("params", {}).items()}


def _asked(sample: Mapping[str, Any], contract: Contract) -> Operation:
    return Operation(
        id=sample.get("operation", "op_1"),
        owner="sample",
        subject="sample",
        provider=contract.name,
        contract_digest=contract.digest,
        origin=contract.origin or _NO_ORIGIN,
        action=sample.get("action", next(iter(contract.kinds()), "create")),
        mode=Mode.SEND,
        idempotency_token="tok_sample",  # noqa: S106 - no secret: what stands at {token} while a sample is judged
        trace_id="0" * 32,
        request_fingerprint="sha256:0",
        created_at=_NOW - 3_600 * SECOND,
        create_seconds=contract.deadlines.create_seconds,
        result_seconds=contract.deadlines.result_seconds,
        cancel_seconds=contract.deadlines.cancel_seconds,
        collect_seconds=contract.deadlines.collect_seconds,
        request=sample.get("request", "{}").encode(),
        remembered={} if sample["kind"] == "create" else {name: str(value) for name, value in sample.get("remembered", {}).items()},
        state=State.OBSERVING,
        remote_job_id=sample.get("job"),
        ending=Reading(sample["reading"]) if "reading" in sample else None,
    )


def notes(contract: Contract) -> list[str]:
    """Return what the contract leaves out and what follows from it: no faults, but worth a line before it is relied on."""
    found: list[str] = []
    if not contract.signatures:
        found.append("no [signature]: deliveries are refused, jobs are known by reads alone")
    elif not contract.kinds():
        found.append("receive-only, it has no [status]: deliveries are verified and recorded, operations are refused")
    for action, kind in contract.kinds().items():
        found += [
            f"{action}: {note}" if contract.actions else note
            for note in (
                *_job_notes(kind, echoed=contract.event.body_signed and bool(contract.event.client_reference)),
                *_unshown(contract, action, kind),
            )
        ]
    if not contract.samples:
        found.append("no [[samples]]: nothing has been proven")
    return found


def _unshown(whole: Contract, action: str, contract: Contract) -> Iterator[str]:
    """Yield a note about words that no sample shows: what they mean has not been proven."""
    rule = contract.status
    mine = [sample for sample in whole.samples if sample.get("kind") == "status" and sample.get("action", action) == action]
    if rule is None or not mine or any(_unreadable(sample, whole) for sample in mine):
        return
    shown = set()
    for sample in mine:
        headers = tuple((str(name).lower(), str(value)) for name, value in sample.get("headers", {}).items())
        outcome = AnsweredOutcome(status=sample["status"], headers=headers, body=sample.get("body", "").encode())
        read = status(outcome, _asked(sample, contract), contract, _NOW)
        shown |= {read.facts.remote_state, read.facts.remote_state.partition("/")[0]} if isinstance(read, Read) else set()
    words = [*rule.readings, *(word for item in rule.outcome for word in item.words)]
    missing = [word for word in dict.fromkeys(words) if word not in shown]
    if missing:
        yield f"no sample of {', '.join(missing)}: write one for every word"


def _job_notes(contract: Contract, *, echoed: bool) -> list[str]:
    found: list[str] = []
    if contract.create is None:
        found.append("no [create]: jobs can only be adopted")
    elif not contract.recovery.strategies:
        hope = "a delivery with our reference finds the job, or else " if echoed else ""
        found.append(f"no [recovery]: after a lost answer to a create {hope}a person is asked")
    elif not contract.recovery.proves_absence:
        found.append("recovery.proves_absence is false: what a lookup does not find is never sent again without a person")
    if contract.create is not None and contract.cancel is None:
        found.append("no [cancel]: jobs cannot be stopped")
    if contract.status is not None and contract.status.url and not contract.status.path:
        found.append("status.url without a path: a job whose create answer we have not seen cannot be read")
    return found
