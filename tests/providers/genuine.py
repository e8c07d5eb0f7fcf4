"""One genuine delivery for every primitive and key source, with the parts of it that a signature covers: what the fuzzer bends."""

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.hashes import SHA256

from providers.verification import NO_KEYS, KeyStore, NamedKey, Verifier, prepare
from schemas.contract import SignatureScheme
from schemas.delivery import InboundRequest, Secret
from tests.providers.signing import BODY, EC, ED, NOW, PUBLIC_URL, RSA, URL, b64, jwk, key_set, pem, request, rs256, scheme, side_by_side
from tests.providers.test_certs import SNS, SNS_URL, certificate
from tests.providers.test_certs import URL as CERT_URL

SECRET: Final = b"a-shared-secret-of-32-characters"
HEADER: Final = {"in": "header", "name": "X-S"}
STAMP: Final = b"%d" % NOW
QUERY: Final = b"b=2&a=1+1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Genuine:
    """A delivery that is accepted. `parts`: "body", "query", "path", or "header:offset" whose bytes from offset on are signed."""

    name: str
    rules: SignatureScheme
    request: InboundRequest
    parts: tuple[str, ...]
    secrets: tuple[bytes, ...] = (SECRET,)
    keys: KeyStore = NO_KEYS

    def verifier(self) -> Verifier:
        return prepare([self.rules], [Secret(id=f"s{number}", value=value) for number, value in enumerate(self.secrets)])

    def part(self, name: str) -> bytes:
        if name in {"body", "query", "path"}:
            return {"body": self.request.body, "query": self.request.query, "path": self.request.path}[name]
        header, _, offset = name.partition(":")
        return dict(self.request.headers)[header.encode()][int(offset) :]

    def with_part(self, name: str, value: bytes) -> InboundRequest:
        match name:
            case "body":
                return replace(self.request, body=value)
            case "query":
                return replace(self.request, query=value)
            case "path":
                return replace(self.request, path=value)
            case _:
                pass
        header, _, offset = name.partition(":")
        lines = ((key, old[: int(offset)] + value if key == header.encode() else old) for key, old in self.request.headers)
        return replace(self.request, headers=tuple(lines))


def _mac(data: bytes, digest: str = "sha256") -> bytes:
    return hmac.digest(SECRET, data, digest)


def _token(header: dict[str, Any], claims: dict[str, Any], sign: Callable[[bytes], bytes]) -> bytes:
    data = f"{b64(json.dumps(header).encode())}.{b64(json.dumps(claims).encode())}".encode()
    return data + b"." + b64(sign(data)).encode()


def _signed_bytes() -> list[Genuine]:
    mac = _mac(STAMP + b".POST." + PUBLIC_URL.encode() + b"?" + QUERY + b"." + BODY).hex().encode()
    stamped = {"in": "header", "name": "X-T"}
    kv = {"in": "header", "name": "X-S", "parser": "kv", "key": "v1", "ts_key": "t"}
    return [
        Genuine(
            name="hmac",
            rules=scheme(primitive="hmac", message="{ts}.{method}.{url}.{body}", sig=kv, timestamp={"in": "sig"}),
            request=request([(b"x-s", b"t=" + STAMP + b",v1=" + mac)], query=QUERY),
            parts=("body", "query", "x-s:0"),
        ),
        Genuine(
            name="hash",
            rules=scheme(primitive="hash", message="{body}{ts}{secret}", sig=HEADER, timestamp=stamped, encoding="base64"),
            request=request([(b"x-t", STAMP), (b"x-s", base64.b64encode(hashlib.sha256(BODY + STAMP + SECRET).digest()))]),
            parts=("body", "x-t:0", "x-s:0"),
        ),
        Genuine(
            name="token",
            rules=scheme(primitive="token", token={"in": "header", "name": "X-S"}),
            request=request([(b"x-s", SECRET)]),
            parts=("x-s:0",),
        ),
        Genuine(
            name="asym-static",
            rules=scheme(
                primitive="asym", alg="ed25519", message="{ts}|{body}", sig=HEADER, timestamp=stamped, keysource={"format": "pem"},
            ),
            request=request([(b"x-t", STAMP), (b"x-s", ED.sign(STAMP + b"|" + BODY).hex().encode())]),
            parts=("body", "x-t:0", "x-s:0"),
            secrets=(pem(ED.public_key()),),
        ),
        Genuine(
            name="asym-jwks",
            rules=scheme(
                primitive="asym", alg="ed25519", message="{header:X-Kid}.{path}.{body}", sig=HEADER, encoding="base64url",
                keysource={"kind": "jwks", "url": URL, "kid_header": "X-Kid"},
            ),
            request=request([(b"x-kid", b"k"), (b"x-s", b64(ED.sign(b"k./webhooks/p." + BODY)).encode())]),
            parts=("body", "path", "x-kid:0", "x-s:0"),
            keys=key_set(jwk(RSA.public_key(), "r"), jwk(ED.public_key(), "k")),
        ),
        Genuine(
            name="asym-certificate",
            rules=scheme(
                primitive="asym", message="{header:X-Id}|{body}", sig=HEADER, encoding="base64",
                alg={"header": "X-Alg", "map": {"R": "rsa-sha256"}},
                keysource={
                    "kind": "cert_url", "header": "X-Cert", "host_re": r"certs\.provider\.example", "cn_suffix": ".provider.example",
                },
            ),
            request=request(
                [(b"x-id", b"1"), (b"x-alg", b"R"), (b"x-cert", CERT_URL.encode()), (b"x-s", base64.b64encode(rs256(b"1|" + BODY)))]
            ),
            parts=("body", "x-id:0", "x-alg:0", "x-cert:0", "x-s:0"),
            keys=KeyStore({CERT_URL: certificate()}),
        ),
    ]  # fmt: skip


