"""Every primitive against every kind of bytes: a verdict always, and never an acceptance of what was changed (B1, B004).

Every run is a fresh one. `FUZZ_EXAMPLES=25000 pytest tests/providers/test_fuzz_verification.py` is the hour for people. What
it finds goes into `fuzz_corpus.json` (headers, body, query as base64), which every run replays against every primitive.
"""

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from providers.contract_faults import Faults
from providers.contract_keys import KEYSOURCE
from providers.contract_signature import PARAMETERS, read_schemes
from providers.verification import KeyStore, NamedKey, prepare
from providers.verification.claims import WORDS
from providers.verification.engine import PRIMITIVES
from providers.verification.structured import UnreadableFieldError, read_dictionary
from schemas.delivery import InboundRequest, Reason, Refused, Secret, Verified
from schemas.jsontext import UnreadableJsonError, parse
from schemas.operation import SECOND
from tests.providers.genuine import SECRET, Genuine, genuine
from tests.providers.signing import ED, NOW, PUBLIC_URL, URL, b64, jwk, pem
from tests.providers.test_certs import SNS_URL, certificate
from tests.providers.test_jwt import hs

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "150"))
CORPUS = json.loads((Path(__file__).parent / "fuzz_corpus.json").read_text())
FUZZ = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
pytestmark = pytest.mark.timeout(0 if "FUZZ_EXAMPLES" in os.environ else 120)

ALL = genuine()
IDS = [each.name for each in ALL]
READY = [(each, each.verifier()) for each in ALL]
NAMES = st.sampled_from(sorted({name for each in ALL for name, _ in each.request.headers}))
WORDS_OF_HEADERS = st.sampled_from(sorted({value for each in ALL for _, value in each.request.headers}))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=8,
)
BODIES = st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()) | st.sampled_from([each.request.body for each in ALL])


@pytest.mark.parametrize("each", ALL, ids=IDS)
def test_the_deliveries_to_bend_are_genuine(each: Genuine) -> None:
    """Without this a mutation would prove nothing."""
    assert isinstance(each.verifier().verify(each.request, NOW * SECOND, each.keys), Verified)


def test_every_primitive_that_has_something_to_check_is_bent() -> None:
    """A new primitive comes with a genuine delivery here."""
    assert {each.rules.primitive for each in ALL} == set(PRIMITIVES) - {"refetch"}


@pytest.mark.parametrize("each", ALL, ids=IDS)
def test_no_flipped_bit_is_accepted(each: Genuine) -> None:
    """Every byte of every signed part, one bit at a time: refused, whatever the bit."""
    verifier = each.verifier()
    for part in each.parts:
        text = each.part(part)
        for position in range(len(text)):
            for bit in (0x01, 0x20, 0x80) if len(text) > 300 else (1 << shift for shift in range(8)):
                changed = text[:position] + bytes([text[position] ^ bit]) + text[position + 1 :]
                if not _same(each, part, changed):
                    assert isinstance(verifier.verify(each.with_part(part, changed), NOW * SECOND, each.keys), Refused), (part, changed)


@pytest.mark.parametrize("each", ALL, ids=IDS)
@FUZZ
@given(data=st.data())
def test_no_edit_is_accepted(each: Genuine, data: st.DataObject) -> None:
    """Bytes replaced, inserted, dropped, doubled or moved in a signed part: refused."""
    part = data.draw(st.sampled_from(each.parts))
    text = each.part(part)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 20)))
    new = data.draw(
        st.binary(max_size=8) | st.just(text[start:end] * 2) | st.just(text[:8]) | st.sampled_from([b"\x00", b"=", b".", b"\\u0000"])
    )
    changed = text[:start] + new + text[end:]
    verdict = each.verifier().verify(each.with_part(part, changed), NOW * SECOND, each.keys)
    if not _same(each, part, changed):
        assert isinstance(verdict, Refused)
        assert verdict.reason is not Reason.NO_SECRET


