"""Mapping of deliveries: dedup keys that neither collapse nor can be forged, exact ids, and garbage without an error."""

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.mapping import MAX_ELEMENTS, describe, events
from providers.places import is_fit
from schemas.contract import Contract, EventMap
from schemas.delivery import Event, InboundRequest

BODY_MAP = EventMap(
    id="body:id",
    type="body:type",
    job_id="body:data.id",
    client_reference="body:ref",
    state="body:data.status",
    time="body:at",
    time_unit="s",
)
FORM = ((b"content-type", b"application/x-www-form-urlencoded; charset=utf-8"),)


def contract(event: EventMap = BODY_MAP) -> Contract:
    return Contract(name="p", digest="0" * 64, event=event)


def mapped(
    body: bytes, event: EventMap = BODY_MAP, *, signed: bytes | None = None, headers: Any = (), query: bytes = b""
) -> tuple[Event, ...]:
    request = InboundRequest(method="POST", path=b"/", query=query, headers=tuple(headers), body=body)
    return events(contract(event), request, body if signed is None else signed)


def one(body: bytes, event: EventMap = BODY_MAP, **rest: Any) -> Event:
    (event_made,) = mapped(body, event, **rest)
    return event_made


def id_key(text: str) -> str:
    return "id:" + hashlib.sha256(text.encode()).hexdigest()


def digest_key(data: bytes) -> str:
    return "digest:" + hashlib.sha256(data).hexdigest()


def test_a_delivery_says_what_it_is_about() -> None:
    """Every place of the contract is read; a signed id is the dedup key (B3)."""
    body = b'{"id":"evt_1","type":"job.done","ref":"r1","at":1767225600,"data":{"id":12345678901234567890,"status":"ok"}}'
    event = one(body)
    assert describe(event) == {
        "event_id": "evt_1", "event_type": "job.done", "remote_job_id": "12345678901234567890", "client_reference": "r1",
        "claimed_state": "ok", "provider_time": "1767225600000000",
    }  # fmt: skip
    assert (event.dedup_key, event.content_sha256) == (id_key("evt_1"), hashlib.sha256(body).hexdigest())


@pytest.mark.parametrize("bad", ['""', '"  "', "null", "0", "[]", "{}", "true", "1.5"])
def test_a_blank_or_odd_id_is_no_dedup_key(bad: str) -> None:
    """Two different events with the same bad id stay two: the signed bytes are the key (B029)."""
    first, second = (one(f'{{"id":{bad},"n":{n}}}'.encode()) for n in (1, 2))
    assert first.dedup_key != second.dedup_key
    assert first.dedup_key.startswith("digest:")
    assert one(b'{"n":3}').dedup_key == digest_key(b'{"n":3}')


def test_an_integer_id_is_exact_text() -> None:
    """An integer and its decimal text are one id; neighbours above 2^53 stay apart (B3)."""
    assert one(b'{"id":9007199254740993}').dedup_key == id_key("9007199254740993") == one(b'{"id":"9007199254740993"}').dedup_key
    assert one(b'{"id":9007199254740992}').dedup_key != id_key("9007199254740993")


def test_an_id_of_any_length_and_content_is_one_bounded_key() -> None:
    """Ids that agree in their first thousand characters, or differ only in a NUL, are different keys (B137, B141)."""
    long = ["x" * 100_000 + end for end in "ab"]
    keys = {one(json.dumps({"id": text}).encode()).dedup_key for text in [*long, "evt\x00", "evt", "evt\r\n"]}
    assert len(keys) == 5
    assert {len(key) for key in keys} == {67}
    assert one(b'{"id":"evt\\u0000\\r\\n\\u001b[31mx"}').event_id == "evt[31mx"


def test_an_unsigned_id_cannot_make_one_genuine_body_many_events() -> None:
    """An id outside the signed bytes is shown and is not the key: the digest of the signed bytes is (B031, catalogue 4)."""
    rules = EventMap(id="header:X-Delivery", id_signed=False)
    first, second = (one(b"{}", rules, headers=[(b"x-delivery", name)]) for name in (b"one", b"two"))
    assert first.dedup_key == second.dedup_key == digest_key(b"{}")
    assert (first.event_id, second.event_id) == ("one", "two")


