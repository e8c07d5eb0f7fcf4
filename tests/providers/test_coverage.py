"""What a signature does not bind is never believed: the loader refuses contracts that claim more, and a free body is its own key."""

import json

import pytest

from providers.contract import ContractError, load
from providers.coverage import covers_body, covers_place
from providers.mapping import events
from schemas.delivery import Event, InboundRequest

HEADER = 'sig = { in = "header", name = "X-Signature" }\n'
SCHEMES = {
    "body": '[signature]\nprimitive = "hmac"\nmessage = "{body}"\n' + HEADER,
    "id-and-body": '[signature]\nprimitive = "hmac"\nmessage = "{header:X-Id}.{body}"\n' + HEADER,
    "digest": '[signature]\nprimitive = "hmac"\nmessage = "{header:x-id}{sha256_body_hex}"\n' + HEADER,
    "crc": '[signature]\nprimitive = "hmac"\nmessage = "{header:X-Id}{crc32_body}"\n' + HEADER,
    "fields": '[signature]\nprimitive = "hmac"\nmessage = "{json:type}@{json:id}"\n' + HEADER,
    "two-forms": '[signature]\nprimitive = "hmac"\nmessage = ["{body}", "{url}"]\n' + HEADER,
    "url": '[signature]\nprimitive = "hmac"\nmessage = "{url}"\n' + HEADER,
    "url-digest": '[signature]\nprimitive = "hmac"\nmessage = "{url}"\nbody_digest = { in = "query", name = "sha" }\n' + HEADER,
    "segments": '[signature]\nprimitive = "hmac"\nmessage = { segments = [["{body}", "header:X-Id"], ["{method}"]] }\n' + HEADER,
    "token": '[signature]\nprimitive = "token"\ntoken = { in = "header", name = "X-Token" }\n',
    "refetch": '[signature]\nprimitive = "refetch"\n',
    "jwt": '[signature]\nprimitive = "jwt"\nalgs = ["HS256"]\ntoken = { in = "bearer" }\n',
    "jwt-body": '[signature]\nprimitive = "jwt"\nalgs = ["HS256"]\ntoken = { in = "bearer" }\nclaims = { body_hash = { claim = "h" } }\n',
    "jwt-detached": '[signature]\nprimitive = "jwt"\nalgs = ["HS256"]\ntoken = { in = "bearer" }\ndetached = { kind = "body" }\n',
    "httpsig": '[signature]\nprimitive = "httpsig"\n',
    "httpsig-body": '[signature]\nprimitive = "httpsig"\ncovers = { components = ["@method", "Content-Digest"] }\n',
    "sns": '[signature]\nprimitive = "asym"\nsig = { in = "sns" }\nkeysource = { kind = "cert_url", host_re = "sns[.]aws[.]test" }\n',
}
FREE = "[event]\nbody_signed = false\n"
BOUND = {"body", "id-and-body", "digest", "url-digest", "jwt-body", "jwt-detached", "httpsig-body"}


def loaded(scheme: str, event: str = "", *more: str) -> None:
    load(('name = "acme"\n' + SCHEMES[scheme] + "[event]\n" + event + "\n" + "".join(more)).encode())


def refused(scheme: str, event: str) -> str:
    with pytest.raises(ContractError) as error:
        loaded(scheme, event)
    (fault,) = error.value.faults
    return fault.key


@pytest.mark.parametrize("name", SCHEMES)
def test_which_schemes_bind_the_body(name: str) -> None:
    """A digest inside the signature binds it, a checksum, an address or a token does not; one loose form of several loses it."""
    (scheme,) = load(('name = "acme"\n' + SCHEMES[name] + FREE).encode()).signatures
    assert covers_body(scheme) == (name in BOUND)


@pytest.mark.parametrize("name", SCHEMES)
def test_a_contract_that_believes_a_free_body_is_refused(name: str) -> None:
    """It must say `body_signed = false`, and may always say so (catalogue, section 4)."""
    loaded(name, 'job_id = "body:job"\nbody_signed = false')
    if name in BOUND:
        loaded(name, 'job_id = "body:job"')
    else:
        assert refused(name, 'job_id = "body:job"') == "event.body_signed"