@FUZZ
@given(
    st.lists(st.tuples(NAMES, st.binary(max_size=80) | WORDS_OF_HEADERS), max_size=8),
    BODIES,
    st.binary(max_size=60),
    st.sampled_from([PUBLIC_URL, "", "nonsense", "https://h:99999/p", "http://[::1/"]),
)
def test_any_bytes_get_a_verdict(headers: list[tuple[bytes, bytes]], body: bytes, query: bytes, public_url: str) -> None:
    """Nothing raises, and only what was signed whole is accepted."""
    what = InboundRequest(method="POST", path=b"/p\xff", query=query, headers=tuple(headers), body=body, public_url=public_url)
    for each, verifier in READY:
        verdict = verifier.verify(what, NOW * SECOND, each.keys)
        if isinstance(verdict, Verified):
            assert {line for line in each.request.headers if line[0] != b"authorization"} <= {
                (key, value.strip()) for key, value in headers
            }
            assert body == each.request.body or each.rules.primitive == "token"


@FUZZ
@given(
    st.dictionaries(
        st.sampled_from(["alg", "kid", "jku", "x5u", "crit", "hs", "typ"]), JSON | st.sampled_from(["HS256", "ES256", "k"]), max_size=5
    ),
    st.dictionaries(st.sampled_from(["iss", "aud", "iat", "exp", "nbf", "u", "h", "sub"]), JSON | st.just(NOW), max_size=6) | JSON,
)
def test_what_a_holder_of_the_key_says_gets_a_verdict(header: Any, claims: Any) -> None:
    """The signature is right, the words are anything: the depths that a stranger never reaches do not raise either."""
    head, payload = (b64(json.dumps(value).encode()) for value in (header, claims))
    signed = f"{head}.{payload}".encode()
    text = signed + b"." + b64(hs(signed, SECRET)).encode()
    what = InboundRequest(
        method="POST",
        path=b"/",
        query=b"",
        headers=((b"authorization", b"Bearer " + text), (b"x-s", text)),
        body=b"{}",
        public_url=PUBLIC_URL,
    )
    for each, verifier in READY:
        if each.rules.primitive == "jwt":
            assert isinstance(verifier.verify(what, NOW * SECOND, each.keys), Refused)


@FUZZ
@given(st.binary(max_size=300) | st.builds(lambda value: json.dumps({"keys": [value]}).encode(), JSON), st.data())
def test_any_published_document_gets_a_verdict(document: bytes, data: st.DataObject) -> None:
    """A provider's page may be anything: a key set, a certificate or neither."""
    spoiled = jwk(ED.public_key(), "k") | data.draw(
        st.dictionaries(st.sampled_from(["kty", "crv", "x", "y", "n", "e", "alg", "exp"]), JSON, max_size=3)
    )
    chain = certificate()
    position = data.draw(st.integers(0, len(chain) - 1))
    bent = chain[:position] + data.draw(st.binary(max_size=3)) + chain[position + 1 :]
    for one in (document, json.dumps({"keys": [spoiled]}).encode(), bent):
        named = {"k": NamedKey(algorithm="ed25519", value=one)}
        keys = KeyStore(dict.fromkeys((URL, SNS_URL, "https://certs.provider.example/c/CERT-1.pem"), one), named)
        for each, verifier in READY:
            assert isinstance(verifier.verify(each.request, NOW * SECOND, keys), Verified | Refused)


@FUZZ
@given(st.text(max_size=120, alphabet='sig12=("@methodpay-)_;created:,? A/*\\.') | st.text(max_size=40), st.binary(max_size=40))
def test_any_structured_field_gets_a_verdict(text: str, body: bytes) -> None:
    """The headers of a message signature are read exactly or refused."""
    line = text.encode("utf-8", "replace")
    for headers in ([(b"signature-input", line), (b"signature", b"s=:AAAA:")], [(b"signature-input", b's=("a")'), (b"signature", line)]):
        what = InboundRequest(method="GET", path=b"", query=body, headers=(*headers, (b"content-digest", line)), body=body)
        for each, verifier in READY:
            assert isinstance(verifier.verify(what, NOW * SECOND, each.keys), Refused)


