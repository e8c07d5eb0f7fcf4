"""Where the keys of a scheme with published keys come from: a key set by its address, or a certificate that the delivery names.

A source turns a request into the keys that may have signed it, each with the id that is recorded. It never widens what the
contract allows: the address is the contract's, or it has passed the contract's rules.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from providers.verification.algorithms import PublicKey
from providers.verification.certs import allowed_url, compile_rule, signing_key
from providers.verification.facts import Facts, RefusalError, scalar
from providers.verification.jwk import MAX_KID, Jwk
from schemas.contract import SignatureScheme
from schemas.delivery import Reason, WantedKey
from schemas.operation import Micros

KINDS: Final = ("static", "secret", "jwks", "cert_url")
"""`keysource.kind`."""

FETCHED: Final = ("jwks", "cert_url")
"""Kinds whose keys are an argument of each verification, and need no secret."""

Keyed = Sequence[tuple[str, PublicKey]]
Source = Callable[[Facts, Micros, str], Keyed]


def key_urls(scheme: SignatureScheme) -> tuple[str, ...]:
    """Return the addresses of the key sets that a scheme may ask for; none where it asks for certificates or nothing.

    A vector file's scheme without an address has the empty one.
    """
    source = scheme.options.get("keysource") or {}
    if source.get("kind") != "jwks":
        return ()
    named = [str(source["url"])] if "url" in source else []
    return tuple(dict.fromkeys([*named, *(str(url) for url in source.get("jku_allow", ()))])) or ("",)


def jwks_source(source: Mapping[str, Any]) -> Source:
    """Return the keys of the contract's key set: of the id in `kid_header`, or all of them. (facts, now, JWS algorithm) → keys."""
    url, header = str(source.get("url", "")), str(source.get("kid_header", "")).lower().encode()

    def keys(facts: Facts, now: Micros, algorithm: str) -> Keyed:
        kid = ""
        if header:
            kid = named_kid(facts.header(header))
        return [(key_id(key), key.key) for key in published(facts, url, kid, algorithm, now)]

    return keys


def cert_source(source: Mapping[str, Any]) -> Source:
    """Return the key of the certificate whose address stands in a header or in the JSON body."""
    rule = compile_rule(source)
    header = str(source["header"]).lower().encode() if "header" in source else None
    path = tuple(str(source.get("json", "")).split("."))

    def keys(facts: Facts, now: Micros, _: str) -> Keyed:
        text = facts.header(header) if header is not None else scalar(facts.json_at(path))
        url = allowed_url(text, rule)
        return [(url, signing_key(url, rule, facts, now))]

    return keys


def named_kid(text: bytes | None) -> str:
    """Return the key id that a request names. Raises RefusalError where there is none, or none that could be one."""
    if not text:
        raise RefusalError(Reason.MISSING_FIELD, "the delivery does not name its key")
    if len(text) > MAX_KID or not text.isascii() or not text.decode().isprintable():
        raise RefusalError(Reason.MALFORMED_SIGNATURE, "the id of the key is no bounded printable text")
    return text.decode()


def published(facts: Facts, url: str, kid: str, algorithm: str, now: Micros, *, each: bool = False) -> list[Jwk]:
    """Return the keys of the set at `url` that may have signed: of this id where one is named, of this algorithm, not ended.

    `each`: the provider gives out one key for each id, and what is wanted is that one (`URL#KID`).

    Raises RefusalError: KEY_UNAVAILABLE where the set or the id is not fetched, KEY_REFUSED where no such key may be used.
    """
    known = facts.keys.key_set(url, kid)
    wanted = WantedKey(url=f"{url}#{kid}" if each else url, kid=kid)
    if known is None:
        raise RefusalError(Reason.KEY_UNAVAILABLE, "the key set is not fetched yet", wanted)
    named = [key for key in known if not kid or key.kid == kid]
    if not named:
        raise RefusalError(Reason.KEY_UNAVAILABLE, "the key set has no key of this id", wanted)
    fitting = [key for key in named if key.allows(algorithm)]
    if not fitting:
        raise RefusalError(Reason.KEY_REFUSED, f"the key is none for {algorithm}")
    live = [key for key in fitting if key.ends is None or key.ends > now]
    if not live:
        raise RefusalError(Reason.KEY_REFUSED, "the key has expired")
    return live


def key_id(key: Jwk) -> str:
    """Return what is recorded as the secret that matched: the id, as far as it may be stored."""
    return f"kid:{key.kid}" if key.kid and key.kid.isascii() and key.kid.isprintable() else "jwks"
