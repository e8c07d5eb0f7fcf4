"""What a provider's documents look like: the answers in a contract's own samples, filled in for one job.

A sample is a true answer of the provider with a job id, our operation id and the provider's origin in it. Where one of
these stands in the sample, the job's own stands in the answer: the text around it is the provider's and stays as it is.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import jmespath

from schemas.contract import Contract, ResultFile
from schemas.http import AnsweredOutcome
from schemas.states import Reading

OPERATION: Final = "op_1"
"""Our operation id in a sample that names none."""
TOKEN: Final = "tok_sample"  # noqa: S105 - no secret: what stands at {token} while a sample is judged
"""Our idempotency token in every sample."""

_JSON: Final = (("content-type", "application/json"),)
_ALIKE: Final = {Reading.QUEUED: Reading.RUNNING, Reading.RUNNING: Reading.QUEUED}
Sample = Mapping[str, Any]


class UnspokenError(LookupError):
    """The contract has no sample of an answer that is needed; the message says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """What stands in a document: the job's id, our operation id and token as they came with its create."""

    job: str
    operation: str = ""
    token: str = ""
    number: int = 0  # of the job in its account


class Documents:
    """The documents of one kind of operation. `base` takes the place of the provider's origins where it is reached elsewhere."""

    def __init__(self, contract: Contract, action: str = "", base: str = "") -> None:
        samples, contract = contract.samples, contract.of(action)
        self._contract = contract
        homes = [contract.origin, *(contract.result.origins if contract.result else ())]
        self._homes = [(home, base) for home in homes if home and base]
        self._answers = [sample for sample in samples if "kind" in sample and sample.get("action", action) == action]

    def job_id(self, named: Named) -> str:
        """Return a new job's id: the sample's with the job's number after it, or the one that our create chose."""
        sample = self._first(lambda sample: sample["kind"] == "create" and sample.get("evidence") == "job_known", "an accepted create")
        text = str(sample["job"])
        ours = text.replace(str(sample.get("operation", OPERATION)), named.operation).replace(TOKEN, named.token)
        return ours if ours != text else f"{text}{named.number:05d}"

    def create(self, named: Named) -> AnsweredOutcome:
        """Return the answer to an accepted create."""
        known = [s for s in self._of("create") if s.get("evidence") == "job_known"]
        # A provider that answers with a state says at first that the job is not over.
        open_first = sorted(known, key=lambda sample: sample.get("reading", "queued") not in {"queued", "running"})
        if not open_first:
            raise UnspokenError(f"{self._contract.name}: no sample of an accepted create")
        return self._said(open_first[0], named)

    def refused(self, named: Named) -> AnsweredOutcome:
        """Return a definite refusal of a create."""
        return self._said(
            self._first(lambda s: s["kind"] == "create" and s.get("evidence") == "create_rejected", "a refused create"), named
        )

    def repeated(self, named: Named) -> AnsweredOutcome:
        """Return the answer to a create of what there is already, by a provider that says so with 409."""
        return self._said(self._first(lambda s: s["kind"] == "create" and s["status"] == 409, "a repeated create (409)"), named)  # noqa: PLR2004

    def words(self, reading: Reading, *, cancelling: bool = False) -> Sequence[Sample]:
        """Return the samples of a status with this reading; those about a cancel only while one is under way, and first then."""
        found = [s for s in self._of("status") if s.get("evidence", "read") == "read" and s.get("reading") == reading]
        about = [s for s in found if "cancel" in s["name"]]
        if reading in {Reading.QUEUED, Reading.RUNNING}:
            found = about if cancelling and about else [s for s in found if s not in about]
        return found or (self.words(_ALIKE[reading]) if reading in _ALIKE and not cancelling else found)

    def status(self, named: Named, reading: Reading, *, cancelling: bool = False, part: float = 0.0) -> AnsweredOutcome:
        """Return the status of a job. `part`, 0 to below 1: how much of this reading is over, where it has several words."""
        words = self.words(reading, cancelling=cancelling) or self.words(reading)
        if words:
            return self._declared(self._said(words[int(part * len(words))], named))
        if reading is Reading.ABSENT and self._contract.status is not None and self._contract.status.not_found:
            return AnsweredOutcome(status=self._contract.status.not_found[0], headers=_JSON, body=b"{}")
        raise UnspokenError(f"{self._contract.name}: no sample of a status that means {reading}")

    def cancel(self, named: Named, *, taken: bool) -> AnsweredOutcome:
        """Return the answer to a cancel."""
        wanted = "cancel_taken" if taken else "cancel_refused"
        return self._said(self._first(lambda s: s["kind"] == "cancel" and s.get("evidence") == wanted, wanted), named)

    def found(self, jobs: Sequence[Named], *, lookup: bool) -> AnsweredOutcome:
        """Return the answer to a lookup, or a list of these jobs, newest first."""
        kind, rule = "lookup" if lookup else "list", self._contract.recovery
        if lookup and not jobs:
            return self._said(
                self._first(lambda s: s["kind"] == kind and s.get("evidence") == "job_not_found", "a lookup in vain"), Named(job="")
            )
        sample = self._first(lambda s: s["kind"] == kind and s.get("evidence") == "job_known", f"a {kind} with our job")
        whole = self._said(sample, jobs[-1] if jobs else Named(job=""))
        if not rule.items:
            return whole
        document = json.loads(sample["body"])
        items = _at(rule.items, document)
        if not isinstance(items, list):
            raise UnspokenError(f"{self._contract.name}: the {kind} sample has no list at {rule.items}")
        ours = next(item for item in items if str(_at(f"body:{rule.job_id}", item)) == str(sample["job"]))
        envelope = json.loads(whole.body)
        shown = [json.loads(self._filled(json.dumps(ours), sample, named)) for named in jobs]
        _at(rule.items, envelope)[:] = shown
        return AnsweredOutcome(status=whole.status, headers=whole.headers, body=json.dumps(envelope, separators=(",", ":")).encode())

    def named_addresses(self, named: Named) -> Mapping[str, str]:
        """Return the addresses that an accepted create names, by the names under which the contract remembers them."""
        rule = self._contract.create
        if rule is None or not rule.remember:
            return {}
        answer = self.create(named)
        document = json.loads(answer.body or b"null")
        found: dict[str, str] = {}
        for name, place in rule.remember.items():
            kind, _, where = place.partition(":")
            value = _at(place, document) if kind == "body" else dict(answer.headers).get(where.lower())
            if isinstance(value, str):
                found[name] = value
        return found

    def file(self, file: ResultFile) -> AnsweredOutcome:
        """Return what the provider serves as this file."""
        for sample in self._of("file"):
            if sample.get("evidence") == "collected" and sample.get("role", "output") == file.role:
                return self._said(sample, Named(job=""))
        return _made_up(file)

    def files(self, named: Named) -> Mapping[str, ResultFile]:
        """Return the addresses of one job's result files, and what is there."""
        rule = self._contract.result
        if rule is None:
            return {}
        found: dict[str, ResultFile] = {}
        for sample in self._of("status"):
            for number, address in enumerate(sample.get("files", ())):
                found.setdefault(self._filled(address, sample, named), rule.files[min(number, len(rule.files) - 1)])
        return found

    # --- how a sample becomes an answer

    def _of(self, kind: str) -> list[Sample]:
        return [sample for sample in self._answers if sample["kind"] == kind]

    def _first(self, fits: Callable[[Sample], bool], what: str) -> Sample:
        for sample in self._answers:
            if fits(sample):
                return sample
        raise UnspokenError(f"{self._contract.name}: no sample of {what}")

    def _said(self, sample: Sample, named: Named) -> AnsweredOutcome:
        headers = [(str(name).lower(), self._filled(str(value), sample, named)) for name, value in sample.get("headers", {}).items()]
        if not any(name == "content-type" for name, _ in headers):
            headers.append(_JSON[0])
        body = self._filled(sample.get("body", ""), sample, named).encode()
        return AnsweredOutcome(status=sample["status"], headers=tuple(headers), body=body)

    def _filled(self, text: str, sample: Sample, named: Named) -> str:
        pairs = [(str(sample.get("job", "")), named.job), (str(sample.get("operation", OPERATION)), named.operation), (TOKEN, named.token)]
        # The job's id first: one that our create chose holds the operation's or the token.
        for old, new in (*((old, new) for old, new in pairs if old), *self._homes, *self._files_of(sample, named)):
            text = text.replace(old, new)
        return text

    def _files_of(self, sample: Sample, named: Named) -> list[tuple[str, str]]:
        """Return the ids of result files in a sample, and those of this job: every job has its own."""
        rule = self._contract.result
        if rule is None or not rule.values or sample["kind"] != "status" or not sample.get("files"):
            return []
        document = json.loads(sample["body"])
        found = {str(value) for place in rule.values.values() if isinstance(value := _at(place, document), str)}
        return [(value, f"{value}{named.number:05d}") for value in found if value != str(sample.get("job"))]

    def _declared(self, answer: AnsweredOutcome) -> AnsweredOutcome:
        """Return a status answer whose declared sizes and digests are those of the files that are served."""
        rule = self._contract.result
        if rule is None or not any(file.sha256 or file.bytes for file in rule.files):
            return answer
        document = json.loads(answer.body)
        for file in rule.files:
            content = self.file(file).body
            _declare(document, file.sha256, hashlib.sha256(content).hexdigest())
            _declare(document, file.bytes, len(content))
        return AnsweredOutcome(status=answer.status, headers=answer.headers, body=json.dumps(document, separators=(",", ":")).encode())


def _made_up(file: ResultFile) -> AnsweredOutcome:
    """Return a small file of the declared type, where the contract shows none."""
    kind = file.media_type.partition(";")[0].strip().lower()
    headers = (("content-type", kind or "application/octet-stream"),)
    body = b"id,value\nitem-0,1\nitem-1,2\n" if kind == "text/csv" else b'{"made_by":"simulator"}\n'
    return AnsweredOutcome(status=200, headers=headers, body=body)


def _at(place: str, document: Any) -> Any:
    return jmespath.search(place.removeprefix("body:"), document)


def _declare(document: Any, place: str, value: object) -> None:
    *parents, last = place.removeprefix("body:").split(".") if place else [""]
    for name in parents:
        document = document.get(name) if isinstance(document, dict) else None
    if isinstance(document, dict) and last and document.get(last) is not None:
        document[last] = value