SETTINGS = st.dictionaries(
    st.sampled_from(
        sorted({*PARAMETERS, *KEYSOURCE, *WORDS, "in", "name", "by", "of", "segments", "map", "unit", "tolerance", "components"})
    ),
    JSON | st.sampled_from(["header", "jwks", "{body}", "X-S", "RS256", ["ES256"], "https://h/k", {"kind": "jwks"}, "cert_url", "json:a"]),
    max_size=6,
)


@FUZZ
@given(st.sampled_from(sorted(PRIMITIVES)), SETTINGS, st.dictionaries(st.sampled_from(PARAMETERS), SETTINGS, max_size=6), st.booleans())
def test_any_parameters_are_a_scheme_or_faults(primitive: str, flat: Any, nested: Any, given_keys: bool) -> None:  # noqa: FBT001 - a drawn value
    """What a contract file says is accepted or explained; an accepted scheme can be prepared and gives a verdict."""
    faults = Faults()
    schemes = read_schemes([{**flat, **nested, "primitive": primitive}], faults, listed=False, keys_given=given_keys)
    assert bool(schemes) is not bool(faults.all())
    for secrets in ([], [Secret(id="a", value=SECRET), Secret(id="b", value=pem(ED.public_key()))]):
        verifier = prepare(schemes, secrets)
        for each in ALL:
            assert isinstance(verifier.verify(each.request, NOW * SECOND, each.keys), Verified | Refused)


@pytest.mark.parametrize("found", CORPUS, ids=[found["why"] for found in CORPUS])
def test_what_was_found_stays_mended(found: dict[str, Any]) -> None:
    """Each input once raised, or was accepted, in some verifier: here it is a refusal for every primitive."""
    headers = tuple((name.encode(), base64.b64decode(value)) for name, value in found.get("headers", []))
    body = base64.b64decode(found.get("body", ""))
    what = InboundRequest(
        method="POST", path=b"/", query=base64.b64decode(found.get("query", "")), headers=headers, body=body, public_url=PUBLIC_URL
    )
    for each, verifier in READY:
        assert isinstance(verifier.verify(what, NOW * SECOND, each.keys), Refused)
    if "claims" in found:
        signed = f"{b64(found['header'].encode())}.{b64(found['claims'].encode())}".encode()
        line = b"Bearer " + signed + b"." + b64(hs(signed, SECRET)).encode()
        for each, verifier in READY:
            assert isinstance(verifier.verify(_carrying(what, line), NOW * SECOND, each.keys), Refused)


def _carrying(what: InboundRequest, line: bytes) -> InboundRequest:
    return InboundRequest(
        method=what.method, path=what.path, query=what.query, headers=((b"authorization", line), (b"x-s", line[7:])), body=what.body,
        public_url=what.public_url,
    )  # fmt: skip


def _same(each: Genuine, part: str, changed: bytes) -> bool:
    """Say whether two readers of the contract would agree that nothing signed has changed."""
    text, stripped = each.part(part), changed.strip(b" \t")
    if text == (changed if part == "body" else stripped):
        return True
    match each.name, part:
        case "hmac", "x-s:0":
            # The same time, the same signature, and further pairs beside them.
            pairs = [item.strip(b" \t") for item in stripped.split(b",")]
            return {pair for pair in pairs if pair.startswith(b"t=")} | {text.split(b",")[1]} <= {*text.split(b",")} & {*pairs}
        case "httpsig", "signature-input:0" | "signature:0":
            # Another spelling of the same label, and further labels beside it.
            return _label(text) == _label(stripped)
        case "notice", "body":
            # Members that no signed form names are free (catalogue, section 4), and so is how the document is written.
            return _members(text, text) == _members(changed, text)
        case _:
            return False


def _label(text: bytes) -> object:
    try:
        return read_dictionary(text).get("s")
    except UnreadableFieldError:
        return None


def _members(text: bytes, original: bytes) -> dict[str, str] | None:
    try:
        value, names = parse(text), parse(original)
    except UnreadableJsonError:
        return None
    return {name: str(value.get(name)) for name in names} if isinstance(value, dict) else None
