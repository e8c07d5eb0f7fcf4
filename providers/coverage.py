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
_MESSAGES: Final = ("hmac", "hash", "asym")


def covers_body(scheme: SignatureScheme) -> bool:
    """Say whether the whole body is bound by the signature, in every form that the scheme accepts."""
    options = scheme.options
    match scheme.primitive:
        case "hmac" | "hash" | "asym":
            return "body_digest" in options or all(_binds_body(tokens) for tokens in _tokens(scheme))
        case "jwt":
            return "detached" in options or "body_hash" in options.get("claims", {})
        case "httpsig":
            return "content-digest" in [str(name).lower() for name in options.get("covers", {}).get("components", ())]
        case _:
            return False


def covers_place(scheme: SignatureScheme, place: str) -> bool:
    """Say whether the value at `place` (`header:`, `query:` or `body:`) is bound by the signature."""
    kind, _, name = place.partition(":")
    if kind == "body" and covers_body(scheme):
        return True
    if scheme.primitive not in _MESSAGES:
        return False
    if kind == "body":
        # A plain path in the body may be signed by name.
        return all(f"json:{name}" in tokens for tokens in _tokens(scheme))
    wanted = f"{kind}:{name}".lower()
    return all(any(token.lower() == wanted for token in tokens) or (kind == "query" and bool(tokens & _URL)) for tokens in _tokens(scheme))


def covers_event(scheme: SignatureScheme, event: EventMap) -> bool:
    """Say whether everything that the event map takes from the body is bound by the signature."""
    if covers_body(scheme):
        return True
    places = (event.id, event.type, event.job_id, event.client_reference, event.state, event.time)
    used = [place for place in places if place.startswith("body:")]
    return bool(used) and not event.each and all(covers_place(scheme, place) for place in used)


def check_coverage(event: EventMap, schemes: Sequence[SignatureScheme], faults: Faults) -> None:
    """Add a fault where the contract claims more than its schemes sign."""
    for scheme in schemes if event.body_signed else ():
        if not covers_event(scheme, event):
            faults.add(
                ("event", "body_signed"),
                f"must be false: the scheme {scheme.id} does not sign the body, so a delivery is only a hint to read",
            )
            return
        if event.id and event.id_signed and not covers_place(scheme, event.id):
            faults.add(
                ("event", "id_signed"),
                f"must be false: the scheme {scheme.id} does not sign {event.id}, so one genuine body could come under many ids",
            )
            return


def _tokens(scheme: SignatureScheme) -> list[frozenset[str]]:
    options = scheme.options
    forms = [options["segments"]] if "segments" in options else list(options["choice"]["of"].values()) if "choice" in options else []
    if forms:
        # A segment without its value is dropped: only what is always there is bound.
        return [compile_segments([item for item in form if item[1] is None]).tokens for form in forms]
    return [compile_message(text).tokens for text in scheme.messages] or [frozenset()]


def _binds_body(tokens: frozenset[str]) -> bool:
    return bool(tokens & _BODY) or any(token.startswith("form:") for token in tokens)
