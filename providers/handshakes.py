"""Handshakes: requests by which a provider makes sure of us (B9). A pure function from request and verdict to an answer.

What is echoed is bounded in length and alphabet and goes out as text/plain with nosniff, or inside JSON: never as markup. An
HMAC is given only for such a challenge: braces and quotes are outside its alphabet, so nobody gets a document signed. A URL is
never fetched here: an answer names one, of the declared hosts, after the signature, for the reconciler to fetch once (B154).
"""

import base64
import hmac
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from providers.handshake_reading import FIELDS, FORBIDDEN
from providers.mapping import body_value, header_pairs, query_pairs
from providers.places import as_text, compile_place
from providers.verification.keys import KeyMaterialError, symmetric_key
from schemas.contract import Contract, Handshake
from schemas.delivery import HandshakeAnswer, InboundRequest, Reason, Refused, Secret, Verdict, Verified
from schemas.jsontext import UnreadableJsonError
from schemas.operation import Micros

_ALPHABET: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._~:+/=-")
_HEX_DIGITS: Final = frozenset("0123456789abcdef")
_URL: Final = re.compile(r"https://[A-Za-z0-9.-]+(?::443)?/[A-Za-z0-9._~:/?@!$&'()*+,;=%-]*")
_HTTPS_PORT: Final = 443
_DEFAULT_METHODS: Final[Mapping[str, str]] = {"query_echo": "GET", "header_json": "GET", "options": "OPTIONS", "head_ok": "HEAD"}
_SAFE: Final = (("X-Content-Type-Options", "nosniff"), ("Cache-Control", "no-store"))
_PLAIN: Final = "text/plain; charset=utf-8"


def answer(
    contract: Contract,
    request: InboundRequest,
    verdict: Verdict | None,
    *,
    secrets: Sequence[Secret],
    params: Mapping[str, str],
    now: Micros,
) -> HandshakeAnswer | None:
    """Return the answer where the request is one of the contract's handshakes, else None. Never raises.

    Call it with `verdict` None before the signature is checked, and again with the verdict. A handshake that its contract
    places after the signature is never answered without one; a refused request gets an answer only from `probe`.
    """
    exchange = _Exchange(request=request, verdict=verdict, secrets=tuple(secrets), params=params)
    for rule in contract.handshakes:
        if not _is_due(rule, verdict) or not _is_meant(rule, exchange):
            continue
        found = _KINDS[rule.kind](rule, exchange)
        if found is not None:
            return replace(found, answered_at=now)
    return None


def distrusted(contract: Contract, verdict: Verdict) -> Verdict:
    """Return the verdict, or a refusal where a stranger could have had these bytes signed: as a challenge before any signature.

    A `challenge_hmac` that comes before the signature signs what anybody sends, with the key of the deliveries. What has the form
    of such a challenge proves nothing, whoever made its signature.
    """
    signed = verdict.signed if isinstance(verdict, Verified) or verdict.genuine else b""
    rules = [rule for rule in contract.handshakes if rule.kind == "challenge_hmac" and rule.when == "before"]
    if not signed or not any(_is_challenge(rule, signed) for rule in rules):
        return verdict
    detail = "what is signed has the form of a challenge, and those are signed for anybody"
    return Refused(reason=Reason.WRONG_SIGNATURE, detail=detail, scheme_id=verdict.scheme_id)


def _is_challenge(rule: Handshake, signed: bytes) -> bool:
    try:
        _checked(rule, signed.decode("latin-1"))
    except _RefusalError:
        return False
    return True


def methods(contract: Contract, *when: str) -> frozenset[str]:
    """Return the methods that a contract's handshakes come by: those before the signature, after it, or (none said) all."""
    rules = [rule for rule in contract.handshakes if not when or rule.when in when]
    return frozenset(rule.method or _DEFAULT_METHODS.get(rule.kind, "POST") for rule in rules)


_Kind = Callable[[Handshake, "_Exchange"], HandshakeAnswer | None]


