"""Results: which files a finished job leaves, how they are asked for, and whether what came is what was agreed (F1, F2).

A credential goes to the pinned origin only. A URL that a provider names is fetched only from an origin that the contract
or the operator lists, without credential, and (unless the operator listed it) from public addresses over https (B094, B146).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urljoin

from providers.answers import find, read_json
from providers.origins import MAX_URL, UNUSABLE, address, is_any, listed, origin_of
from providers.places import as_id, as_text
from providers.requests import (
    USER_AGENT,
    UnbuildableError,
    UnusableCredentialError,
    auth_header,
    call,
    fields,
    path_of,
    traceparent,
)
from providers.transfers import Expected, FileRequest
from schemas.contract import Contract, ResultFile, ResultRule
from schemas.evidence import CollectFailed, ResultGone
from schemas.http import AnsweredOutcome, HttpRequest
from schemas.operation import Operation
from schemas.states import Errand, Reading

__all__ = ["Expected", "FileRequest", "collect_requests", "expected", "has_result", "total"]

_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """What the downloads are made from: the status answer with its parsed body, and the operator's settings."""

    answer: AnsweredOutcome
    body: Any
    rule: ResultRule
    credential: str | None = field(repr=False)
    result_origins: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Link:
    url: str
    own: bool  # on the pinned origin
    private: bool  # the operator wrote its origin: private addresses and http are allowed


def has_result(contract: Contract, reading: Reading, answer: AnsweredOutcome) -> bool:
    """Say whether this ending has something to fetch.

    A success that the contract gives a result always has: a file that is missing then is a fault which collecting names,
    never a success with nothing (B097). Other endings have what their answer names (partial results, B087).
    """
    if contract.result is None or reading not in contract.result.readings:
        return contract.result is None and reading is Reading.SUCCEEDED
    if reading is Reading.SUCCEEDED and any(not file.optional for file in contract.result.files):
        return True
    body = read_json(answer).value
    return any(_named(file, contract.result, answer, body) for file in contract.result.files)


def collect_requests(
    operation: Operation,
    contract: Contract,
    status_answer: AnsweredOutcome,
    *,
    credential: str | None,
    result_origins: Sequence[str] = (),
) -> tuple[FileRequest, ...] | ResultGone | CollectFailed:
    """Return the downloads of a finished job from a fresh status answer, in the order of the contract's files.

    After a success every file that is not optional must be named; after other endings what is there is fetched.
    `result_origins` are the operator's. Never raises.
    """
    rule = contract.result
    if rule is None:
        return ResultGone(code="no_result", message="the contract has no result to fetch")
    body = read_json(status_answer).value
    source = _Source(answer=status_answer, body=body, rule=rule, credential=credential, result_origins=result_origins)
    requests: list[FileRequest] = []
    for file in rule.files:
        if not _named(file, rule, status_answer, body):
            if not file.optional and operation.ending in {None, Reading.SUCCEEDED}:
                return ResultGone(code="result_missing", message=f"the provider's answer names no {file.role} file")
            continue
        try:
            request = _download(operation, contract, file, source)
        except UnusableCredentialError as error:
            return CollectFailed(error=error.code)
        except UnbuildableError as error:
            return ResultGone(code=error.code, message=str(error))
        if isinstance(request, ResultGone):
            return request
        requests.append(FileRequest(file=file, request=request, expected=expected(operation, contract, file, status_answer)))
    return tuple(requests) or ResultGone(code="result_missing", message="the provider's answer names no file")


def expected(operation: Operation, contract: Contract, file: ResultFile, status_answer: AnsweredOutcome) -> Expected:
    """Return what `file` must be: the provider's declared size and checksum, the contract's and the caller's demands.

    The caller's demands concern the main file, the first of the contract.
    """
    body = read_json(status_answer).value
    rule = contract.result
    main = rule is None or not rule.files or file == rule.files[0]
    demand = operation.expect if main else None
    declared_size = find(file.bytes, status_answer, body)
    declared_sum = as_text(find(file.sha256, status_answer, body)).lower().removeprefix("sha256:")
    bounds = [value for value in (rule.max_bytes if rule else None, demand.max_bytes if demand else None) if value is not None]
    sums = (declared_sum if _SHA256.fullmatch(declared_sum) else "", (demand.sha256 or "").lower() if demand else "")
    types = (file.media_type.lower(), (demand.media_type or "").partition(";")[0].strip().lower() if demand else "")
    return Expected(
        media_types=tuple(dict.fromkeys(text for text in types if text)),
        min_bytes=demand.min_bytes if demand else None,
        max_bytes=min(bounds, default=None),
        bytes=declared_size if isinstance(declared_size, int) and not isinstance(declared_size, bool) and declared_size >= 0 else None,
        sha256=tuple(dict.fromkeys(text for text in sums if text)),
    )


