"""The loader: contracts are data, all faults are told at once with line and cure, and unsupported policies are refused."""

import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.contract import MAX_BYTES, ContractError, load
from schemas.contract import CreateRule, ResultFile, TokenRule
from schemas.states import Reading

FULL = """
name = "acme-reports"
title = "Acme reports"
origin = "https://api.acme.example:8443"
docs = "https://acme.example/docs"
trace_header = "X-Trace"
unconfirmed = ["limits.concurrency"]

[[signature]]
id = "v1"
primitive = "hmac"
message = "{ts}.{body}"
alg = "sha256"
key = "utf8"
encoding = "hex"

[signature.sig]
in = "header"
name = "Acme-Signature"
parser = "kv"
key = "v1"
ts_key = "t"
sep_re = ", *"
trim = true

[signature.timestamp]
in = "sig"
unit = "ms"
tolerance = 60
future = "none"

[signature.require_headers]
X-Version = "1"

[signature.body_digest]
in = "query"
name = "digest"
alg = "sha256"

[[signature]]
primitive = "token"

[signature.token]
in = "header"
name = "X-Token"

[[signature]]
primitive = "asym"
alg = "ed25519"
message = "{body}"

[signature.sig]
in = "header"
name = ["X-A", "X-B"]

[signature.keysource]
kind = "static"
format = "pem"

[event]
id = "body:id"
body_signed = false
job_id = 'body:"job-id"'
each = "events[]"

[create]
path = "/v1/reports"
job_id = "body:id"
accepted = [202]

[create.token]
in = "header"
name = "Idempotency-Key"
window_seconds = 86400

[create.add]
"metadata.operation" = "{operation}"
callback_url = "{callback_url}"

[recovery]
strategies = ["resend", "list"]
path = "/v1/reports?limit=100"
match = "metadata.operation"

[status]
path = "/v1/reports/{remote_job_id}"
state = "body:status"

[status.readings]
done = "succeeded"
broken = "failed"

[cancel]
path = "/v1/reports/{remote_job_id}/cancel"

[result]
values = { output = "body:output_id" }

[[result.files]]
path = "/v1/files/{result.output}"
media_type = "text/csv"

[[result.files]]
url = "body:errors.url"
role = "errors"
optional = true

[limits]
rate_per_second = 2

[[samples]]
name = "one"
"""


MISTAKEN = r'''name = "acme"
titel = "Acme"
[signature]
primitive = "hmac"
alg = "sha265"
message = """
x = "not a key"
{boddy}"""
sig = { in = "header", name = "X-S", parsr = "raw" }
[event]
# a comment
id = "bdy:id"
each = "a["
[status]
ok = [
  200,
  2000,
]
path = "jobs"
[status.readings]
done = "suceeded"
[[result.files]]
path = "/a/{remote_job_id}"
[[result.files]]
url = "body:a"
path = "/b/{remote_job_id}"
role = "second"
'''


def faults_of(text: str) -> dict[str, str]:
    with pytest.raises(ContractError) as caught:
        load(text.encode())
    return {fault.key: fault.message for fault in caught.value.faults}


def test_a_whole_contract_is_read() -> None:
    """Every section arrives in its dataclass, what is absent has its default, and the digest is of the bytes (B2)."""
    contract = load(FULL.encode())
    assert (contract.name, contract.origin, contract.trace_header) == ("acme-reports", "https://api.acme.example:8443", "X-Trace")
    assert [scheme.id for scheme in contract.signatures] == ["v1", "token-2", "asym-3"]
    first = contract.signatures[0]
    assert first.timestamp is not None
    assert (first.timestamp.unit, first.timestamp.past_seconds, first.timestamp.future_seconds) == ("ms", 60, None)
    assert contract.create == CreateRule(
        path="/v1/reports",
        accepted=(202,),
        token=TokenRule(place="header", name="Idempotency-Key", window_seconds=86_400),
        add=(("metadata.operation", "{operation}"), ("callback_url", "{callback_url}")),
    )
    assert contract.status is not None
    assert contract.status.readings == {"done": Reading.SUCCEEDED, "broken": Reading.FAILED}
    assert contract.result is not None
    assert contract.result.files == (
        ResultFile(path="/v1/files/{result.output}", media_type="text/csv"),
        ResultFile(url="body:errors.url", role="errors", optional=True),
    )
    assert contract.limits.rate_per_second == 2.0
    assert len(contract.digest) == 64
    assert load(FULL.encode()) == contract
    assert load((SIGNED + "[event]").encode(), name="named-by-its-file").name == "named-by-its-file"