class _RefusalError(Exception):
    """Control flow inside this module only."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


@dataclass(frozen=True, kw_only=True)
class _Exchange:
    """A request with what is known beside it; its parts are read once, and only when a rule asks."""

    request: InboundRequest
    verdict: Verdict | None
    secrets: tuple[Secret, ...]
    params: Mapping[str, str]

    @cached_property
    def _headers(self) -> list[tuple[str, str]]:
        return header_pairs(self.request)

    @cached_property
    def _query(self) -> list[tuple[str, str]]:
        return query_pairs(self.request.query)

    @cached_property
    def _body(self) -> Any:
        try:
            return body_value(self.request, needed=True)
        except UnreadableJsonError:
            return None

    def find(self, place: str) -> Any:
        """Return the value at a place, None where there is none."""
        if place.startswith("body:"):
            return compile_place(place).find(body=self._body)
        return compile_place(place).find(headers=self._headers, query=self._query)


def _is_due(rule: Handshake, verdict: Verdict | None) -> bool:
    match verdict:
        case None:
            return rule.when == "before"
        case Verified():
            return rule.when == "after" and rule.kind != "probe"
        case Refused():
            return rule.kind == "probe"


def _is_meant(rule: Handshake, exchange: _Exchange) -> bool:
    if exchange.request.method != (rule.method or _DEFAULT_METHODS.get(rule.kind, "POST")):
        return False
    return all(_holds(place, wanted, exchange) for place, wanted in rule.match.items())


def _holds(place: str, wanted: str, exchange: _Exchange) -> bool:
    text = as_text(exchange.find(place))
    if place.lower() == "header:content-type":
        text = text.partition(";")[0].strip().lower()
    return bool(text) if wanted == "*" else text == wanted


def _with_challenge(make: Callable[[Handshake, _Exchange, str], HandshakeAnswer]) -> _Kind:
    def answered(rule: Handshake, exchange: _Exchange) -> HandshakeAnswer | None:
        found = exchange.find(rule.challenge)
        if found is None:
            return None
        try:
            if rule.verify:
                _check_word(rule, exchange)
            return make(rule, exchange, _checked(rule, found))
        except _RefusalError as refusal:
            return HandshakeAnswer(kind=rule.kind, status=refusal.status, headers=_SAFE, accepted=False, reason=refusal.reason)

    return answered


def _check_word(rule: Handshake, exchange: _Exchange) -> None:
    wanted, given = exchange.params.get(rule.verify_param, ""), exchange.find(rule.verify)
    if not wanted:
        raise _RefusalError(403, f"the account has no constant {rule.verify_param}: set it")
    if not isinstance(given, str) or not hmac.compare_digest(wanted.encode(), given.encode("utf-8", "surrogatepass")):
        raise _RefusalError(403, f"the word at {rule.verify} is not ours")


def _checked(rule: Handshake, found: Any) -> str:
    if rule.kind == "fetch_url":
        return _checked_url(rule, found)
    if not isinstance(found, str) or not rule.min_length <= len(found) <= rule.max_length:
        raise _RefusalError(400, f"the challenge is no text of {rule.min_length} to {rule.max_length} characters")
    allowed = _HEX_DIGITS if rule.alphabet == "hex" else _ALPHABET
    if not set(found) <= (allowed | set(rule.also)) - FORBIDDEN:
        raise _RefusalError(400, "the challenge has characters that no challenge needs")
    return found


def _checked_url(rule: Handshake, found: Any) -> str:
    if not isinstance(found, str) or len(found) > rule.max_length or not _URL.fullmatch(found):
        raise _RefusalError(400, "the address is no plain https address")
    parts = urlsplit(found)
    if not re.fullmatch(rule.host_re, parts.hostname or "") or parts.port not in {None, _HTTPS_PORT}:
        raise _RefusalError(403, "the address is not on a host of the contract")
    given = parse_qsl(parts.query, keep_blank_values=True)
    if any([value for name, value in given if name == wanted] != [text] for wanted, text in rule.query.items()):
        raise _RefusalError(403, "the address is not of the contract's form")
    return found


def _hmac(rule: Handshake, exchange: _Exchange, challenge: str) -> str:
    verdict = exchange.verdict
    matched = [secret for secret in exchange.secrets if isinstance(verdict, Verified) and secret.id == verdict.secret_id]
    for secret in (*matched, *exchange.secrets):
        try:
            digest = hmac.digest(symmetric_key(secret.value, rule.key), challenge.encode(), rule.alg)
        except KeyMaterialError:
            continue
        return digest.hex() if rule.encoding == "hex" else base64.b64encode(digest).decode()
    raise _RefusalError(401, "no usable secret is configured")


def _filled(template: str, rule: Handshake, exchange: _Exchange, challenge: str) -> str:
    def value(found: re.Match[str]) -> str:
        match found[1]:
            case "challenge":
                return challenge
            case "hmac":
                return _hmac(rule, exchange, challenge)
            case name:
                constant = exchange.params.get(name.removeprefix("param:"))
                if constant is None:
                    raise _RefusalError(403, f"the account has no constant {name.removeprefix('param:')}: set it")
                return constant

    return FIELDS.sub(value, template)


def _reply(rule: Handshake, exchange: _Exchange, challenge: str) -> HandshakeAnswer:
    if rule.json:
        document = {name: _filled(text, rule, exchange, challenge) for name, text in rule.json.items()}
        return _made(rule, json.dumps(document).encode(), "application/json")
    return _made(rule, _filled(rule.text, rule, exchange, challenge).encode(), _PLAIN)


def _made(rule: Handshake, body: bytes = b"", media_type: str = "", headers: tuple[tuple[str, str], ...] = ()) -> HandshakeAnswer:
    typed = (("Content-Type", media_type),) if media_type else ()
    return HandshakeAnswer(kind=rule.kind, status=rule.status, headers=(*typed, *headers, *_SAFE), body=body)


def _fixed(rule: Handshake, exchange: _Exchange) -> HandshakeAnswer:
    del exchange
    if not rule.body:
        return _made(rule)
    return _made(rule, rule.body.encode(), _PLAIN if rule.media_type == "text/plain" else rule.media_type)


def _header_echo(rule: Handshake, exchange: _Exchange, challenge: str) -> HandshakeAnswer:
    del exchange
    return _made(rule, headers=((rule.header, challenge),))


def _fetch(rule: Handshake, exchange: _Exchange, address: str) -> HandshakeAnswer:
    del exchange
    return replace(_made(rule), fetch_url=address)


def _capture(rule: Handshake, exchange: _Exchange, secret: str) -> HandshakeAnswer:
    if exchange.secrets:
        raise _RefusalError(403, "a secret is configured: it is never replaced from outside")
    echoed = ((rule.header, secret),) if rule.header else ()
    return replace(_made(rule, headers=echoed), capture=secret.encode())


def _options(rule: Handshake, exchange: _Exchange) -> HandshakeAnswer | None:
    origin = exchange.find("header:WebHook-Request-Origin")
    if not isinstance(origin, str):
        return None
    if origin.lower() not in rule.allow:
        return HandshakeAnswer(kind=rule.kind, status=403, headers=_SAFE, accepted=False, reason="the origin may not deliver here")
    return _made(rule, headers=(("WebHook-Allowed-Origin", origin.lower()), ("Allow", "POST")))


def _probe(rule: Handshake, exchange: _Exchange) -> HandshakeAnswer:
    refused = exchange.verdict
    reason = str(refused.reason) if isinstance(refused, Refused) else ""
    return HandshakeAnswer(kind=rule.kind, status=401, accepted=False, reason=reason)


_KINDS: Final[Mapping[str, _Kind]] = {
    "query_echo": _with_challenge(_reply),
    "json_echo": _with_challenge(_reply),
    "header_json": _with_challenge(_reply),
    "challenge_hmac": _with_challenge(_reply),
    "header_echo": _with_challenge(_header_echo),
    "secret_capture": _with_challenge(_capture),
    "fetch_url": _with_challenge(_fetch),
    "typed_ping": _fixed,
    "fixed_reply": _fixed,
    "head_ok": _fixed,
    "options": _options,
    "probe": _probe,
}