def test_the_key_covers_the_signed_bytes_and_a_conflict_shows() -> None:
    """Same signed bytes, other body (a scheme that does not cover it): same key, other content (B027)."""
    first, second = (one(body, EventMap(), signed=b"token-and-time") for body in (b'{"a":1}', b'{"a":2}'))
    assert first.dedup_key == second.dedup_key == digest_key(b"token-and-time")
    assert first.content_sha256 != second.content_sha256


def test_where_nothing_is_signed_the_body_stands_in() -> None:
    """Tokens and unsigned providers cover no byte: different bodies are different events."""
    first, second = (one(body, EventMap(), signed=b"") for body in (b'{"a":1}', b'{"a":2}'))
    assert first.dedup_key == digest_key(b'{"a":1}')
    assert first.dedup_key != second.dedup_key


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b'{"id":"a","id":"b"}', "twice"),
        (b'{"id":"a","i\\u0064":"b"}', "twice"),
        (b'{"id":NaN}', "NaN"),
        (b'{"id":1e999}', "range"),
        (b"[" * 100_000, "nested"),
        (b'{"a":' * 5_000, "nested"),
        (b'{"id":"\\ud800"}', "surrogate"),
        (b"\xff", "UTF-8"),
        (b"<html>", "JSON"),
        (b"", "JSON"),
    ],
)
def test_an_unreadable_body_is_a_dead_letter_with_its_reason(body: bytes, problem: str) -> None:
    """Duplicate keys, NaN, depth, surrogates and other garbage are explained, kept by digest, and raise nothing (B134, B136, B139)."""
    event = one(body)
    assert not event.readable
    assert problem in event.problem
    assert (event.dedup_key, event.event_id) == (digest_key(body), "")


def test_keys_are_compared_exactly() -> None:
    """`ID` is not `id` (B139)."""
    event = one(b'{"ID":"b"}')
    assert (event.readable, event.event_id) == (True, "")


def test_an_unreadable_body_keeps_the_id_of_its_header() -> None:
    """A retry of a dead letter under the same signed id is its duplicate, whatever the signed time."""
    rules = EventMap(id="header:webhook-id", type="body:type")
    event = one(b"<html>", rules, headers=[(b"webhook-id", b"msg_1")], signed=b"msg_1.5.<html>")
    assert (event.readable, event.event_id, event.dedup_key) == (False, "msg_1", id_key("msg_1"))


def test_every_element_of_an_array_is_its_own_event() -> None:
    """Keys are made per element: by its id, or by the signed bytes and its number, so that equal elements stay apart."""
    rules = EventMap(id="body:id", state="body:s", each="events")
    made = mapped(b'{"events":[{"id":"a","s":"x"},{"s":"y"},{"s":"y"},7]}', rules)
    assert [event.element for event in made] == [0, 1, 2, 3]
    assert made[0].dedup_key == id_key("a")
    assert len({event.dedup_key for event in made}) == 4
    assert made[1].content_sha256 == made[2].content_sha256
    assert [event.claimed_state for event in made] == ["x", "y", "y", ""]
    again = mapped(b'{"events":[{"id":"a","s":"x"},{"s":"y"},{"s":"y"},7]}', rules)
    assert [event.dedup_key for event in again] == [event.dedup_key for event in made]


@pytest.mark.parametrize("body", [b"{}", b'{"events":[]}', b'{"events":{}}', json.dumps({"events": [1] * (MAX_ELEMENTS + 1)}).encode()])
def test_an_array_body_without_a_bounded_array_is_a_dead_letter(body: bytes) -> None:
    """No list, an empty one or too long a one is explained instead of dropped or followed without end."""
    event = one(body, EventMap(each="events"))
    assert not event.readable
    assert "events" in event.problem