def test_all_faults_are_told_at_once_with_their_lines() -> None:
    """One run names every mistake: its line, its key, and the nearest word that exists."""
    with pytest.raises(ContractError) as caught:
        load(MISTAKEN.encode())
    told = [(fault.line, fault.key) for fault in caught.value.faults]
    assert told == [
        (2, "titel"),
        (5, "signature.alg"),
        (6, "signature.message"),
        (9, "signature.sig.parsr"),
        (10, "event.job_id"),
        (12, "event.id"),
        (13, "event.each"),
        (14, "status.state"),
        (15, "status.ok"),
        (19, "status.path"),
        (21, "status.readings.done"),
        (24, "result.files[1]"),
    ]
    message = str(caught.value)
    for cure in ("did you mean title?", "did you mean sha256?", "did you mean parser?", "did you mean succeeded?", "write header:NAME"):
        assert cure in message


BASE = 'name = "acme"\n'
READ = "readings = { done = 'succeeded' }\n"
NEEDED = "[create]\npath = '/jobs'\njob_id = 'body:id'\n[status]\npath = '/jobs/{remote_job_id}'\nstate = 'body:s'\n"
CREATE = "[create]\n[status]\nreadings = { done = 'succeeded' }\n"
TOKEN = "[signature]\nprimitive = 'jwt'\ntoken = { in = 'bearer' }\n"
ASYMMETRIC = "[signature]\nprimitive = 'asym'\nmessage = '{body}'\nsig = { in = 'header', name = 'X' }\n"
SIGNED = '[signature]\nprimitive = "hmac"\nmessage = "{body}"\nsig = { in = "header", name = "X" }\n'


