"""Why a delivery was refused (MISSION B12): which one change would have made its signature right. Pure; it never accepts.

A probe undoes one change and verifies again. One that fits is `certain`; what merely fits the refusal's reason is not. Texts are
ours: they name headers, references of secrets and figures, never a secret, a signature or anything of the body.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from providers import diagnosis_variants as variants
from providers.verification import NO_KEYS, KeyStore, Verifier, check_secret, prepare
from schemas.contract import SignatureScheme
from schemas.delivery import InboundRequest, Reason, Refused, Secret, Verdict, Verified
from schemas.operation import Micros

MAX_CAUSES: Final = 8
_NAME = re.compile(rb"[a-z0-9_\-]{1,60}")
_UNITS: Final[Mapping[str, str]] = {"s": "seconds", "ms": "milliseconds"}
_SIGNS: Final = (b"signature", b"sign", b"hmac", b"hash", b"token", b"authorization")

TEXTS: Final[Mapping[str, str]] = {
    "too_old": "the signature is right and only the time is not: {detail}; a late repetition, or a clock",
    "in_future": "the signature is right and only the time is not: {detail}; check this host's clock",
    "time_unit": "the timestamp is in another unit than the contract says{detail}; correct the contract",
    "newline_added": "the body got a line break at its end after it was signed; take the exact bytes",
    "newline_stripped": "the body has lost the line break at its end; take the exact bytes",
    "line_ends": "the body's line ends were changed (LF, CRLF); take the exact bytes",
    "white_space": "white space around the body was added; take the exact bytes",
    "byte_order_mark": "a byte order mark was added to or taken from the body; take the exact bytes",
    "compressed": "the body is gzip and its plain form was signed; whatever compressed it on the way must not",
    "charset": "the body was written in another character set on its way; take the exact bytes",
    "rewritten": "the body was parsed and written again before it was verified; take the exact bytes",
    "body_not_signed": "the signature covers no body; the contract's message is another",
    "url_scheme": "the provider signed the address with the other scheme (http, https); set public_url to what the provider has",
    "url_host": "the provider signed the address with the host of the request; set public_url to what the provider has",
    "url_port": "the provider signed the address with another port; set public_url to what the provider has",
    "url_path": "the provider signed the address with another path or end (a slash); set public_url to what the provider has",
    "url_query": "the provider signed the address without its query, or the query was added on the way",
    "encoding": "the signature is written in another encoding (hex, base64, base64url) than the contract says",
    "upper_case": "the signature is in upper case; something on the way changed it, or the contract should say hex_any",
    "prefix_missing": "the signature lacks the prefix or form that the contract says",
    "prefix_added": "the signature has a prefix that the contract does not say",
    "quoted": "the signature has quotes or spaces around it",
    "other_secret": "another secret made it: {secret}; the secrets are in the wrong places",
    "secret_form": "the secret is right and taken in the wrong form: as text, or decoded, with or without whsec_; see the contract's key",
    "secret_quoted": "the secret has quotes around it; store it without",
    "secret_spaces": "the secret was registered with white space around it; register it again without",
    "secret_case": "the secret is written in another case; copy it again",
    "secret_malformed": "the secret {secret} {detail}",
    "no_secret": "no secret was given, or none that the contract's schemes can use",
    "header_renamed": "header {name} arrived as {other}: something on the way renames headers",
    "header_missing": "header {name} is not there{detail}; a proxy drops it, or this is not the provider",
    "header_twice": "{detail}; two senders, or a proxy that adds one",
    "other_scheme": "it is signed by header {other}, another scheme than the contract's {name}; choose that one at the provider",
    "key_unavailable": "the provider's published key{detail} is not at hand; the delivery is accepted once it has been fetched",
    "key_refused": "{detail}",
    "wrong_claim": "the token is genuine and meant for another receiver: {detail}",
    "malformed": "{detail}",
    "unknown": "another secret than the one that signed it (another endpoint, environment or account), or a body changed on its way",
}
"""Code of a cause -> what a person is told. Closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One likely cause. `certain`: with this one change undone the signature is right."""

    code: str
    text: str
    certain: bool
    scheme_id: str = ""
    secret_id: str = ""  # its reference


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Whose delivery it is. `others`: secrets of other endpoints, to tell a wrong slot."""

    schemes: Sequence[SignatureScheme]
    secrets: Sequence[Secret]
    params: Mapping[str, str]
    others: Sequence[Secret] = ()
    keys: KeyStore = NO_KEYS


