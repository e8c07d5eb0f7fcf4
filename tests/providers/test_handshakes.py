"""Handshakes: each kind answers as its provider wants; none reflects markup, fetches, or signs what a stranger wants (B9, B154)."""

import hashlib
import hmac
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.contract import ContractError, load
from providers.handshakes import answer, distrusted
from providers.verification import prepare
from schemas.contract import Contract
from schemas.delivery import HandshakeAnswer, InboundRequest, Reason, Refused, Secret, Verdict, Verified

FOLDER = Path(__file__).parents[2] / "providers" / "contracts"
NOW = 1_767_225_600_000_000
SECRETS = (Secret(id="old", value=b"old-secret"), Secret(id="new", value=b"new-secret"))
GENUINE = Verified(scheme_id="s", secret_id="new")
FORGED = Refused(reason=Reason.WRONG_SIGNATURE)
STALE = Refused(reason=Reason.TOO_OLD, genuine=True)
SAFE = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
PLAIN = SAFE | {"Content-Type": "text/plain; charset=utf-8"}
JSON = SAFE | {"Content-Type": "application/json"}


def shipped(name: str) -> Contract:
    return load((FOLDER / f"{name}.toml").read_bytes())


ACME = """name = "acme"
[signature]
primitive = "hmac"
message = "{body}"
sig = { in = "header", name = "X" }
[event]
"""


def made(handshake: str) -> Contract:
    return load((ACME + "[[handshake]]\n" + handshake).encode())


def request(method: str = "POST", query: str = "", headers: dict[str, str] | None = None, body: Any = None) -> InboundRequest:
    lines = {"content-type": "application/json"} if body is not None else {}
    lines |= {name.lower(): value for name, value in (headers or {}).items()}
    return InboundRequest(
        method=method,
        path=b"/webhooks/acme",
        query=query.encode(),
        headers=tuple((name.encode(), value.encode()) for name, value in lines.items()),
        body=b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode(),
    )


def asked(
    contract: Contract,
    what: InboundRequest,
    verdict: Verdict | None = None,
    *,
    secrets: tuple[Secret, ...] = SECRETS,
    **params: str,
) -> HandshakeAnswer | None:
    return answer(contract, what, verdict, secrets=secrets, params=params, now=NOW)


def told(found: HandshakeAnswer | None) -> tuple[int, dict[str, str], bytes]:
    assert found is not None
    assert found.accepted, found.reason
    assert found.answered_at == NOW
    return found.status, dict(found.headers), found.body


def digest(secret: bytes, text: str, algorithm: str = "sha256") -> str:
    return hmac.new(secret, text.encode(), algorithm).hexdigest()


def test_front_s_signed_challenge_is_wrapped_in_json() -> None:
    """A signed request with X-Front-Challenge is answered with the challenge; an unsigned one, or one without it, is none."""
    sync = request(headers={"X-Front-Challenge": "abc-123"}, body={"type": "sync", "authorization": {"id": "cmp_1"}})
    assert told(asked(shipped("front"), sync, GENUINE)) == (200, JSON, b'{"challenge": "abc-123"}')
    assert asked(shipped("front"), sync, None) is None
    assert asked(shipped("front"), sync, FORGED) is None
    assert asked(shipped("front"), request(body={"type": "inbound_received"}), GENUINE) is None


def test_a_challenge_that_anybody_may_have_signed_is_no_delivery() -> None:
    """Braintree's challenge is answered with the key of the deliveries: what has its form is refused however it is signed (B9)."""
    contract = shipped("braintree")
    for challenge, signed in (("0123456789abcdef0123", True), ("bm90aWZpY2F0aW9uLz48YS8+", False), ("0123456789ABCDEF0123", False)):
        found = asked(contract, request("GET", f"bt_challenge={challenge}"), public_key="ours")
        assert found is not None
        assert found.accepted is signed
        if not signed:
            continue
        form = f"bt_signature={found.body.decode()}&bt_payload={challenge}".encode()
        forged = replace(request(), headers=((b"content-type", b"application/x-www-form-urlencoded"),), body=form)
        verdict = prepare(contract.signatures, SECRETS, {"public_key": "ours"}).verify(forged, NOW)
        assert isinstance(verdict, Verified), "the signature is right: that is the attack"
        refused = distrusted(contract, verdict)
        assert isinstance(refused, Refused)
        assert not refused.genuine
    genuine = Verified(scheme_id="s", secret_id="new", signed=b"PD94bWwgdmVyc2lvbj0iMS4wIiBlbmNvZGluZz0iVVRGLTgiPz4K")
    assert distrusted(contract, genuine) == genuine
    assert distrusted(contract, FORGED) == FORGED
    assert distrusted(shipped("zoom"), replace(genuine, signed=b"0123456789abcdef0123")).secret_id == "new"