@pytest.mark.parametrize(
    ("text", "key", "words"),
    [
        ("[create]", "create", "needs a [status]"),
        ("[cancel]", "cancel", "needs a [status]"),
        ("[result]", "result", "needs a [status]"),
        ("[status]", "status.readings", "missing"),
        (CREATE + "[recovery]\nstrategies = ['resend']", "recovery.strategies", "second job"),
        (
            CREATE + "[create.token]\nin = 'header'\nname = 'K'\n[recovery]\nstrategies = ['resend']",
            "recovery.strategies",
            "window_seconds",
        ),
        (CREATE + "[recovery]\nstrategies = ['list']\nmatch = 'a'", "recovery.path", "list needs"),
        (CREATE + "[recovery]\nstrategies = ['lookup']\npath = '/a'", "recovery.match", "compare our echo"),
        ("[recovery]\nstrategies = ['lookup']\npath = '/a'\nmatch = 'b'", "recovery.strategies", "nothing to recover"),
        (CREATE + "[recovery]\nreplay_guaranteed = true", "recovery.replay_guaranteed", "resend"),
        (CREATE + "[recovery]\nstrategies = ['guess']", "recovery.strategies", "use one of resend"),
        (CREATE.replace("[create]", "[create]\npath = '/{remote_job_id}'"), "create.path", "no value here"),
        (CREATE.replace("[create]", "[create]\npath = '/{a'"), "create.path", "brace"),
        (CREATE.replace("[create]", "[create]\naccepted = [422]"), "create.accepted", "decide"),
        (CREATE.replace("[create]", "[create]\nadd = { a = '{credential}' }"), "create.add.a", "no value here"),
        (CREATE.replace("[create]", "[create]\naction = 5"), "create.action", "must be a text"),
        (CREATE.replace("[create]", "[create]\nencoding = 'xml'"), "create.encoding", "use one of json, form"),
        (CREATE + "[create.token]\nin = 'header'", "create.token.name", "missing"),
        (CREATE + "[cancel]\npath = 'x'", "cancel.path", "begin with /"),
        (CREATE + "[result]\n[[result.files]]\nrole = 'a'", "result.files[0]", "not both"),
        (CREATE + "[result]\n[[result.files]]\npath = '/{result.gone}'", "result.files[0].path", "no value here"),
        (CREATE + "[result]\norigins = ['https://x/y']", "result.origins", "origin alone"),
        (CREATE.replace("[status]", "[status]\npoll_seconds = -5"), "status.poll_seconds", "negative"),
        (CREATE.replace("[status]", "[status]\npoll_seconds = true"), "status.poll_seconds", "whole number"),
        ("[limits]\nrate_per_second = 0", "limits.rate_per_second", "above 0"),
        ("[auth]\nvalue = 'Bearer {token}'", "auth.value", "{credential}"),
        ("[retry]\nsuccess_status = 404", "retry.success_status", "deliver again"),
        ("[event]\ntime_unit = 'us'", "event.time_unit", "is not allowed"),
        ("trace_header = 'a b'", "trace_header", "not a header name"),
        ("origin = 'ftp://x'", "origin", "origin alone"),
        ("event = 5", "event", "must be a table"),
        ("signature = 5", "signature", "must be a table"),
        ("[signature]\nprimitive = 'jwt'", "signature.algs", "is missing"),
        (TOKEN + "algs = ['none']", "signature.algs", "is not allowed"),
        (TOKEN + "algs = ['HS256', 'RS256']", "signature.algs", "'RS256' is not allowed"),
        (TOKEN + "algs = ['HS256']\nkeysource = { kind = 'jwks', url = 'https://h/k' }", "signature.algs", "'HS256' is not allowed"),
        (TOKEN + "algs = ['RS256']\nkeysource = { kind = 'jwks' }", "signature.keysource.url", "is missing"),
        (TOKEN + "algs = ['RS256']\nkeysource = { kind = 'jwks', url = 'http://h/k' }", "signature.keysource", "no https address"),
        (TOKEN + "algs = ['RS256']\nkeysource = { kind = 'static' }", "signature.keysource.format", "is not allowed"),
        (TOKEN + "algs = ['HS256']\nclaims = { max_age = -1 }", "signature.claims", "max_age"),
        (TOKEN + "algs = ['HS256']\nclaims = { isss = 'x' }", "signature.claims.isss", "did you mean iss?"),
        (TOKEN + "algs = ['HS256']\nclaims = { aud = '{body}' }", "signature.claims", "{param:NAME}"),
        (TOKEN + "algs = ['HS256']\nclaims = { body_hash = { claim = 'h', alg = 'md5' } }", "signature.claims", "sha256"),
        (TOKEN + "algs = ['HS256']\ndetached = { kind = 'some' }", "signature.detached", "body, request"),
        (TOKEN + "algs = ['HS256']\ndetached = { kind = 'body' }\nclaims = {}", "signature.claims", "cannot be"),
        (TOKEN + "algs = ['HS256']\ntimestamp = { in = 'header', name = 'T' }", "signature.timestamp", "required_headers"),
        (SIGNED + "claims = {}", "signature.claims", "primitive jwt"),
        (SIGNED + "keysource = { kind = 'jwks', url = 'https://h/k' }", "signature.keysource.kind", "needs a secret"),
        (ASYMMETRIC + "alg = 'rsa-sha1'\nkeysource = { kind = 'jwks', url = 'https://h/k' }", "signature.alg", "is not allowed"),
        (
            ASYMMETRIC + "alg = 'ed25519'\nkeysource = { kind = 'jwks', uri = 'https://h/k' }",
            "signature.keysource.uri",
            "did you mean url?",
        ),
        (ASYMMETRIC + "alg = 'rsa-sha256'\nkeysource = { kind = 'cert_url', header = 'U' }", "signature.keysource.host_re", "is missing"),
        (ASYMMETRIC + "alg = 'rsa-sha256'\nkeysource = { kind = 'cert_url', host_re = 'a' }", "signature.keysource", "header or json"),
        (
            ASYMMETRIC + "alg = 'rsa-sha256'\nkeysource = { kind = 'cert_url', header = 'U', host_re = '.+' }",
            "signature.keysource.host_re",
            "anybody",
        ),
        (
            ASYMMETRIC + "alg = 'rsa-sha256'\nkeysource = { kind = 'cert_url', header = 'U', host_re = '(' }",
            "signature.keysource.host_re",
            "no regular",
        ),
        (
            ASYMMETRIC + "alg = { header = 'A', map = { x = 'md5' } }\nkeysource = { kind = 'cert_url', header = 'U', host_re = 'a' }",
            "signature.alg",
            "one of",
        ),
        (ASYMMETRIC + "alg = { header = 'A', map = { x = 'ed25519' } }", "signature.alg", "cert_url"),
        ("[signature]\nprimitive = 'httpsig'\nalg = 'hmac-sha256'", "signature.alg", "leave it out"),
        ("[signature]\nprimitive = 'httpsig'\nkeysource = { kind = 'secret' }", "signature.alg", "is not allowed"),
        ("[signature]\nprimitive = 'httpsig'\ncovers = { labels = 'x' }", "signature.covers.labels", "did you mean label?"),
        ("[signature]\nprimitive = 'httpsig'\ncovers = { components = 'x' }", "signature.covers.components", "list"),
        ("[signature]\nprimitive = 'httpsig'\ntimestamp = { in = 'header', name = 'Date' }", "signature.timestamp", "created"),
        ("[signature]\nprimitive = 'hmack'", "signature.primitive", "did you mean hmac?"),
        ("[signature]\nprimitive = 'hmac'\nsig = { in = 'header', name = 'X' }", "signature.message", "missing"),
        ("[signature]\nprimitive = 'hmac'\nmessage = '{body}'", "signature.sig", "missing"),
        (SIGNED.replace("{body}", "{body}{secret}"), "signature.message", "primitive hash"),
        (SIGNED.replace("hmac", "hash"), "signature.message", "primitive hash"),
        (
            SIGNED + "timestamp = { in = 'header', name = 'T' }\nalg = 'sha256'".replace("{body}", "x"),
            "signature.timestamp",
            "prove nothing",
        ),
        (SIGNED + "encoding = 'base46'", "signature.encoding", "did you mean base64?"),
        (SIGNED + "key = 'utf-8'", "signature.key", "did you mean utf8?"),
        (SIGNED.replace('name = "X"', 'name = "X", parser = "kv"'), "signature.sig.key", "needs it"),
        (SIGNED.replace('name = "X"', 'name = "X", parser = "kv", key = "a", sep_re = "("'), "signature.sig.sep_re", "regular expression"),
        (SIGNED.replace('name = "X"', 'name = "X", parser = "kv", key = "a", sep_re = " *"'), "signature.sig.sep_re", "empty text"),
        ("[signature]\nprimitive = 'token'", "signature.token", "missing"),
        ("[signature]\nprimitive = 'token'\ntoken = { in = 'json_each', list = 'v' }", "signature.token.field", "needs it"),
        (2 * SIGNED.replace("[signature]", "[[signature]]\nid = 'a'"), "signature[1].id", "is taken"),
        ("[[samples]]\nmethod = 'POST'", "samples[0]", "name"),
        ("unconfirmed = [1]", "unconfirmed", "list of keys"),
    ],
)
def test_what_the_contract_does_not_support_is_refused_when_loaded(text: str, key: str, words: str) -> None:
    """An unsupported or contradictory policy never reaches an operation: the loader names it with its cure."""
    faults = faults_of(BASE + text)
    assert key in faults, faults
    assert words in faults[key]


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("", {"signature"}),
        ("[event]\nid = 'body:id'", {"signature"}),
        ("signature = []", {"signature"}),
        (SIGNED, {"event"}),
        (SIGNED + "[event]\nid = 'body:id'\n" + NEEDED + READ, {"event.job_id"}),
        (NEEDED + READ + "[event]\nid = 'body:id'", {"event"}),
        ("[create]\n[cancel]\n[status]\n" + READ, {"create.path", "create.job_id", "cancel.path", "status.path", "status.state"}),
    ],
)
def test_what_cannot_work_is_no_contract(text: str, keys: set[str]) -> None:
    """An address or a place is never guessed, and deliveries need a signature and a map: what is missing is named."""
    faults = faults_of(BASE + text)
    assert set(faults) == keys, faults
    assert all("is missing" in told or "needs a [signature]" in told for told in faults.values())


