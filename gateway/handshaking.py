"""Handshakes at the receiver: judged by the contract, noted in the record, and only then answered (B9, B154). Never an event."""

import asyncio
from dataclasses import replace
from typing import Final

import structlog

from gateway.gate import Endpoint, Gate
from gateway.problems import ProblemError
from ledger.errors import LedgerError
from providers import handshakes
from schemas.delivery import HandshakeAnswer, InboundRequest, Reason, Refused, Verdict, Verified
from schemas.operation import Micros
from schemas.receiving import AddSecret, HandshakeNoted, NoteHandshake

_COMMIT_SECONDS: Final = 5.0
_RETRY: Final = (("Retry-After", "5"),)
_log = structlog.get_logger("gateway")


async def shake(gate: Gate, endpoint: Endpoint, request: InboundRequest, verdict: Verdict | None, now: Micros) -> HandshakeAnswer | None:
    """Return the committed answer where the request is a handshake of the contract, else None.

    Raises ProblemError: 503 where it cannot be noted, 401 where the secret that signed it is not valid any more.
    """
    if not endpoint.contract.handshakes or (isinstance(verdict, Refused) and verdict.genuine):
        return None
    answer = handshakes.answer(endpoint.contract, request, verdict, secrets=endpoint.secrets, params=endpoint.params, now=now)
    if answer is None:
        return None
    noted = await _note(gate, _command(gate, endpoint, answer, verdict, now))
    if noted == "revoked":
        raise revoked()
    if noted == "not_captured":
        answer = replace(answer, status=403, accepted=False, reason="a secret is stored: it is never replaced from outside", capture=b"")
    elif answer.capture:
        await gate.refresh()  # the next request is signed with it
    gate.count("receiver.handshakes", {"provider": endpoint.name, "kind": answer.kind, "accepted": str(answer.accepted).lower()})
    if (more := gate.lines.room("handshake", endpoint.name, gate.world.monotonic())) is not None:
        _log.info("receiver.handshake", provider=endpoint.name, kind=answer.kind, accepted=answer.accepted, reason=answer.reason, **more)
    return answer


def revoked() -> ProblemError:
    """Return the answer to what a secret signed that is not valid any more, though this process still knew it (B11)."""
    detail = "the secret that signed it is not valid any more"
    return ProblemError("delivery_refused", detail, extra={"reason": str(Reason.WRONG_SIGNATURE)})


def _command(gate: Gate, endpoint: Endpoint, answer: HandshakeAnswer, verdict: Verdict | None, now: Micros) -> NoteHandshake:
    captured = None
    if answer.capture:
        identity = gate.world.new_id("sec_")
        captured = AddSecret(
            id=identity,
            name=f"{endpoint.name}-captured-{identity[-12:]}",
            provider=endpoint.name,
            purpose="webhook",
            value=answer.capture,
            by=f"provider:{endpoint.name}",
            now=now,
            source="captured",
        )
    return NoteHandshake(
        id=gate.world.new_id("hsk_"),
        provider=endpoint.name,
        answer=answer,
        now=now,
        secret_id=verdict.secret_id if isinstance(verdict, Verified) else "",
        captured=captured,
    )


async def _note(gate: Gate, command: NoteHandshake) -> HandshakeNoted:
    try:
        async with asyncio.timeout(_COMMIT_SECONDS):
            return await gate.ledger.write(command)
    except (LedgerError, TimeoutError) as error:
        _log.warning("receiver.unstored", error=type(error).__name__)
        raise ProblemError("unavailable", "the handshake could not be noted; send it again", headers=_RETRY) from error
