"""The way of a callback: bounded read, verification, mapping, commit, and only then `2xx` (ARCHITECTURE, The way of a callback)."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any, Final

import structlog
from starlette.types import Receive, Scope, Send

from gateway.bounds import CallerGoneError, read_body, refuse_encoding, send_problem
from gateway.conflicts import Conflicts
from gateway.gate import Endpoint, Gate
from gateway.handshaking import revoked, shake
from gateway.problems import ProblemError
from gateway.published import PublishedKeys
from gateway.quarantine import Shelf
from ledger.errors import LedgerError
from providers import handshakes, mapping, restored
from schemas.commands import Ingest, Ingested
from schemas.delivery import Delivery, Event, HandshakeAnswer, InboundRequest, Reason, Refused, Verified
from schemas.operation import Micros

PREFIX: Final = "/webhooks/"
_COMMIT_SECONDS: Final = 5.0  # providers give up after about 10 s; later than this the receipt counts as not stored (B164)
_RETRY: Final = (("Retry-After", "5"),)
_Answer = tuple[int, bytes, list[tuple[bytes, bytes]]]  # status, body, headers
_log = structlog.get_logger("gateway")


class Receiver:
    """The plain ASGI endpoint of `POST /webhooks/{provider}`. Any bytes in give an answer, never an exception (B1)."""

    __slots__ = ("_conflicts", "_gate", "_keys", "shelf")

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._keys = PublishedKeys(gate)
        self._conflicts = Conflicts(gate)
        self.shelf = Shelf(gate)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one delivery."""
        read = False
        name = "unknown"
        try:
            endpoint = self._endpoint(scope)
            name = endpoint.name
            body = await self._body(endpoint, scope, receive)
            read = True
            status, content, headers = await self._take(endpoint, scope, body)
        except CallerGoneError:
            self._gate.count("receiver.gone", {"provider": name})
            return
        except ProblemError as problem:
            reason = str(problem.extra.get("reason", problem.code))
            self._gate.count("receiver.refused", {"provider": name, "reason": reason})
            if (more := self._gate.lines.room("refused", name, self._gate.world.monotonic())) is not None:
                _log.info("receiver.refused", provider=name, reason=reason, **more)
            if problem.code == "delivery_refused":
                self.shelf.refused(name, reason)
            await send_problem(problem, receive, send, drain=not read)
            return
        headers = [*headers, (b"content-length", str(len(content)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    def _endpoint(self, scope: Scope) -> Endpoint:
        endpoint = self._gate.endpoints.get(scope["path"][len(PREFIX) :])
        if endpoint is None:
            raise ProblemError("unknown_endpoint")
        if scope["method"] != "POST" and scope["method"] not in handshakes.methods(endpoint.contract):
            raise _only_post()
        return endpoint

    async def _body(self, endpoint: Endpoint, scope: Scope, receive: Receive) -> bytes:
        refuse_encoding(scope["headers"])
        if endpoint.verifier is None and not any(rule.when == "before" for rule in endpoint.contract.handshakes):
            raise _no_secret()
        limits, web = endpoint.contract.limits, self._gate.settings.web
        seconds = min(limits.delivery_seconds, web.body_seconds)
        return await read_body(scope, receive, limit=limits.delivery_bytes, seconds=seconds, bodies=self._gate.bodies)

    async def _take(self, endpoint: Endpoint, scope: Scope, body: bytes) -> _Answer:
        """Return the answer to a complete request: a handshake before or after the signature, or a delivery."""
        now = self._gate.world.now()
        request = InboundRequest(
            method=scope["method"],
            path=scope.get("raw_path") or scope["path"].encode(),
            query=scope["query_string"],
            headers=tuple(scope["headers"]),
            body=body,
            public_url=self._gate.settings.public_url.rstrip("/") + PREFIX + endpoint.name,
        )
        if (shaken := await shake(self._gate, endpoint, request, None, now)) is not None:
            return _shaken(shaken)
        if request.method not in {"POST", *handshakes.methods(endpoint.contract, "after")}:
            raise _only_post()
        if endpoint.verifier is None:
            raise _no_secret()
        verdict = endpoint.verifier.verify(request, now, endpoint.keys)
        verdict = await self._keys.settle(endpoint, request, verdict, now)
        verdict = handshakes.distrusted(endpoint.contract, verdict)
        if (shaken := await shake(self._gate, endpoint, request, verdict, now)) is not None:
            if isinstance(verdict, Refused):  # a probe: it wants to see a wrong signature refused
                self._gate.count("receiver.refused", {"provider": endpoint.name, "reason": str(verdict.reason)})
            return _shaken(shaken)
        if request.method != "POST":
            raise _only_post()
        match verdict:
            case Refused(reason=Reason.NO_SECRET):
                raise _no_secret()
            case Refused(genuine=False):
                self.shelf.take(endpoint.name, request, verdict, now)
                raise _refusal(verdict)
            case Refused():
                events = mapping.events(endpoint.contract, request, verdict.signed)
                await self._store(self._deliveries(endpoint, request, verdict, events, now), now)
                raise _refusal(verdict)
            case Verified():
                self.shelf.accepted(endpoint.name)
                events = mapping.events(endpoint.contract, request, verdict.signed)
                deliveries = self._deliveries(endpoint, request, verdict, events, now)
                return self._answer(endpoint, deliveries, await self._store(deliveries, now))

    def _deliveries(
        self, endpoint: Endpoint, request: InboundRequest, verdict: Verified | Refused, events: Sequence[Event], now: Micros
    ) -> list[Delivery]:
        deliveries: list[Delivery] = []
        for event in events:
            parent = deliveries[0].id if deliveries else ""
            deliveries.append(
                Delivery(
                    id=self._gate.world.new_id("dlv_"),
                    provider=endpoint.name,
                    received_at=now,
                    event=event,
                    secret_id=verdict.secret_id,
                    scheme_id=verdict.scheme_id,
                    body=b"" if parent else request.body,
                    headers=() if parent else restored.headers_of(request),
                    parent=parent,
                    standing="stale" if isinstance(verdict, Refused) else "fresh",
                )
            )
        return deliveries

    async def _store(self, deliveries: Sequence[Delivery], now: Micros) -> list[Ingested]:
        """Return what became of each, all committed. Raises ProblemError 503, never another status (B4)."""
        try:
            async with asyncio.timeout(_COMMIT_SECONDS):
                writes = [self._gate.ledger.write(Ingest(delivery=item, now=now)) for item in deliveries]
                stored = [await writes[0]] if len(writes) == 1 else await asyncio.gather(*writes)
        except (LedgerError, TimeoutError) as error:
            # A cancelled write may have committed: the repeat that we ask for is then a duplicate, which is harmless.
            _log.warning("receiver.unstored", error=type(error).__name__)
            raise ProblemError("unavailable", "the delivery could not be stored; send it again", headers=_RETRY) from error
        if any(item.status == "revoked" for item in stored):
            raise revoked()
        for delivery, item in zip(deliveries, stored, strict=True):
            if item.status == "conflict":
                self._conflicts.noted(delivery.provider)
        return list(stored)

    def _answer(self, endpoint: Endpoint, deliveries: Sequence[Delivery], stored: Sequence[Ingested]) -> _Answer:
        for item in stored:
            self._gate.count("receiver.stored", {"provider": endpoint.name, "status": item.status})
        if deliveries and not any(delivery.event.readable for delivery in deliveries):
            raise ProblemError("unreadable_delivery", deliveries[0].event.problem, extra={"delivery": stored[0].delivery_id})
        retry = endpoint.contract.retry
        if retry.success_body is not None:
            return retry.success_status, retry.success_body.encode(), [(b"content-type", b"text/plain; charset=utf-8")]
        if not endpoint.contract.event.each and len(stored) == 1:
            document: dict[str, Any] = {"status": stored[0].status, "delivery": stored[0].delivery_id}
        else:
            statuses = [item.status for item in stored]
            overall = "accepted" if "accepted" in statuses else (statuses[0] if statuses else "ignored")
            document = {"status": overall, "deliveries": [{"status": item.status, "delivery": item.delivery_id} for item in stored]}
        return retry.success_status, json.dumps(document).encode(), [(b"content-type", b"application/json")]


def _shaken(answer: HandshakeAnswer) -> _Answer:
    return answer.status, answer.body, [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers]


def _only_post() -> ProblemError:
    return ProblemError("method_not_allowed", "deliveries come by POST", headers=(("Allow", "POST"),))


def _no_secret() -> ProblemError:
    return ProblemError("no_usable_secret", "the operator must configure a secret for this endpoint", headers=(("Retry-After", "60"),))


def _refusal(verdict: Refused) -> ProblemError:
    return ProblemError("delivery_refused", verdict.detail, extra={"reason": str(verdict.reason)})