def test_a_contract_without_signature_is_only_polled() -> None:
    """A provider that sends nothing is a contract too: its jobs are read."""
    assert load((BASE + NEEDED + READ).encode()).signatures == ()


def test_a_contract_without_status_is_receive_only() -> None:
    """Deliveries need neither create nor status."""
    contract = load((BASE + SIGNED + "[event]").encode())
    assert contract.status is None
    assert contract.create is None


def test_an_open_future_is_closed_unless_the_contract_says_none() -> None:
    """The future side of a window defaults to the past side (B006)."""
    stamped = SIGNED.replace("{body}", "{ts}{body}")
    for rule, future in (
        ("", 300),
        ("tolerance = 60", 60),
        ("tolerance = 60, future = 0", 0),
        ('future = "none"', None),
        ('tolerance = "none"', None),
    ):
        extra = f", {rule}" if rule else ""
        timestamp = load((BASE + stamped + f'timestamp = {{ in = "header", name = "T"{extra} }}\n[event]').encode()).signatures[0].timestamp
        assert timestamp is not None
        assert timestamp.future_seconds == future


@pytest.mark.parametrize(
    ("data", "line", "words"),
    [
        (b"a = 1\nb = \n", 2, "TOML"),
        (b"a = 1\na = 2\n", 0, "TOML"),
        (b'a = "x\xff"\n', 1, "UTF-8"),
        (b"a = " + b"[" * 10_000, 0, "TOML"),
        (b"#" * (MAX_BYTES + 1), 0, "bytes"),
        (b"a = " + b"9" * 5_000, 0, "TOML"),
    ],
)
def test_what_is_no_toml_is_one_clear_fault(data: bytes, line: int, words: str) -> None:
    """A syntax error, other bytes, endless nesting and an endless file are told in one line."""
    with pytest.raises(ContractError) as caught:
        load(data)
    (fault,) = caught.value.faults
    assert words in fault.message
    assert fault.line >= line


