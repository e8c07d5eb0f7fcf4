"""Shared tokens and unsigned hints: `token` and `refetch`. Neither covers a byte of the body (catalogue, section 4)."""

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from providers.verification.encodings import base64_unpadded
from providers.verification.facts import Facts, RefusalError, walk
from providers.verification.keys import symmetric_key
from schemas.contract import SignatureScheme
from schemas.delivery import Reason, Secret, Verdict, Verified
from schemas.operation import Micros

TOKEN_PLACES: Final = ("header", "bearer", "basic", "query", "json", "json_each")
MAX_TOKEN: Final = 8_192
MAX_ITEMS: Final = 1_000  # items of a json_each list; each is compared with every secret


@dataclass(frozen=True, slots=True)
class TokenChecker:
    """A prepared token scheme."""

    scheme: SignatureScheme
    secret_ids: tuple[str, ...]
    values: tuple[bytes, ...]

    def check(self, facts: Facts, now: Micros) -> Verdict:
        """Return the verdict: every presented token must equal one and the same configured value."""
        del now  # a token has no time
        tokens = presented(self.scheme.options["token"], facts)
        if not tokens or not all(tokens):
            raise RefusalError(Reason.MISSING_SIGNATURE, "no token")
        matched = -1
        for number, value in enumerate(self.values):
            same = True
            for token in tokens:
                same &= hmac.compare_digest(value, token)
            if same and matched < 0:
                matched = number
        if matched < 0:
            raise RefusalError(Reason.WRONG_SIGNATURE, "the token is not a configured one")
        return Verified(scheme_id=self.scheme.id, secret_id=self.secret_ids[matched])


@dataclass(frozen=True, slots=True)
class RefetchChecker:
    """An unsigned provider: anybody may knock, and every delivery is only a hint that earns a budgeted read (B8)."""

    scheme: SignatureScheme

    def check(self, facts: Facts, now: Micros) -> Verdict:
        """Return Verified, always: there is nothing to check."""
        del facts, now
        return Verified(scheme_id=self.scheme.id, secret_id="")


def prepare_token(scheme: SignatureScheme, secrets: Sequence[Secret]) -> TokenChecker:
    """Return a checker for `token`. Raises KeyMaterialError for an empty value."""
    values = tuple(symmetric_key(secret.value, "utf8") for secret in secrets)
    return TokenChecker(scheme, tuple(secret.id for secret in secrets), values)


def prepare_refetch(scheme: SignatureScheme, secrets: Sequence[Secret]) -> RefetchChecker:
    """Return a checker for `refetch`. It needs no secret."""
    del secrets
    return RefetchChecker(scheme)


def presented(rule: Mapping[str, Any], facts: Facts) -> list[bytes]:
    """Return the tokens of a request; empty where there is none. Raises RefusalError where there are several, or too long."""
    # Where the caller of the provider chooses the header, its name is a constant of the account.
    name = facts.params.get(str(rule.get("name_param", ""))) or str(rule.get("name", ""))
    match rule["in"]:
        case "header":
            value = _header(facts, name)
            if rule.get("optional_scheme"):
                return _one(_schemed(value, "Bearer") or value)
            return _one(_schemed(value, str(rule.get("scheme", ""))))
        case "bearer":
            return _one(_schemed(_header(facts, name or "Authorization"), "Bearer"))
        case "basic":
            text = _schemed(_header(facts, name or "Authorization"), "Basic")
            return _one(base64_unpadded(text) if text else None)
        case "query":
            return _one(facts.query(name.encode()))
        case "json":
            return _one(_text(facts.json_at(tuple(str(rule.get("path", name)).split(".")))))
        case _:
            return _each(rule, facts)


def _each(rule: Mapping[str, Any], facts: Facts) -> list[bytes]:
    items = facts.json_at(tuple(str(rule["list"]).split(".")))
    if not isinstance(items, list) or not items:
        raise RefusalError(Reason.MISSING_SIGNATURE, "no items that carry the token")
    if len(items) > MAX_ITEMS:
        raise RefusalError(Reason.MALFORMED_BODY, f"more than {MAX_ITEMS} items")
    path = tuple(str(rule["field"]).split("."))
    return [_text(walk(item, path)) or b"" for item in items]


def _header(facts: Facts, name: str) -> bytes | None:
    values = facts.headers(name.lower().encode())
    if len(values) > 1:
        raise RefusalError(Reason.MALFORMED_SIGNATURE, f"header {name} is there more than once")
    return values[0] if values else None


def _schemed(value: bytes | None, scheme: str) -> bytes | None:
    if value is None or not scheme:
        return value
    word, _, rest = value.partition(b" ")
    # Authentication scheme names are case-insensitive (RFC 9110, section 11.1).
    return rest.strip(b" ") if word.lower() == scheme.lower().encode() else None


def _text(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else None


def _one(value: bytes | None) -> list[bytes]:
    if value is None:
        return []
    if len(value) > MAX_TOKEN:
        raise RefusalError(Reason.MALFORMED_SIGNATURE, f"a token of more than {MAX_TOKEN} bytes")
    return [value]