def _tokens() -> list[Genuine]:
    claims = {
        "iss": "p",
        "aud": ["me"],
        "iat": NOW,
        "exp": NOW + 60,
        "u": f"{PUBLIC_URL}?{QUERY.decode()}",
        "h": hashlib.sha256(BODY).hexdigest(),
    }
    wanted = {
        "iss": "p", "aud": "me", "require": ["exp"], "max_age": 300, "url_claim": "u", "body_hash": {"claim": "h", "encoding": "hex"},
    }  # fmt: skip
    head = b64(json.dumps({"alg": "ES256", "kid": "k", "hs": "X-T"}).encode())
    payload = b"POST /webhooks/p\nX-T: " + STAMP + b"\n" + BODY
    detached = f"{head}..{b64(side_by_side(f'{head}.{b64(payload)}'.encode()))}".encode()
    return [
        Genuine(
            name="jwt-secret",
            rules=scheme(primitive="jwt", token={"in": "bearer"}, algs=["HS256"], claims=wanted),
            request=request([(b"authorization", b"Bearer " + _token({"alg": "HS256"}, claims, _mac))], query=QUERY),
            parts=("body", "query", "authorization:7"),
        ),
        Genuine(
            name="jwt-jwks",
            rules=scheme(
                primitive="jwt", token={"in": "header", "name": "X-S"}, algs=["RS256", "ES256"], claims=wanted,
                keysource={"kind": "jwks", "url": URL},
            ),
            request=request([(b"x-s", _token({"alg": "ES256", "kid": "k"}, claims, side_by_side))], query=QUERY),
            parts=("body", "query", "x-s:0"),
            keys=key_set(jwk(EC.public_key(), "k"), jwk(RSA.public_key(), "r")),
        ),
        Genuine(
            name="jwt-detached",
            rules=scheme(
                primitive="jwt", token={"in": "header", "name": "X-S"}, algs=["ES256"],
                keysource={"kind": "jwks", "jku_allow": [], "url": URL},
                detached={"kind": "request", "headers_in": "hs", "required_headers": ["X-T"]},
                timestamp={"in": "header", "name": "X-T"},
            ),
            request=request([(b"x-t", STAMP), (b"x-s", detached)]),
            parts=("body", "path", "x-t:0", "x-s:0"),
            keys=key_set(jwk(EC.public_key(), "k")),
        ),
    ]  # fmt: skip


def _messages() -> list[Genuine]:
    digest = b"sha-256=:" + base64.b64encode(hashlib.sha256(BODY).digest()) + b":"
    params = b'("@method" "@target-uri" "content-digest" "x-a");created=%d;keyid="k"' % NOW
    base = b"\n".join(
        [
            b'"@method": POST', b'"@target-uri": ' + PUBLIC_URL.encode() + b"?" + QUERY, b'"content-digest": ' + digest, b'"x-a": 1',
            b'"@signature-params": ' + params,
        ]
    )  # fmt: skip
    notice = {"Type": "Notification", "MessageId": "m", "TopicArn": "a", "Message": "x", "Timestamp": "t"}
    text = "".join(f"{name}\n{notice[name]}\n" for name in sorted(notice)).encode()
    more = {
        "SignatureVersion": "2", "SigningCertURL": SNS_URL,
        "Signature": base64.b64encode(RSA.sign(text, padding.PKCS1v15(), SHA256())).decode(),
    }  # fmt: skip
    return [
        Genuine(
            name="httpsig",
            rules=scheme(primitive="httpsig", covers={"components": ["@method", "content-digest"]}),
            request=request(
                [
                    (b"content-digest", digest), (b"x-a", b"1"), (b"signature-input", b"s=" + params),
                    (b"signature", b"s=:" + base64.b64encode(ED.sign(base)) + b":"),
                ],
                query=QUERY,
            ),
            parts=("body", "query", "content-digest:0", "x-a:0", "signature-input:0", "signature:0"),
            keys=KeyStore(named={"k": NamedKey(algorithm="ed25519", value=pem(ED.public_key()))}),
        ),
        Genuine(
            name="notice",
            rules=SNS,
            request=request(body=json.dumps(notice | more, separators=(",", ":")).encode()),
            parts=("body",),
            keys=KeyStore({SNS_URL: certificate("sns.amazonaws.com")}),
        ),
    ]  # fmt: skip


@cache
def genuine() -> tuple[Genuine, ...]:
    return (*_signed_bytes(), *_tokens(), *_messages())