# --- the twelve kinds


def test_query_echo_after_a_word_of_ours() -> None:
    """Meta's GET is echoed as text when the word is the account's, and only then."""
    query = "hub.mode=subscribe&hub.verify_token=our-word&hub.challenge=1158201444"
    assert told(asked(shipped("meta"), request("GET", query), verify_token="our-word")) == (200, PLAIN, b"1158201444")
    for word in ("another", "our-wor", ""):
        refused = asked(shipped("meta"), request("GET", query), verify_token=word)
        assert refused is not None
        assert (refused.accepted, refused.status, refused.body) == (False, 403, b"")
    empty = request("GET", "hub.mode=subscribe&hub.verify_token=&hub.challenge=1")
    for unset in (asked(shipped("meta"), empty), asked(shipped("meta"), empty, verify_token="")):
        assert unset is not None
        assert (unset.accepted, unset.body) == (False, b"")
    assert asked(shipped("meta"), request("GET", query.replace("subscribe", "unsubscribe")), verify_token="our-word") is None


def test_query_echo_of_a_post_with_spaces() -> None:
    """Microsoft Graph asks with a POST, and its token is decoded first."""
    query = "validationToken=Validation%3A+Testing+client+application+reachability+for+subscription+Request-Id%3A+b5f2"
    status, headers, body = told(asked(shipped("msgraph"), request("POST", query)))
    assert (status, headers) == (200, PLAIN)
    assert body == b"Validation: Testing client application reachability for subscription Request-Id: b5f2"


def test_json_echo_as_text_and_as_json() -> None:
    """Slack and Twitch want the challenge as text, Event Grid inside JSON; all after the signature."""
    slack = request(body={"type": "url_verification", "token": "x", "challenge": "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P"})
    assert told(asked(shipped("slack"), slack, GENUINE))[1:] == (PLAIN, b"3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P")
    twitch = request(headers={"Twitch-Eventsub-Message-Type": "webhook_callback_verification"}, body={"challenge": "pogchamp-kappa-360"})
    assert told(asked(shipped("twitch"), twitch, GENUINE))[2] == b"pogchamp-kappa-360"
    grid = request(headers={"aeg-event-type": "SubscriptionValidation"}, body=[{"data": {"validationCode": "512d38b6-c7b8"}}])
    assert told(asked(shipped("azure-eventgrid"), grid, GENUINE)) == (200, JSON, b'{"validationResponse": "512d38b6-c7b8"}')


def test_header_echo() -> None:
    """RingCentral's kind: the header comes back as it was."""
    contract = made('kind = "header_echo"\nwhen = "before"\nchallenge = "header:Validation-Token"\nheader = "Validation-Token"')
    assert told(asked(contract, request(headers={"Validation-Token": "a-b_c.1"}))) == (200, SAFE | {"Validation-Token": "a-b_c.1"}, b"")


def test_challenge_hmac_with_the_secret_that_matched() -> None:
    """Zoom's and Smartcar's kind: the answer is made with the secret by which the request was genuine."""
    zoom = request(body={"event": "endpoint.url_validation", "payload": {"plainToken": "qgg8vlvZRS6UYooatFL8Aw"}})
    status, headers, body = told(asked(shipped("zoom"), zoom, GENUINE))
    wanted = {"plainToken": "qgg8vlvZRS6UYooatFL8Aw", "encryptedToken": digest(b"new-secret", "qgg8vlvZRS6UYooatFL8Aw")}
    assert (status, headers, json.loads(body)) == (200, JSON, wanted)
    car = request(body={"eventType": "VERIFY", "eventId": "e", "data": {"challenge": "3a51-bb"}})
    assert json.loads(told(asked(shipped("smartcar"), car, GENUINE))[2]) == {"challenge": digest(b"new-secret", "3a51-bb")}