def total(operation: Operation, contract: Contract, status_answer: AnsweredOutcome) -> int | None:
    """Return how many items the result must tell of: the provider's own count, else an exact number that the caller gave."""
    rule, expect = contract.result, operation.expect
    said = find(rule.total, status_answer, read_json(status_answer).value) if rule is not None and rule.total else None
    if isinstance(said, int) and not isinstance(said, bool) and said >= 0:
        return said
    return expect.records_min if expect.records_min is not None and expect.records_min == expect.records_max else None


def _named(file: ResultFile, rule: ResultRule, answer: AnsweredOutcome, body: Any) -> bool:
    if file.url:
        return isinstance(link := find(file.url, answer, body), str) and bool(link.strip())
    return bool(file.path) and all(_value(name, rule, answer, body) for name in _values_of(file))


def _values_of(file: ResultFile) -> list[str]:
    return re.findall(r"\{result\.([A-Za-z0-9_-]+)\}", file.path)


def _value(name: str, rule: ResultRule, answer: AnsweredOutcome, body: Any) -> str:
    return as_id(find(rule.values.get(name, ""), answer, body), 512)


def _download(operation: Operation, contract: Contract, file: ResultFile, source: _Source) -> HttpRequest | ResultGone:
    rule = source.rule
    if file.url:
        link = _link(find(file.url, source.answer, source.body), operation, rule, source.result_origins)
        if isinstance(link, ResultGone):
            return link
    else:
        values = fields(operation, contract) | {f"result.{name}": _value(name, rule, source.answer, source.body) for name in rule.values}
        plain = call("GET", path_of(file.path, values), operation, contract, Errand.COLLECT, credential=None)
        link = _Link(url=plain.url, own=True, private=True)
    secret = auth_header(contract, source.credential) if link.own and file.authenticated else ()
    own_trace = ((contract.trace_header, operation.trace_id),) if contract.trace_header and link.own else ()
    return HttpRequest(
        method="GET",
        url=link.url,
        headers=(
            ("Accept", "*/*"),
            ("Accept-Encoding", "identity"),
            ("User-Agent", USER_AGENT),
            ("traceparent", traceparent(operation, Errand.COLLECT)),
            *own_trace,
            *secret,
        ),
        secret_headers=tuple(name for name, _ in secret),
        max_bytes=min(rule.max_bytes, operation.expect.max_bytes or rule.max_bytes),
        connect_seconds=contract.limits.connect_seconds,
        total_seconds=float(max(operation.collect_seconds, 1)),  # the collection clock is the only bound of a long transfer
        allow_private=link.private,
    )


def _link(value: Any, operation: Operation, rule: ResultRule, result_origins: Sequence[str]) -> _Link | ResultGone:
    refused = ResultGone(code="unusable_url", message="the provider's result address cannot be used")
    text = value.strip() if isinstance(value, str) else ""
    if not text or len(text) > MAX_URL or UNUSABLE.search(text):
        return refused
    try:
        found = address(urljoin(operation.origin.rstrip("/") + "/", text))
    except ValueError:
        return refused
    if found is None:
        return refused
    if found.origin == origin_of(operation.origin):
        return _Link(url=found.url, own=True, private=True)
    if (entry := listed(found.origin, result_origins)) is not None:
        # A list entry that stands for many hosts lets the provider choose one: only its domain is the operator's word.
        return _Link(url=found.url, own=False, private=not is_any(entry))
    if found.https and listed(found.origin, rule.origins) is not None:
        return _Link(url=found.url, own=False, private=False)
    return ResultGone(
        code="foreign_origin",
        message="the provider's result lies on an origin that is not listed: add it to `result_origins` of this provider, then retry",
    )