def test_fields_that_are_signed_by_name_may_be_used() -> None:
    """Where only some fields are signed, exactly those are bound."""
    loaded("fields", 'id = "body:id"\ntype = "body:type"')
    assert refused("fields", 'id = "body:id"\ntype = "body:type"\njob_id = "body:job"') == "event.body_signed"
    assert refused("fields", 'id = "body:id"\neach = "items"') == "event.body_signed"
    loaded("sns", 'id = "body:MessageId"\ntype = "body:Type"')
    assert refused("sns", 'id = "body:MessageId"\njob_id = "body:UnsubscribeURL"') == "event.body_signed"


def test_an_id_outside_the_signed_bytes_is_no_key() -> None:
    """A header is bound only where the message names it; a parameter also where the address is signed (B029)."""
    assert refused("body", 'id = "header:X-Id"') == "event.id_signed"
    loaded("body", 'id = "header:X-Id"\nid_signed = false')
    loaded("id-and-body", 'id = "header:x-id"')
    loaded("digest", 'id = "header:X-ID"')
    assert refused("id-and-body", 'id = "header:X-Other"') == "event.id_signed"
    assert refused("jwt-body", 'id = "header:X-Id"') == "event.id_signed"
    assert refused("body", 'id = "query:id"') == "event.id_signed"
    loaded("url-digest", 'id = "query:id"')


def test_every_scheme_of_a_contract_must_bind_it() -> None:
    """A second scheme beside a good one may not be looser: the sender chooses which one it meets."""
    text = 'name = "acme"\n' + "".join(SCHEMES[name].replace("[signature]", "[[signature]]") for name in ("body", "token")) + "[event]\n"
    with pytest.raises(ContractError, match="token-2 does not sign the body"):
        load(text.encode())


def test_coverage_names_places_exactly() -> None:
    """Header names are compared without case, and nothing is bound by half a name."""
    (scheme,) = load(('name = "acme"\n' + SCHEMES["id-and-body"] + FREE).encode()).signatures
    assert covers_place(scheme, "header:x-ID")
    assert not covers_place(scheme, "header:X-I")
    assert covers_place(scheme, "body:anything[0]")


# --- the dedup key of a free body


def mapped(event: str, body: object, signed: bytes = b"12:00 done") -> Event:
    contract = load(('name = "acme"\n' + SCHEMES["token"] + "[event]\nbody_signed = false\n" + event).encode())
    request = InboundRequest(method="POST", path=b"/", query=b"", headers=(), body=json.dumps(body).encode() if body is not None else b"")
    return events(contract, request, signed)[0]


def test_a_free_body_s_digest_is_the_key_whatever_was_signed() -> None:
    """Two events of one second and type are two; a forged body takes no genuine one's place; an id in it is only shown (B3, B8)."""
    one, two = mapped('id = "body:id"', {"id": "e1", "job": 1}), mapped('id = "body:id"', {"id": "e1", "job": 2})
    assert one.dedup_key.startswith("digest:")
    assert one.dedup_key != two.dedup_key
    assert one.event_id == "e1"
    assert one.dedup_key == mapped('id = "body:id"', {"id": "e1", "job": 1}, b"12:05 done").dedup_key
    assert mapped("", None).dedup_key != mapped("", None, b"12:05 done").dedup_key


# --- reply rules


@pytest.mark.parametrize(
    ("rules", "key"),
    [
        ('success = ["2x"]', "retry.success"),
        ('stops_on = ["410", "gone"]', "retry.stops_on"),
        ('success = ["200"]\nsuccess_status = 202', "retry.success_status"),
        ("success = []", "retry.success_status"),
        ("deadline_seconds = 0", "retry.deadline_seconds"),
    ],
)
def test_reply_rules_that_contradict_are_refused(rules: str, key: str) -> None:
    """An answer that the provider does not count as delivered would be repeated for ever."""
    with pytest.raises(ContractError) as error:
        load(('name = "acme"\n[retry]\n' + rules).encode())
    assert key in [fault.key for fault in error.value.faults]


def test_reply_rules_are_read() -> None:
    """The success set, what ends the repeats, and the deadline."""
    rules = '[retry]\nsuccess = ["200"]\nstops_on = ["4xx", "410"]\ndeadline_seconds = 10'
    retry = load(('name = "acme"\n' + SCHEMES["token"] + FREE + rules).encode()).retry
    assert (retry.success, retry.stops_on, retry.deadline_seconds) == (("200",), ("4xx", "410"), 10.0)