def test_form_bodies_are_read_as_fields() -> None:
    """A form's fields are places; a field that holds JSON is opened by the strict parser; a repeated field is refused."""
    rules = EventMap(id="body:payload.id", type="body:command")
    event = one(b"command=%2Fgo&payload=%7B%22id%22%3A%22e1%22%7D", rules, headers=FORM)
    assert (event.event_id, event.event_type, event.dedup_key) == ("e1", "/go", id_key("e1"))
    assert not one(b"a=1&a=2", rules, headers=FORM).readable
    assert not one(b"payload=%7B%22id%22%3A1%2C%22id%22%3A2%7D", rules, headers=FORM).readable
    assert not one(b"a=1&" * 1_001, rules, headers=FORM).readable


def test_a_form_field_that_only_begins_like_json_is_text() -> None:
    """What a person wrote ("[photo]", "{hi") does not make a genuine delivery a dead letter; where the contract looks inside, it does."""
    rules = EventMap(job_id="body:MessageSid || CallSid", type="body:payload.type", state="body:(inner || @).state")
    event = one(b"MessageSid=SM1&Body=%5Bphoto%5D&MessageStatus=%7Bhi", rules, headers=FORM)
    assert (event.readable, event.remote_job_id) == (True, "SM1")
    assert one(b"MessageSid=%5BSM1", rules, headers=FORM).remote_job_id == "[SM1"
    for name in (b"payload", b"inner"):
        assert not one(b"MessageSid=SM1&" + name + b"=%7Bhi", rules, headers=FORM).readable


def test_a_delivery_without_body_places_needs_no_json() -> None:
    """A contract that reads only headers and parameters takes any body."""
    event = one(b"\x00\xff", EventMap(id="query:id", type="header:X-Type"), query=b"id=a%20b&x=1", headers=[(b"x-type", b" t ")])
    assert (event.readable, event.event_id, event.event_type) == (True, "a b", "t")


@pytest.mark.parametrize(
    ("value", "unit", "micros"),
    [
        ("1767225600", "s", 1_767_225_600_000_000),
        ("1767225600123", "ms", 1_767_225_600_123_000),
        ("1529006854.329574", "s", 1_529_006_854_329_574),
        ('"1529006854.329574"', "s", 1_529_006_854_329_574),
        ('"2026-01-01T00:00:00.123456789Z"', "iso8601", 1_767_225_600_123_456),
        ('"2026-01-01T02:00:00+0200"', "iso8601", 1_767_225_600_000_000),
        ('"Thu, 01 Jan 2026 00:00:00 GMT"', "rfc1123", 1_767_225_600_000_000),
        ("1700000000000000", "s", None),
        ("-1", "s", None),
        ("true", "s", None),
        ("1e300", "s", None),
        ('"2026-13-01T00:00:00Z"', "iso8601", None),
        ('"yesterday"', "iso8601", None),
        ("[]", "ms", None),
    ],
)
def test_provider_time_is_read_or_left_out(value: str, unit: str, micros: int | None) -> None:
    """A time is information: it is exact to the microsecond or absent, never an overflow (B007)."""
    assert one(f'{{"t":{value}}}'.encode(), EventMap(time="body:t", time_unit=unit)).provider_time == micros


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.sampled_from(["id", "type", "data", "status", "events", "at"]) | st.text(), inner)
    ),
    max_leaves=20,
)
RULES = st.sampled_from(
    [
        BODY_MAP,
        EventMap(),
        EventMap(id="body:sort(@)", each="events"),
        EventMap(id="header:x", time="body:max(@)"),
        EventMap(each="@", id="body:id"),
    ]
)


@given(
    st.binary(max_size=300) | JSON.map(lambda value: json.dumps(value).encode()), RULES, st.sampled_from([(), FORM]), st.binary(max_size=50)
)
def test_whatever_the_body_is_there_are_bounded_events(body: bytes, rules: EventMap, headers: Any, query: bytes) -> None:
    """Nothing raises; every text can be stored and logged; every key is bounded (B134, B137, B141)."""
    made = mapped(body, rules, headers=headers, query=query)
    assert 1 <= len(made) <= MAX_ELEMENTS
    for event in made:
        assert len(event.dedup_key) in {67, 71}
        for text in describe(event).values():
            assert is_fit(text)
            assert len(text) <= 200
