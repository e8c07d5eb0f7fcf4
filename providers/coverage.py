"""Coverage: whether a scheme's signature binds what the receiver uses (catalogue, section 4).

A contract whose signature leaves the body or the event id free must say so (`body_signed`, `id_signed`): otherwise it is
refused when it is loaded, for its deliveries would be believed more than they can prove.
"""

from collections.abc import Sequence
from typing import Final

from providers.contract_faults import Faults
from providers.verification.messages import compile_message, compile_segments
from schemas.contract import EventMap, SignatureScheme

_BODY: Final = frozenset({"body", "sha256_body_hex", "sha256_body_raw", "json_string_body", "sorted_form"})
_URL: Final = frozenset({"url", "url_noport", "url_port", "path"})


def covers_body(scheme: SignatureScheme) -> bool:
    """Say whether every byte of the body that matters is bound by the signature, in every form that the scheme accepts."""
    match scheme.primitive:
        case "hmac" | "hash" | "asym":
            # The notification service of one cloud signs the fields of its envelope, the message among them.
            named = scheme.location is not None and scheme.location.place == "sns"
            return named or "body_digest" in scheme.options or all(_binds_body(tokens) for tokens in _tokens(scheme))
        case "jwt":
            claims = scheme.options.get("claims")
            return "detached" in scheme.options or (claims is not None and "body_hash" in claims)
        case "httpsig":
            return "content-digest" in str(scheme.options.get("components", ())).lower()
        case _:
            return False


def covers_place(scheme: SignatureScheme, place: str) -> bool:
    """Say whether the value at `place` (`header:`, `query:` or `body:`) is bound by the signature."""
    kind, _, name = place.partition(":")
    if kind == "body":
        return covers_body(scheme)
    if scheme.primitive not in {"hmac", "hash", "asym"}:
        return False
    wanted = f"{kind}:{name}".lower()
    return all(any(token.lower() == wanted for token in tokens) or (kind == "query" and bool(tokens & _URL)) for tokens in _tokens(scheme))


def check_coverage(event: EventMap, schemes: Sequence[SignatureScheme], faults: Faults) -> None:
    """Add a fault where the contract claims more than its schemes sign."""
    for scheme in schemes:
        if event.body_signed and not covers_body(scheme):
            faults.add(
                ("event", "body_signed"),
                f"must be false: the scheme {scheme.id} does not sign the body, so a delivery is only a hint to read",
            )
            return
        if event.body_signed and event.id and event.id_signed and not covers_place(scheme, event.id):
            faults.add(
                ("event", "id_signed"),
                f"must be false: the scheme {scheme.id} does not sign {event.id}, so one genuine body could come under many ids",
            )
            return


def _tokens(scheme: SignatureScheme) -> list[frozenset[str]]:
    segments = scheme.options.get("segments")
    if segments:
        # A segment without its value is dropped: only what is always there is bound.
        return [compile_segments([item for item in segments if item[1] is None]).tokens]
    return [compile_message(text).tokens for text in scheme.messages] or [frozenset()]


def _binds_body(tokens: frozenset[str]) -> bool:
    return bool(tokens & _BODY) or any(token.startswith("form:") for token in tokens)