def test_challenge_hmac_before_a_signature_signs_hex_only() -> None:
    """Braintree's GET: an unsigned challenge, so nothing but its own 20 to 32 characters is ever signed."""
    challenge = "20f9f8ed05f77439fe955c977e4c8a53"
    key = hashlib.sha1(b"old-secret", usedforsecurity=False).digest()
    found = told(asked(shipped("braintree"), request("GET", f"bt_challenge={challenge}"), public_key="ours"))
    assert found == (200, PLAIN, f"ours|{digest(key, challenge, 'sha1')}".encode())
    for bad in ("short", "f" * 33, "PD94bWw%3D%3Cx%3E" + "a" * 16):
        refused = asked(shipped("braintree"), request("GET", f"bt_challenge={bad}"), public_key="ours")
        assert refused is not None
        assert (refused.accepted, refused.status, refused.body) == (False, 400, b"")
    unnamed = asked(shipped("braintree"), request("GET", f"bt_challenge={challenge}"))
    assert unnamed is not None
    assert not unnamed.accepted
    keyless = asked(shipped("braintree"), request("GET", f"bt_challenge={challenge}"), public_key="ours", secrets=())
    assert keyless is not None
    assert (keyless.accepted, keyless.status) == (False, 401)


def test_header_json() -> None:
    """Okta's kind: the header's value inside JSON."""
    rule = (
        'kind = "header_json"\nwhen = "before"\nchallenge = "header:X-Okta-Verification-Challenge"\njson = { verification = "{challenge}" }'
    )
    found = told(asked(made(rule), request("GET", headers={"X-Okta-Verification-Challenge": "wo9-7"})))
    assert found == (200, JSON, b'{"verification": "wo9-7"}')


def test_typed_ping_and_probe() -> None:
    """Discord's PING gets its type, and its wrong signatures get 401 without a word."""
    assert told(asked(shipped("discord"), request(body={"type": 1}), GENUINE)) == (200, JSON, b'{"type":1}')
    assert asked(shipped("discord"), request(body={"type": 2}), GENUINE) is None
    probed = asked(shipped("discord"), request(body={"type": 1}), FORGED)
    assert probed == HandshakeAnswer(kind="probe", status=401, accepted=False, reason="wrong_signature", answered_at=NOW)
    assert asked(shipped("xero"), request(body={"events": []}), FORGED) == probed
    assert told(asked(shipped("xero"), request(body={"events": []}), GENUINE)) == (200, SAFE, b"")


CONFIRM = "https://sns.eu-west-1.amazonaws.com/?Action=ConfirmSubscription&TopicArn=arn:aws:sns:eu-west-1:1:t&Token=2336412f37"
CONFIRMING = (
    'kind = "fetch_url"\nmatch = { "body:Type" = "SubscriptionConfirmation" }\nchallenge = "body:SubscribeURL"\nmax_length = 2048\n'
)
CONFIRMING += "host_re = 'sns\\.[a-z0-9-]{3,}\\.amazonaws\\.com(\\.cn)?'\nquery = { Action = \"ConfirmSubscription\" }"


def confirmation(url: Any) -> InboundRequest:
    return request(body={"Type": "SubscriptionConfirmation", "SubscribeURL": url})


def test_fetch_url_is_named_and_never_fetched() -> None:
    """The answer names the address for the reconciler; it is not shown where answers are logged (B154)."""
    found = asked(made(CONFIRMING), confirmation(CONFIRM), GENUINE)
    assert told(found) == (200, SAFE, b"")
    assert found is not None
    assert found.fetch_url == CONFIRM
    assert "Token" not in repr(found)


@pytest.mark.parametrize(
    "url",
    [
        CONFIRM.replace("https", "http"),
        CONFIRM.replace("amazonaws.com", "amazonaws.com.evil.test"),
        CONFIRM.replace("https://sns", "https://evil.test/?x=sns"),
        CONFIRM.replace("https://", "https://sns.eu-west-1.amazonaws.com@evil.test/"),
        CONFIRM.replace(".com/", ".com:8080/"),
        CONFIRM.replace("ConfirmSubscription", "DeleteTopic"),
        CONFIRM + "&Action=DeleteTopic",
        CONFIRM + "#x",
        CONFIRM + "\r\nX: y",
        "https://169.254.169.254/?Action=ConfirmSubscription",
        "https://[::1]/?Action=ConfirmSubscription",
        CONFIRM + "a" * 2_048,
        7,
        {"a": 1},
    ],
)
def test_fetch_url_only_of_the_declared_hosts(url: Any) -> None:
    """An address of another host, scheme, port or form is refused, signed or not: no SSRF (B154)."""
    found = asked(made(CONFIRMING), confirmation(url), GENUINE)
    assert found is not None
    assert (found.accepted, found.fetch_url, found.body) == (False, "", b"")


