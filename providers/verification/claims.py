"""What a token must say (RFC 7519, section 4): who sent it, to whom, about which address and body, and when.

Every rule is the contract's. A text of a rule may hold `{param:NAME}` (a constant of the account) and `{url}`; where such a
constant is missing nothing is accepted. Claims are compared by value and type: `true` is not 1, a number is no text.
"""

import base64
import hashlib
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from providers.verification.facts import Facts, RefusalError
from providers.verification.freshness import window
from providers.verification.messages import Inputs, Message, compile_message
from providers.verification.times import END_OF_TIME
from schemas.delivery import Reason
from schemas.operation import SECOND, Micros

WORDS: Final = (
    "iss", "aud", "sub", "require", "equals", "leeway", "max_age", "future", "url_claim", "url_hash_claim", "body_hash",
)  # fmt: skip
"""Keys of `claims`."""

BODY_HASH_WORDS: Final = ("claim", "alg", "encoding", "optional_when_empty")
"""Keys of `claims.body_hash`."""

_FUTURE: Final = 300  # seconds that `iat` may lie ahead where the contract says nothing: two clocks differ
_TEMPLATE: Final = ("param:", "url")

HASH_ENCODINGS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "hex": lambda digest: digest.hex().encode(),
    "base64": lambda digest: base64.b64encode(digest).rstrip(b"="),
    "base64url": lambda digest: base64.urlsafe_b64encode(digest).rstrip(b"="),
}
"""Encoding of a hash inside a claim -> writer. Padding does not count: the claim itself is signed."""

Claims = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyHash:
    """The claim that binds the body. `optional_when_empty`: it is there exactly when there is a body."""

    claim: str
    digest: str
    encoding: str
    optional_when_empty: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRules:
    """Compiled `claims`. Times in seconds; `max_age` None: any age."""

    lists: tuple[tuple[str, tuple[Message, ...]], ...]  # claim -> allowed values; `aud` may be a list itself
    equals: tuple[tuple[str, Any], ...]  # claim -> Message for a text, else the value
    require: tuple[str, ...]
    leeway: int
    max_age: int | None
    future: int | None
    url_claim: str
    url_hash_claim: str
    body_hash: BodyHash | None


def compile_claims(values: Mapping[str, Any]) -> ClaimRules:
    """Return compiled rules. Raises ValueError that names the key, for values of the wrong kind."""
    lists = []
    for name in ("iss", "aud", "sub"):
        if name in values:
            listed = [values[name]] if isinstance(values[name], str) else values[name]
            if not isinstance(listed, list | tuple) or not listed:
                raise ValueError(f"{name} must be a text or a list of texts")
            lists.append((name, tuple(_text(item, name) for item in listed)))
    equals, require = values.get("equals", {}), values.get("require", [])
    if not isinstance(equals, Mapping) or not all(isinstance(value, str | int | bool) for value in equals.values()):
        raise ValueError("equals must be a table of texts, whole numbers and booleans")
    if not isinstance(require, list | tuple) or not all(isinstance(name, str) and name for name in require):
        raise ValueError("require must be a list of names of claims")
    max_age = _seconds(values, "max_age")
    return ClaimRules(
        lists=tuple(lists),
        equals=tuple((str(name), _text(value, name) if isinstance(value, str) else value) for name, value in equals.items()),
        # A largest age without the time that it counts from would be no rule.
        require=tuple(dict.fromkeys([*require, *(["iat"] if max_age is not None else [])])),
        leeway=_seconds(values, "leeway") or 0,
        max_age=max_age,
        future=_seconds(values, "future") if "future" in values else max_age if max_age is not None else _FUTURE,
        url_claim=_name(values, "url_claim"),
        url_hash_claim=_name(values, "url_hash_claim"),
        body_hash=_body_hash(values["body_hash"]) if "body_hash" in values else None,
    )


def check_claims(rules: ClaimRules, claims: Claims, facts: Facts) -> None:
    """Return where the claims are the contract's, whatever the time. Raises RefusalError."""
    for name in rules.require:
        if claims.get(name) is None:
            raise RefusalError(Reason.MISSING_FIELD, f"the token has no claim {name}")
    for name, allowed in rules.lists:
        said = claims.get(name)
        several = said if name == "aud" and isinstance(said, list) else [said]
        known = [_rendered(message, facts) for message in allowed]
        if not any(isinstance(item, str) and item.encode() in known for item in several):
            raise RefusalError(Reason.WRONG_CLAIM, f"the token's {name} is another one")
    for name, expected in rules.equals:
        said = claims.get(name)
        value = _rendered(expected, facts).decode() if isinstance(expected, Message) else expected
        if type(said) is not type(value) or said != value:
            raise RefusalError(Reason.WRONG_CLAIM, f"the token's {name} is another one")
    if rules.url_claim and not _same(claims.get(rules.url_claim), facts.url()):
        raise RefusalError(Reason.WRONG_CLAIM, "the token was made for another address (public_url?)")
    if rules.url_hash_claim and not _same(claims.get(rules.url_hash_claim), hashlib.sha256(facts.url()).hexdigest().encode()):
        raise RefusalError(Reason.WRONG_CLAIM, "the token was made for another address (public_url?)")
    if rules.body_hash is not None:
        _check_body(rules.body_hash, claims, facts.request.body)