def diagnose(request: InboundRequest, account: Account, now: Micros) -> tuple[Cause, ...]:
    """Return the likely causes of a refusal, the likeliest first and each code once; none for a genuine delivery."""
    verdict = prepare(account.schemes, account.secrets, account.params).verify(request, now, account.keys)
    if isinstance(verdict, Verified):
        return ()
    found: dict[str, Cause] = {}
    for cause in (*_certain(request, account, now, verdict), *_fitting(request, account, verdict)):
        found.setdefault(cause.code, cause)
        if len(found) == MAX_CAUSES:
            break
    if not found:
        found["unknown"] = _cause("unknown")
    return tuple(found.values())


def _cause(code: str, *, certain: bool = False, by: Verdict | None = None, **words: str) -> Cause:
    secret = "" if by is None else by.secret_id
    text = TEXTS[code].format_map({"detail": "", "name": "", "other": "", "secret": secret, **words})
    return Cause(code=code, text=text, certain=certain, scheme_id="" if by is None else by.scheme_id, secret_id=secret)


def _right(verdict: Verdict) -> bool:
    return isinstance(verdict, Verified) or verdict.genuine


def _certain(request: InboundRequest, account: Account, now: Micros, verdict: Refused) -> Iterator[Cause]:
    """Yield the causes that a probe proves. The search ends with the first change that explains it."""
    if verdict.genuine:
        unit = next(_time_units(request, account, now), None)
        if unit is not None:
            yield unit
        yield _cause("too_old" if verdict.reason is Reason.TOO_OLD else "in_future", certain=True, by=verdict, detail=verdict.detail)
        return
    others = prepare(account.schemes, account.others, account.params)
    there = others.verify(request, now, account.keys)
    if _right(there):
        yield _cause("other_secret", certain=True, by=there)
        return
    yield from _renamed(request, account, now)
    for secrets in (account.secrets, account.others):
        found = next(_probes(request, account, secrets, now), None)
        if found is not None:
            code, by = found
            yield _cause(code, certain=True, by=by)
            if secrets is account.others:
                yield _cause("other_secret", certain=True, by=by)
            return


def _probes(request: InboundRequest, account: Account, secrets: Sequence[Secret], now: Micros) -> Iterator[tuple[str, Verdict]]:
    params = account.params
    plain = prepare(account.schemes, secrets, params)
    unfixed = prepare(account.schemes, secrets, {name: value for name, value in params.items() if name != "url"})

    def tried(code: str, verifier: Verifier, changed: InboundRequest) -> Iterator[tuple[str, Verdict]]:
        verdict = verifier.verify(changed, now, account.keys)
        if _right(verdict):
            yield code, verdict

    for code, changed in variants.bodies(request):
        yield from tried(code, plain, changed)
    for code, changed in variants.addresses(request, params.get("url", "")):
        yield from tried(code, unfixed, changed)
    for code, changed in variants.signature_texts(request, account.schemes):
        yield from tried(code, plain, changed)
    for code, schemes in variants.schemes(account.schemes):
        yield from tried(code, prepare(schemes, secrets, params), request)
    for code, schemes, secret in variants.key_forms(account.schemes, secrets):
        yield from tried(code, prepare(schemes, [secret], params), request)


def _time_units(request: InboundRequest, account: Account, now: Micros) -> Iterator[Cause]:
    """Yield the cause where the time is right once it is read in another unit."""
    for code, schemes in variants.schemes(account.schemes):
        if code == "time_unit":
            verdict = prepare(schemes, account.secrets, account.params).verify(request, now, account.keys)
            if isinstance(verdict, Verified):
                yield _cause(code, certain=True, by=verdict, detail=_units(schemes, account.schemes))


def _units(read: Sequence[SignatureScheme], said: Sequence[SignatureScheme]) -> str:
    """Return which unit it is and which the contract says, or the empty text."""
    found, wanted = ({item.timestamp.unit for item in schemes if item.timestamp is not None} for schemes in (read, said))
    if len(found) != 1 or len(wanted) != 1:
        return ""
    return f": it is {_UNITS.get(found.pop(), 'text')}, and the contract says {_UNITS.get(wanted.pop(), 'text')}"


# --- headers


def _expected(schemes: Sequence[SignatureScheme], params: Mapping[str, str]) -> list[str]:
    """Return the names of the headers that the schemes of an account with these constants need, signatures before times."""
    names: list[str] = []
    for scheme in schemes:
        location, rule = scheme.location, scheme.timestamp
        if location is not None and location.place == "header":
            names.extend(location.options.get("names") or (location.name,))
        token = scheme.options.get("token") or {}
        if token.get("in") == "header":
            names.append(params.get(str(token.get("name_param", ""))) or str(token.get("name", "")))
        if rule is not None and rule.place == "header":
            names.append(rule.name)
        for template in scheme.messages:
            names.extend(re.findall(r"\{header:([A-Za-z0-9_\-]+)\}", template))
        names.extend(scheme.options.get("require_headers") or {})
    return list(dict.fromkeys(name for name in names if name))