def test_options_for_a_declared_origin() -> None:
    """CloudEvents' question: only an origin of the contract is let in, and its callback is never called."""
    ask = {"WebHook-Request-Origin": "eventgrid.azure.net", "WebHook-Request-Callback": "https://evil.test/x"}
    status, headers, body = told(asked(shipped("azure-eventgrid"), request("OPTIONS", headers=ask), GENUINE))
    assert (status, headers["WebHook-Allowed-Origin"], headers["Allow"], body) == (200, "eventgrid.azure.net", "POST", b"")
    ask["WebHook-Request-Origin"] = "evil.test"
    refused = asked(shipped("azure-eventgrid"), request("OPTIONS", headers=ask), GENUINE)
    assert refused is not None
    assert (refused.accepted, refused.status) == (False, 403)
    assert asked(shipped("azure-eventgrid"), request("OPTIONS"), GENUINE) is None


def test_secret_capture_once() -> None:
    """Asana's and Notion's keys are taken where there is none yet, echoed where asked, and never shown; never replaced (B11)."""
    hook = request(headers={"X-Hook-Secret": "b537207f20cbfa02357cf448134da559"}, body={})
    taken = asked(shipped("asana"), hook, secrets=())
    assert told(taken) == (200, SAFE | {"X-Hook-Secret": "b537207f20cbfa02357cf448134da559"}, b"")
    assert taken is not None
    assert taken.capture == b"b537207f20cbfa02357cf448134da559"
    token = asked(shipped("notion"), request(body={"verification_token": "secret_tMrlL1qK5vuQAh1b6cZGhFChZTSYJlce98V0pYn7yBl"}), secrets=())
    assert token is not None
    assert token.capture.startswith(b"secret_tMrl")
    assert "tMrl" not in repr(token)
    again = asked(shipped("asana"), hook)
    assert again is not None
    assert (again.accepted, again.status, again.capture) == (False, 403, b"")


def test_head_ok_and_fixed_reply() -> None:
    """Trello's and Mandrill's HEAD, and the check-ups that are about nothing."""
    assert told(asked(shipped("trello"), request("HEAD"))) == (200, SAFE, b"")
    form = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}
    assert told(asked(shipped("mandrill"), request(headers=form, body=b"mandrill_events=%5B%5D")))[2] == b""
    assert told(asked(shipped("woocommerce"), request(headers=form, body=b"webhook_id=5")))[0] == 200
    assert asked(shipped("woocommerce"), request(body={"webhook_id": 5})) is None
    assert told(asked(shipped("line"), request(body={"destination": "U", "events": []}), GENUINE))[0] == 200
    assert asked(shipped("line"), request(body={"events": [{"type": "message"}]}), GENUINE) is None
    assert told(asked(shipped("github"), request(headers={"X-GitHub-Event": "ping"}, body={"zen": "x"}), GENUINE))[0] == 200


# --- what holds for all


SIGNED = {
    "slack": request(body={"type": "url_verification", "challenge": "abc"}),
    "twitch": request(headers={"Twitch-Eventsub-Message-Type": "webhook_callback_verification"}, body={"challenge": "abc"}),
    "zoom": request(body={"event": "endpoint.url_validation", "payload": {"plainToken": "abc"}}),
    "smartcar": request(body={"eventType": "VERIFY", "data": {"challenge": "abc"}}),
    "azure-eventgrid": request(headers={"aeg-event-type": "SubscriptionValidation"}, body=[{"data": {"validationCode": "abc"}}]),
}


@pytest.mark.parametrize("name", SIGNED)
def test_an_unsigned_challenge_is_not_answered_where_the_provider_signs(name: str) -> None:
    """Before the signature, with a wrong one and with a stale one there is no answer: the receiver refuses as always (B154)."""
    contract = shipped(name)
    told(asked(contract, SIGNED[name], GENUINE))
    assert [asked(contract, SIGNED[name], verdict) for verdict in (None, FORGED, STALE)] == [None, None, None]


def test_an_unsigned_confirmation_makes_no_fetch() -> None:
    """The same for an address to fetch: no verdict, no address (B154)."""
    assert [asked(made(CONFIRMING), confirmation(CONFIRM), verdict) for verdict in (None, FORGED, STALE)] == [None, None, None]


