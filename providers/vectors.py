"""Vector files: published and derived deliveries with their right verdicts, run through the engine (`gateway verify --vectors`).

The format is the one of the interface page: `schemes`, and `cases` of {name, method, url, headers, body_base64, now, expect,
secret | secrets | public_key | jwks | certs | keys, params?, scheme?, strict_expect?}. The stricter expectation counts where
there is one. What a deployment would have fetched comes with the case: `jwks` stands for whatever key set the scheme asks for,
`certs` are certificates by address, `keys` are keys by id.
"""

import base64
import binascii
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from providers.contract_faults import ContractError, Fault, Faults
from providers.contract_signature import read_schemes
from providers.verification import KeyStore, NamedKey, key_urls, verify
from schemas.contract import SignatureScheme
from schemas.delivery import InboundRequest, Refused, Secret, Verdict, Verified
from schemas.operation import SECOND, Micros

CaseResult = tuple[str, bool, str]
"""Name of the case, whether it passed, and why it went as it did."""


def schemes_of(vector: Mapping[str, Any]) -> tuple[SignatureScheme, ...]:
    """Return the schemes that a vector file brings along. Raises ContractError when one is wrong or not supported."""
    faults = Faults()
    values = vector.get("schemes")
    if not values:
        told = "no shipped contract has the name of the file's provider, and the file brings no schemes along"
        raise ContractError((Fault(line=0, key="", message=told),), str(vector.get("provider", "")))
    schemes = read_schemes(values if isinstance(values, list) else [values], faults, listed=True, keys_given=True)
    if faults.all():
        raise ContractError(faults.all(), str(vector.get("provider", "")))
    return schemes


def run(vector: Mapping[str, Any], schemes: Sequence[SignatureScheme] | None = None) -> list[CaseResult]:
    """Run every case of a vector file, with the file's own schemes unless others are given. Raises ContractError as `schemes_of`."""
    used = schemes_of(vector) if schemes is None else tuple(schemes)
    cases, constants = vector.get("cases"), constants_of(vector)
    return [_run_case(number, case, used, constants) for number, case in enumerate(cases if isinstance(cases, list) else [], start=1)]


def request_of(case: Mapping[str, Any]) -> InboundRequest:
    """Return the request of a case or sample. Raises ValueError for a body that is not base64; KeyError for a missing part."""
    url = str(case["url"])
    address, _, query = url.partition("?")
    path = "/" + address.partition("://")[2].partition("/")[2]
    body = base64.b64decode(case["body_base64"], validate=True) if "body_base64" in case else str(case.get("body", "")).encode()
    return InboundRequest(
        method=str(case.get("method", "POST")),
        path=path.encode(),
        query=query.encode(),
        headers=tuple(_header_lines(case.get("headers") or {})),
        body=body,
        public_url=address,
    )


def secrets_of(case: Mapping[str, Any]) -> tuple[Secret, ...]:
    """Return the key material of a case, all that is there of `secrets`, `secret` and `public_key`, named by its position."""
    listed = [*(case.get("secrets") or ()), *(case[key] for key in ("secret", "public_key") if case.get(key))]
    return tuple(Secret(id=f"secret-{number}", value=str(value).encode()) for number, value in enumerate(listed, start=1))


def keys_of(case: Mapping[str, Any], schemes: Sequence[SignatureScheme]) -> KeyStore:
    """Return the keys that the case brings along for these schemes. Raises KeyError, TypeError, ValueError for an unreadable one."""
    documents = {str(url): str(text).encode() for url, text in (case.get("certs") or {}).items()}
    if "jwks" in case:
        published = json.dumps(case["jwks"]).encode()
        documents |= {url: published for scheme in schemes for url in key_urls(scheme)}
    named = {str(kid): _named(entry) for kid, entry in (case.get("keys") or {}).items()}
    return KeyStore(documents, named)


def constants_of(vector: Mapping[str, Any]) -> dict[str, str]:
    """Return the account's constants that stand in the file's own schemes: single texts of `claims`, by the claim's name.

    A contract that names them `{param:aud}` is so run with the account of the file.
    """
    found: dict[str, str] = {}
    schemes = vector.get("schemes")
    for scheme in schemes if isinstance(schemes, list) else []:
        claims = scheme.get("claims") if isinstance(scheme, Mapping) else None
        if not isinstance(claims, Mapping):
            continue
        equals = claims.get("equals")
        said = {name: claims.get(name) for name in ("iss", "aud", "sub")} | (dict(equals) if isinstance(equals, Mapping) else {})
        for name, value in said.items():
            only = value[0] if isinstance(value, list) and len(value) == 1 else value
            if isinstance(only, str):
                found[str(name)] = only
    return found


def judge(case: Mapping[str, Any], schemes: Sequence[SignatureScheme], constants: Mapping[str, str] | None = None) -> Verdict:
    """Return the engine's verdict of a case or sample. Raises KeyError, TypeError, ValueError, AttributeError for an unreadable one."""
    chosen = [scheme for scheme in schemes if scheme.id == case["scheme"]] if "scheme" in case else list(schemes)
    # A contract may name its schemes otherwise than the file: then all of them are tried, as in production.
    chosen = chosen or list(schemes)
    params = {**(constants or {}), **{str(key): str(value) for key, value in (case.get("params") or {}).items()}}
    return verify(request_of(case), chosen, secrets_of(case), _arrival(case["now"]), params, keys=keys_of(case, chosen))


def _arrival(now: object) -> Micros:
    if isinstance(now, bool) or not isinstance(now, int | float):
        raise TypeError("now is unix seconds, as a number")
    return int(now * SECOND)


def _run_case(number: int, case: object, schemes: Sequence[SignatureScheme], constants: Mapping[str, str]) -> CaseResult:
    if not isinstance(case, Mapping):
        return f"case {number}", False, "the case cannot be read: it is no object"
    name = str(case.get("name") or f"case {number}")
    wanted = case.get("expect") if case.get("strict_expect") is None else case["strict_expect"]
    if wanted not in {"valid", "invalid"}:
        return name, False, "expect is neither valid nor invalid"
    try:
        verdict = judge(case, schemes, constants)
    except KeyError as error:
        return name, False, f"the case cannot be read: it has no {error}"
    except (TypeError, ValueError, AttributeError, OverflowError, binascii.Error) as error:
        return name, False, f"the case cannot be read: {type(error).__name__} {error}"
    match verdict:
        case Verified():
            return name, wanted == "valid", f"accepted by {verdict.scheme_id} with {verdict.secret_id or 'no secret'}"
        case Refused():
            return name, wanted == "invalid", f"refused: {verdict.reason} ({verdict.detail})"


def _named(entry: Mapping[str, Any]) -> NamedKey:
    algorithm, text = str(entry["alg"]), str(entry["key"])
    # A MAC's key is bytes, written as base64; a public key is PEM.
    value = base64.b64decode(text, validate=True) if algorithm.startswith("hmac-") else text.encode()
    return NamedKey(algorithm=algorithm, value=value)


def _header_lines(headers: Mapping[str, Any]) -> Iterator[tuple[bytes, bytes]]:
    for name, value in headers.items():
        for item in value if isinstance(value, list) else [value]:
            yield name.lower().encode("latin-1", "replace"), _header_bytes(str(item))


def _header_bytes(text: str) -> bytes:
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()