LINES = FULL.splitlines()
VALUES = st.sampled_from(["5", '""', '"x"', "[]", "{}", "true", "1.5", "[[1]]", "2026-01-01", '["a", 5]', "{ a = 1 }", '"{x"', '"body:["'])


@given(st.integers(0, len(LINES) - 1), VALUES)
def test_any_value_in_any_place_is_a_contract_or_faults(index: int, value: str) -> None:
    """Whatever stands behind a key, the loader answers with a contract or with faults, never with another exception."""
    line = re.sub(r"=.*", lambda _: f"= {value}", LINES[index], count=1)
    with suppress(ContractError):
        assert load("\n".join([*LINES[:index], line, *LINES[index + 1 :]]).encode()).digest


@given(st.binary(max_size=200))
def test_any_bytes_are_a_contract_or_faults(data: bytes) -> None:
    """A file of any bytes is refused with faults."""
    with pytest.raises(ContractError):
        load(data)


_JOB = 'name = "x"\n[status]\npath = "/{remote_job_id}"\nstate = "body:s"\nreadings = { done = "succeeded" }\n[result]\n'


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        ('[[result.files]]\nurl = "body:u"\nrecords = "data"', 9, "place of the array"),
        ('[[result.files]]\nurl = "body:u"\nformat = "json"\nrecords = "a..b"', 10, "dots between"),
        ('[[result.files]]\nurl = "body:u"\ncompression = "gzip"', 9, "never inflated"),
        ('[[result.files]]\nurl = "body:u"\n[result.files.items]\nid = "i"', 9, "needs format"),
        ('[[result.files]]\nurl = "body:u"\nformat = "jsonl"\n[result.files.items]\nfailed = true', 10, "names its item"),
        ('[[result.files]]\nurl = "body:u"\nformat = "jsonl"\n[result.files.items]\nid = "i"\noutcome = "o"', 12, "go together"),
        ('[[result.files]]\nurl = "body:u"\nformat = "jsonl"\n[result.files.items]\nid = "the id"', 11, "JMESPath"),
        ('total = "body:n"\n[[result.files]]\nurl = "body:u"', 7, "nothing else can be missing"),
        ('max_record_bytes = 0\n[[result.files]]\nurl = "body:u"', 7, "1 or more"),
        ('[[result.files]]\nurl = "body:u"\nformat = "xml"', 9, "opaque, jsonl, csv, json"),
    ],
)
def test_what_is_said_about_records_must_fit_together(text: str, line: int, word: str) -> None:
    """F5: each contradiction is refused at load time with its line and cure."""
    with pytest.raises(ContractError) as raised:
        load((_JOB + text).encode())
    assert [(fault.line, word in fault.message) for fault in raised.value.faults] == [(line, True)], raised.value.faults


def test_columns_of_a_sheet_need_no_expression() -> None:
    """F5: a column's name may have spaces."""
    text = '[[result.files]]\nurl = "body:u"\nformat = "csv"\n[result.files.items]\nid = "the id"\noutcome = "how it went"\nok = ["well"]'
    contract = load((_JOB + text).encode())
    assert contract.result is not None
    assert contract.result.files[0].items is not None


@pytest.mark.parametrize(
    ("limits", "schemes", "expected"),
    [
        ("", '[signature]\nprimitive = "refetch"\n', 65_536),
        ("[limits]\nconcurrency = 2\n", '[signature]\nprimitive = "refetch"\n', 65_536),
        ("[limits]\ndelivery_bytes = 500000\n", '[signature]\nprimitive = "refetch"\n', 500_000),
        ("", '[[signature]]\nprimitive = "refetch"\n[[signature]]\nprimitive = "token"\ntoken = { in = "query", name = "t" }\n', 1_048_576),
    ],
)
def test_what_anybody_can_send_is_small_unless_the_contract_says_otherwise(limits: str, schemes: str, expected: int) -> None:
    """An unsigned delivery only names a job; a stranger cannot fill the disk with megabytes of it (B8, B10)."""
    text = f'name = "p"\n{schemes}[event]\nbody_signed = false\njob_id = "body:id"\n{limits}'
    assert load(text.encode()).limits.delivery_bytes == expected