@pytest.mark.parametrize(
    "bad", ["<script>alert(1)</script>", 'a"b', "a'b", "a&b", "a\r\nSet-Cookie: x=1", '{"id":1}', "", "é", "a" * 513, 7, None, ["a"]]
)
def test_a_challenge_of_another_alphabet_is_refused(bad: Any) -> None:
    """No markup is reflected, no header is split, no document is signed (B9)."""
    for name, body in (
        ("slack", {"type": "url_verification", "challenge": bad}),
        ("zoom", {"event": "endpoint.url_validation", "payload": {"plainToken": bad}}),
    ):
        found = asked(shipped(name), request(body=body), GENUINE)
        assert found is None or (not found.accepted and not found.body and 400 <= found.status < 500)


@given(body=st.binary(max_size=200), query=st.binary(max_size=100), method=st.sampled_from(["GET", "POST", "HEAD", "OPTIONS", "PUT"]))
def test_any_bytes_get_an_answer_or_none(body: bytes, query: bytes, method: str) -> None:
    """Nothing a stranger sends raises, and what comes back holds no markup (B9, B1)."""
    what = InboundRequest(method=method, path=b"/", query=b"challenge=" + query, headers=((b"x-hook-secret", body),), body=body)
    for contract in ALL:
        for verdict in (None, GENUINE, FORGED):
            found = asked(contract, what, verdict, secrets=(), verify_token="x")
            if found is not None:
                assert not set(found.body) & set(b"<>")
                assert not any("\r" in value or "\n" in value for _, value in found.headers)


ALL = [load(file.read_bytes()) for file in sorted(FOLDER.glob("*.toml")) if b"[[handshake]]" in file.read_bytes()]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('kind = "query_ehco"', "kind"),
        ("challenge = 1", "kind"),
        ("kind = 1", "kind"),
        ('kind = "query_echo"', "challenge"),
        ('kind = "json_echo"\nchallenge = "query:x"', "challenge"),
        ('kind = "header_echo"\nchallenge = "header:x"', "header"),
        ('kind = "header_json"\nchallenge = "header:x"', "json"),
        ('kind = "typed_ping"\nmatch = { "body:a" = "1" }', "body"),
        ('kind = "fixed_reply"', "match"),
        ('kind = "options"', "allow"),
        ('kind = "probe"\nwhen = "before"', "when"),
        ('kind = "secret_capture"\nchallenge = "body:t"', "when"),
        ('kind = "fetch_url"\nwhen = "before"\nchallenge = "body:u"\nhost_re = "a"', "when"),
        ('kind = "fetch_url"\nchallenge = "body:u"', "host_re"),
        ('kind = "fetch_url"\nchallenge = "body:u"\nhost_re = "("', "host_re"),
        ('kind = "fetch_url"\nchallenge = "body:u"\nhost_re = ".*"', "host_re"),
        ('kind = "query_echo"\nchallenge = "query:c"\nalso = "<"', "also"),
        ('kind = "challenge_hmac"\nchallenge = "query:c"\nalso = "{}"', "also"),
        ('kind = "query_echo"\nchallenge = "query:c"\nmax_length = 9000', "max_length"),
        ('kind = "query_echo"\nchallenge = "query:c"\nstatus = 302', "status"),
        ('kind = "query_echo"\nchallenge = "query:c"\ntext = "{secret}"', ""),
        ('kind = "challenge_hmac"\nchallenge = "query:c"\nalg = "md5"', "alg"),
        ('kind = "challenge_hmac"\nchallenge = "query:c"\nkey = "rot13"', "key"),
        ('kind = "challenge_hmac"\nchallenge = "query:c"\nencoding = "base32"', "encoding"),
        ('kind = "query_echo"\nchallenge = "query:c"\nmethod = "TRACE"', "method"),
        ('kind = "head_ok"\nmatch = { nonsense = "x" }', ""),
        ('kind = "header_echo"\nchallenge = "header:x"\nheader = "a b"', "header"),
        ('kind = "query_echo"\nchallenge = "query:c"\nmaxlength = 9', "maxlength"),
    ],
)
def test_a_handshake_that_cannot_work_is_refused_when_it_is_loaded(text: str, key: str) -> None:
    """Every fault names its key; an address is never fetched for an unsigned message, whatever a contract says (B154)."""
    with pytest.raises(ContractError) as error:
        made(text)
    assert any(fault.key == ".".join(filter(None, ("handshake[0]", key))) for fault in error.value.faults)


def test_a_single_table_is_a_handshake_too() -> None:
    """`[handshake]` and `[[handshake]]` are read alike."""
    contract = load((ACME + '[handshake]\nkind = "head_ok"\nwhen = "before"\n').encode())
    assert told(asked(contract, request("HEAD"))) == (200, SAFE, b"")
