"""The engine: a contract's schemes and an account's secrets become a Verifier; any request becomes a verdict.

A new primitive is one module with a `prepare_…` function and one row in PRIMITIVES. Nothing here knows a provider's name.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from providers.verification.facts import DEPTH, Facts, RefusalError
from providers.verification.httpsig import prepare_httpsig
from providers.verification.jwt import prepare_jwt
from providers.verification.keys import MIN_WHSEC_BYTES, KeyMaterialError, symmetric_key
from providers.verification.keystore import NO_KEYS, KeyStore
from providers.verification.signatures import prepare_asym, prepare_hash, prepare_hmac
from providers.verification.sources import FETCHED
from providers.verification.tokens import prepare_refetch, prepare_token
from schemas.contract import SignatureScheme
from schemas.delivery import InboundRequest, Reason, Refused, Secret, Verdict, Verified
from schemas.operation import Micros


class Checker(Protocol):
    """A prepared scheme."""

    def check(self, facts: Facts, now: Micros) -> Verdict:
        """Return the verdict, or raise RefusalError."""
        ...


def fetched(scheme: SignatureScheme) -> bool:
    """Say whether the keys of a scheme are published ones, which come with each verification."""
    return (scheme.options.get("keysource") or {}).get("kind") in FETCHED


Prepare = Callable[[SignatureScheme, Sequence[Secret]], Checker]


@dataclass(frozen=True, slots=True)
class Primitive:
    """A row of the table: how a scheme of this kind is prepared, and which of them needs no secret."""

    prepare: Prepare
    keyless: Callable[[SignatureScheme], bool] = fetched


PRIMITIVES: Final[Mapping[str, Primitive]] = {
    "hmac": Primitive(prepare_hmac),
    "hash": Primitive(prepare_hash),
    "asym": Primitive(prepare_asym),
    "token": Primitive(prepare_token),
    "jwt": Primitive(prepare_jwt),
    "httpsig": Primitive(prepare_httpsig, lambda scheme: fetched(scheme) or "keysource" not in scheme.options),
    "refetch": Primitive(prepare_refetch, lambda _: True),
}
"""What this version verifies. The loader refuses a contract with another primitive."""


@dataclass(frozen=True, slots=True)
class Verifier:
    """Schemes with their keys made ready: build it once per account and set of secrets, use it for every delivery."""

    checkers: tuple[tuple[str, Checker | None], ...]  # scheme id; None: no usable secret for this scheme
    params: Mapping[str, str]

    def verify(self, request: InboundRequest, now: Micros, keys: KeyStore = NO_KEYS) -> Verdict:
        """Judge a request. Pure and total: whatever the bytes are, it is Verified or Refused with a reason.

        `keys` are what has been fetched; what is missing from it is named in the refusal (`wanted`).
        """
        facts = Facts(request, self.params, keys)
        worst: Refused | None = None
        for scheme_id, checker in self.checkers:
            verdict = _checked(scheme_id, checker, facts, now)
            match verdict:
                case Verified():
                    return verdict
                case Refused():
                    if worst is None or DEPTH[verdict.reason] > DEPTH[worst.reason]:
                        worst = verdict
        return worst or Refused(reason=Reason.NO_SECRET, detail="the contract names no signature scheme")


def prepare(schemes: Sequence[SignatureScheme], secrets: Sequence[Secret], params: Mapping[str, str] | None = None) -> Verifier:
    """Return a Verifier. A value that is no key of a scheme is left out of it; a scheme without a key refuses everything.

    `params` are the contract's constants: `url` overrides the public URL, others serve `{param:NAME}`.
    """
    return Verifier(tuple((scheme.id, _prepared(scheme, secrets)) for scheme in schemes), dict(params or {}))


def verify(
    request: InboundRequest,
    schemes: Sequence[SignatureScheme],
    secrets: Sequence[Secret],
    now: Micros,
    params: Mapping[str, str] | None = None,
    *,
    keys: KeyStore = NO_KEYS,
) -> Verdict:
    """Judge one request; `prepare` once and use the Verifier where there are many."""
    return prepare(schemes, secrets, params).verify(request, now, keys)


def check_secret(scheme: SignatureScheme, value: bytes) -> str | None:
    """Return what is wrong with a configured secret for this scheme, or None. The text never holds the secret (B008).

    Surrounding white space is allowed (it is stripped). Text secrets need one character: providers let people choose them.
    """
    if PRIMITIVES[scheme.primitive].keyless(scheme) and scheme.primitive != "refetch":
        return "is not used: the keys of this scheme are published by the provider"
    try:
        if scheme.primitive == "refetch":
            symmetric_key(value, "utf8")
        PRIMITIVES[scheme.primitive].prepare(scheme, [Secret(id="", value=value)])
        decoded = scheme.key == "whsec" or (scheme.key == "whsec_or_utf8" and value.strip().startswith(b"whsec_"))
        if decoded and len(symmetric_key(value, scheme.key)) < MIN_WHSEC_BYTES:
            return f"is too short: a whsec_ secret has at least {MIN_WHSEC_BYTES} bytes; copy it again, whole"
    except KeyMaterialError as error:
        return str(error)
    return None


def _prepared(scheme: SignatureScheme, secrets: Sequence[Secret]) -> Checker | None:
    primitive = PRIMITIVES[scheme.primitive]
    usable = [secret for secret in secrets if _is_key(scheme, secret)]
    if not primitive.keyless(scheme) and not usable:
        return None
    return primitive.prepare(scheme, usable)


def _is_key(scheme: SignatureScheme, secret: Secret) -> bool:
    try:
        PRIMITIVES[scheme.primitive].prepare(scheme, [secret])
    except KeyMaterialError:
        return False
    return True


def _checked(scheme_id: str, checker: Checker | None, facts: Facts, now: Micros) -> Verdict:
    if checker is None:
        return Refused(reason=Reason.NO_SECRET, detail="no usable secret is configured", scheme_id=scheme_id)
    try:
        return checker.check(facts, now)
    except RefusalError as refusal:
        return Refused(reason=refusal.reason, detail=refusal.detail, scheme_id=scheme_id, wanted=refusal.wanted)
