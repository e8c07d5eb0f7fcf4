"""What the tests of published keys, tokens and message signatures share: keys, a way to sign, and a way to judge."""

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from providers.contract_faults import Faults
from providers.contract_signature import read_schemes
from providers.verification import KeyStore, verify
from schemas.contract import SignatureScheme
from schemas.delivery import InboundRequest, Reason, Refused, Secret, Verdict
from schemas.operation import SECOND

NOW: Final = 1_767_225_600
URL: Final = "https://provider.example/keys"
PUBLIC_URL: Final = "https://hooks.example.com/webhooks/p"
BODY: Final = b'{"id":"evt_1","note":"caf\xc3\xa9"}'

RSA: Final = rsa.generate_private_key(65537, 2048)
EC: Final = ec.generate_private_key(ec.SECP256R1())
ED: Final = ed25519.Ed25519PrivateKey.generate()
PublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey
Lines = Sequence[tuple[bytes, bytes]]


def scheme(**parameters: Any) -> SignatureScheme:
    faults = Faults()
    (made,) = read_schemes([parameters], faults, listed=True)
    assert not faults.all(), faults.all()
    return made


def request(headers: Lines = (), body: bytes = BODY, query: bytes = b"", path: bytes = b"/webhooks/p") -> InboundRequest:
    return InboundRequest(method="POST", path=path, query=query, headers=tuple(headers), body=body, public_url=PUBLIC_URL)


def judged(
    rules: SignatureScheme,
    what: InboundRequest,
    *,
    secrets: Sequence[bytes] = (),
    keys: KeyStore | None = None,
    now: float = NOW,
    params: Mapping[str, str] | None = None,
) -> Verdict:
    named = [Secret(id=f"s{number}", value=value) for number, value in enumerate(secrets)]
    return verify(what, [rules], named, int(now * SECOND), params, keys=keys or KeyStore())


def reason(verdict: Verdict) -> Reason | None:
    return verdict.reason if isinstance(verdict, Refused) else None


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def number(value: int) -> str:
    return b64(value.to_bytes((value.bit_length() + 7) // 8))


def pem(key: PublicKey) -> bytes:
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def jwk(key: PublicKey, kid: str = "", **more: Any) -> dict[str, Any]:
    made: dict[str, Any]
    match key:
        case rsa.RSAPublicKey():
            made = {"kty": "RSA", "n": number(key.public_numbers().n), "e": number(key.public_numbers().e)}
        case ec.EllipticCurvePublicKey():
            numbers = key.public_numbers()
            made = {"kty": "EC", "crv": "P-256", "x": b64(numbers.x.to_bytes(32)), "y": b64(numbers.y.to_bytes(32))}
        case _:
            made = {"kty": "OKP", "crv": "Ed25519", "x": b64(key.public_bytes_raw())}
    return made | ({"kid": kid} if kid else {}) | more


def key_set(*keys: Mapping[str, Any], url: str = URL) -> KeyStore:
    return KeyStore({url: json.dumps({"keys": keys}).encode()})


def side_by_side(data: bytes, key: ec.EllipticCurvePrivateKey = EC) -> bytes:
    r, s = decode_dss_signature(key.sign(data, ec.ECDSA(SHA256())))
    return r.to_bytes(32) + s.to_bytes(32)


def rs256(data: bytes, key: rsa.RSAPrivateKey = RSA) -> bytes:
    return key.sign(data, padding.PKCS1v15(), SHA256())