def _plain(name: bytes) -> bytes:
    bare = name.lower().replace(b"_", b"-")
    for prefix in (b"http-", b"x-original-", b"x-forwarded-", b"x-"):
        bare = bare.removeprefix(prefix)
    return bare


def _renamed(request: InboundRequest, account: Account, now: Micros) -> Iterator[Cause]:
    """Yield the headers that are there under a similar name; certain where the delivery is genuine under the right ones."""
    there = {name for name, _ in request.headers}
    moves: dict[bytes, bytes] = {}
    for expected in _expected(account.schemes, account.params):
        wanted = expected.lower().encode()
        if wanted not in there:
            moves.update({name: wanted for name in there if _plain(name) == _plain(wanted)})
    if not moves:
        return
    headers = tuple((moves.get(name, name), value) for name, value in request.headers)
    moved = replace(request, headers=headers)
    verdict = prepare(account.schemes, account.secrets, account.params).verify(moved, now, account.keys)
    for name, wanted in sorted(moves.items()):
        if _NAME.fullmatch(name):
            yield _cause("header_renamed", certain=_right(verdict), name=wanted.decode(), other=name.decode())


# --- what merely fits the reason


def _fitting(request: InboundRequest, account: Account, verdict: Refused) -> Iterator[Cause]:
    """Yield what the refusal's reason suggests, where no probe was needed or none has succeeded."""
    for scheme in account.schemes:
        for secret in account.secrets:
            fault = check_secret(scheme, secret.value)
            usable = any(check_secret(other, secret.value) is None for other in account.schemes)
            if fault is not None and not usable:
                yield _cause("secret_malformed", secret=secret.id, detail=fault)
    tell = _BY_REASON.get(verdict.reason)
    if tell is not None:
        yield from tell(request, account, verdict)


def _absent(request: InboundRequest, account: Account, verdict: Refused) -> Iterator[Cause]:
    there = {name for name, _ in request.headers}
    if "more than once" in verdict.detail:
        yield _cause("header_twice", detail=verdict.detail)
        return
    judged = [scheme for scheme in account.schemes if scheme.id == verdict.scheme_id] or account.schemes
    expected = [name.lower().encode() for name in _expected(judged, account.params)]
    missing = [name for name in expected if name not in there]
    for name in sorted(there - {name.lower().encode() for name in _expected(account.schemes, account.params)}):
        similar = any(word in name for word in _SIGNS) and _NAME.fullmatch(name)
        if similar and verdict.reason is Reason.MISSING_SIGNATURE and missing:
            yield _cause("other_scheme", name=missing[0].decode(), other=name.decode())
    for name in missing[:1]:
        yield _cause("header_missing", name=name.decode())
    if not missing and not expected:
        yield _cause("malformed", detail=verdict.detail)


def _unfetched(_request: InboundRequest, _account: Account, verdict: Refused) -> Iterator[Cause]:
    # The address is the contract's, or has passed its rules.
    yield _cause("key_unavailable", detail=f" at {verdict.wanted.url}" if verdict.wanted is not None and verdict.wanted.url else "")


def _told(code: str) -> Callable[[InboundRequest, Account, Refused], Iterator[Cause]]:
    def tell(_request: InboundRequest, _account: Account, verdict: Refused) -> Iterator[Cause]:
        yield _cause(code, detail=verdict.detail)

    return tell


_BY_REASON: Final[Mapping[Reason, Callable[[InboundRequest, Account, Refused], Iterator[Cause]]]] = {
    Reason.NO_SECRET: _told("no_secret"),
    Reason.MISSING_SIGNATURE: _absent,
    Reason.MISSING_TIMESTAMP: _absent,
    Reason.MISSING_FIELD: _absent,
    Reason.MALFORMED_SIGNATURE: _told("malformed"),
    Reason.MALFORMED_TIMESTAMP: _told("malformed"),
    Reason.MALFORMED_BODY: _told("malformed"),
    Reason.UNSUPPORTED: _told("malformed"),
    Reason.KEY_UNAVAILABLE: _unfetched,
    Reason.KEY_REFUSED: _told("key_refused"),
    Reason.WRONG_CLAIM: _told("wrong_claim"),
}