def judged_times(rules: ClaimRules, claims: Claims, now: Micros) -> tuple[Micros | None, tuple[Reason, str] | None]:
    """Return when the token was made, and why it does not count now. Raises RefusalError for a time that is none."""
    issued, starts, ends = _time(claims, "iat"), _time(claims, "nbf"), _time(claims, "exp")
    leeway = rules.leeway * SECOND
    if ends is not None and now >= ends + leeway:
        return issued, (Reason.TOO_OLD, f"the token ended {(now - ends) // SECOND} s ago; {rules.leeway} s are allowed")
    if starts is not None and now < starts - leeway:
        return issued, (Reason.IN_FUTURE, f"the token begins in {(starts - now) // SECOND} s; {rules.leeway} s are allowed (clock?)")
    if issued is None:
        return None, None
    oldest = None if rules.max_age is None else rules.max_age + rules.leeway
    newest = None if rules.future is None else rules.future + rules.leeway
    return issued, window(oldest, newest, issued, now)


def _check_body(rule: BodyHash, claims: Claims, body: bytes) -> None:
    said = claims.get(rule.claim)
    if rule.optional_when_empty and not body:
        if said is not None:
            raise RefusalError(Reason.WRONG_SIGNATURE, "the token covers a body, and there is none")
        return
    if said is None:
        raise RefusalError(Reason.MISSING_FIELD, "the token does not cover the body")
    text = said.encode().rstrip(b"=") if isinstance(said, str) else b""
    if rule.encoding == "hex":
        text = text.lower()
    if not hmac.compare_digest(text, HASH_ENCODINGS[rule.encoding](hashlib.new(rule.digest, body).digest())):
        raise RefusalError(Reason.WRONG_SIGNATURE, "the body is not the one whose digest is in the token")


def _same(said: Any, expected: bytes) -> bool:
    return isinstance(said, str) and hmac.compare_digest(said.encode(), expected)


def _time(claims: Claims, name: str) -> Micros | None:
    match claims.get(name):
        case None:
            return None
        case bool():
            pass
        case int() | float() as seconds if 0 <= seconds < END_OF_TIME // SECOND:
            return int(seconds * SECOND)
    raise RefusalError(Reason.MALFORMED_TIMESTAMP, f"the token's {name} is no time in unix seconds")


def _rendered(message: Message, facts: Facts) -> bytes:
    return message.render(Inputs(facts, None, {}))


def _text(value: Any, name: str) -> Message:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} must be a text")
    message = compile_message(value)
    if not all(token.startswith(_TEMPLATE) for token in message.tokens):
        raise ValueError(f"{name} may hold only {{param:NAME}} and {{url}}")
    return message


def _name(values: Mapping[str, Any], key: str) -> str:
    name = values.get(key, "")
    if not isinstance(name, str):
        raise ValueError(f"{key} must be the name of a claim")  # noqa: TRY004 - one kind of error for the loader
    return name


def _seconds(values: Mapping[str, Any], key: str) -> int | None:
    seconds = values.get(key)
    if seconds is None or seconds == "none":
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int) or seconds < 0:
        raise ValueError(f'{key} must be whole seconds, or "none"')
    return seconds


def _body_hash(value: Any) -> BodyHash:
    if not isinstance(value, Mapping) or not isinstance(value.get("claim"), str) or not value["claim"]:
        raise ValueError("body_hash needs the name of its claim")
    digest, encoding, optional = value.get("alg", "sha256"), value.get("encoding", "hex"), value.get("optional_when_empty", False)
    if digest not in ("sha256", "sha384", "sha512") or encoding not in HASH_ENCODINGS or not isinstance(optional, bool):
        raise ValueError("body_hash needs alg = sha256, sha384 or sha512, and encoding = " + ", ".join(HASH_ENCODINGS))
    return BodyHash(claim=value["claim"], digest=digest, encoding=encoding, optional_when_empty=optional)
