"""Stored deliveries that an owner wants applied again."""

from gateway import fields
from gateway.call import Answer, Call
from gateway.operations import identity
from gateway.problems import ProblemError
from gateway.receiver import PREFIX
from ledger import inbox
from providers import restored
from schemas.commands import Replay, Replayed


async def replay(call: Call) -> Answer:
    """POST /v1/deliveries/{id}/replay: map the stored bytes anew, match again, and owe a read."""
    if call.body.strip() not in {b"", b"{}"}:
        raise fields.invalid(("body", "a replay takes none"))
    gate, owner = call.gate, call.principal.owner
    row = await gate.ledger.read(inbox.stored, identity(call), owner)
    if row is None:
        raise _unknown()
    endpoint = gate.endpoints.get(row["provider"])
    if endpoint is None or endpoint.verifier is None:
        raise ProblemError("not_supported", "the provider is not configured, or has no usable secret")
    request = restored.delivery_request(row, gate.settings.public_url.rstrip("/") + PREFIX + endpoint.name)
    review = restored.review(endpoint.verifier, endpoint.contract, request, row["received_at"], endpoint.keys)
    replayed: Replayed = await gate.ledger.write(
        Replay(
            delivery_id=row["id"],
            owner=owner,
            actor=call.principal.subject,
            event=restored.element(review.events, row["element"]),
            verified=review.right,
            now=gate.world.now(),
            chance=gate.world.chance(),
        )
    )
    gate.count("deliveries.replayed", {"provider": endpoint.name, "outcome": replayed.outcome})
    if replayed.outcome == "not_found":
        raise _unknown()
    content = {"delivery": row["id"], "status": replayed.outcome, "operation": replayed.operation_id, "verified": review.right}
    return Answer(status=202, content=content)


def _unknown() -> ProblemError:
    """Return the one answer for a delivery that does not exist and for one that is attached to nothing of this owner (G4)."""
    return ProblemError("not_found", "there is no delivery with this id for this key")
