"""Recovery: which strategy is safe, and what lookups and lists prove."""

from dataclasses import replace
from typing import Any, get_args
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.recovery import ListWalk, first_page, interpret_lookup
from schemas.contract import Contract, RecoveryRule, TokenRule
from schemas.evidence import Evidence, JobKnown, JobNotFound, JobsConflict, ReadFailed
from schemas.http import AnsweredOutcome, MaybeOutcome, NotSentOutcome, Outcome
from schemas.operation import SECOND, Operation
from schemas.states import State
from tests.providers.job_values import BATCHES, HTML, NOW, REPORTS, an_operation, answer, json_values

OURS = {"gateway_operation": "op_0198"}


def unknown(**changes: Any) -> Operation:
    base: dict[str, Any] = {"state": State.CREATE_UNKNOWN, "remote_job_id": None, "sends": 1, "first_sent_at": NOW - 10 * SECOND}
    return an_operation(**(base | changes))


def with_rule(contract: Contract, **changes: Any) -> Contract:
    return replace(contract, recovery=replace(contract.recovery, **changes))


def with_window(seconds: int) -> Contract:
    assert REPORTS.create is not None
    return replace(REPORTS, create=replace(REPORTS.create, token=TokenRule(place="header", name="K", window_seconds=seconds)))


# --- lookup


def looked_up(outcome: Outcome, contract: Contract = REPORTS) -> Evidence:
    return interpret_lookup(outcome, unknown(), contract, NOW)


def test_a_lookup_asks_for_our_echo_at_the_pinned_origin() -> None:
    """The request carries trace and credential like every call."""
    request = first_page(unknown(), REPORTS, credential="s3cret", now=NOW)
    assert request.url == "https://reports.example/v1/reports?client_reference=op_0198"
    assert request.method == "GET"
    assert request.secret_headers == ("Authorization",)
    assert any(name == "traceparent" for name, _ in request.headers)


def job(job_id: Any, reference: Any = "op_0198") -> dict[str, Any]:
    return {"id": job_id, "client_reference": reference}


@pytest.mark.parametrize(
    ("outcome", "found"),
    [
        (answer(200, {"data": [job("rep_1")]}), JobKnown(remote_job_id="rep_1", source="recovery")),
        (answer(200, {"data": [job(17)]}), JobKnown(remote_job_id="17", source="recovery")),
        (answer(200, {"data": [job("rep_1"), job("rep_1")]}), JobKnown(remote_job_id="rep_1", source="recovery")),
        (answer(200, {"data": []}), JobNotFound()),
        (answer(404), JobNotFound()),
        # A provider that ignores the filter answers with everybody's jobs (B061).
        (answer(200, {"data": [job("rep_2", "op_0199"), job("rep_1")]}), JobKnown(remote_job_id="rep_1", source="recovery")),
        (
            answer(200, {"data": [job("rep_2", "op_0199"), job("rep_3", None), job("rep_4", "op_0198x"), job("rep_5", "op_0198\u0000")]}),
            JobNotFound(),
        ),
    ],
)
def test_a_lookup_finds_our_job_and_only_ours(outcome: Outcome, found: Evidence) -> None:
    """What matches our echo exactly is ours, nothing else (A6, B061)."""
    assert looked_up(outcome) == found


def test_two_jobs_for_one_token_are_a_conflict() -> None:
    """Both ids are kept, nothing is chosen (A8, B046)."""
    conflict = looked_up(answer(200, {"data": [job("rep_1"), job("rep_2")]}))
    assert isinstance(conflict, JobsConflict)
    assert conflict.remote_job_ids == ("rep_1", "rep_2")


def test_a_lookup_may_answer_with_the_job_itself() -> None:
    """No `items`: the answer is the job, and must still be ours."""
    contract = with_rule(REPORTS, items="")
    assert looked_up(answer(200, job("rep_1")), contract) == JobKnown(remote_job_id="rep_1", source="recovery")
    assert looked_up(answer(200, job("rep_1", "op_0199")), contract) == JobNotFound()
    assert isinstance(looked_up(answer(200, []), contract), ReadFailed)


NONSENSE: list[tuple[Outcome, str]] = [
    (NotSentOutcome(error="dns"), "dns"),
    (MaybeOutcome(error="read_timeout"), "read_timeout"),
    (answer(200, HTML), "html"),
    (answer(404, HTML, content_type="text/html"), "html"),
    (answer(200), "empty"),
    (answer(200, b"{"), "unreadable"),
    (answer(200, b"null"), "no_items"),
    (answer(200, {"data": None}), "no_items"),
    (answer(200, {"data": {}}), "no_items"),
    (answer(200, {}), "no_items"),
    (answer(200, {"data": ["rep_1"]}), "unreadable_item"),
    (answer(200, {"data": [{"id": None, "client_reference": "op_0198", "metadata": OURS}]}), "unusable_job_id"),
    (answer(200, {"data": [{"id": "..", "client_reference": "op_0198", "metadata": OURS}]}), "unusable_job_id"),
    (answer(204), "http_204"),
    (answer(206, {"data": []}), "http_206"),
    (answer(401), "credential"),
    (answer(403), "credential"),
    (answer(301), "redirect_301"),
    (answer(500), "http_500"),
    (answer(502, HTML), "html"),
]


@pytest.mark.parametrize(("outcome", "error"), NONSENSE)
def test_nonsense_is_never_an_absence(outcome: Outcome, error: str) -> None:
    """A failed lookup or list page proves nothing: it is a failed read (C4, A6, B069)."""
    for evidence in (looked_up(outcome), walk().step(outcome, NOW)):
        assert isinstance(evidence, ReadFailed), evidence
        assert evidence.error == error


def test_an_incomplete_lookup_proves_no_absence() -> None:
    """A lookup whose answer goes on elsewhere has not said no."""
    contract = with_rule(REPORTS, next="body:next")
    assert isinstance(looked_up(answer(200, {"data": [], "next": "c1"}), contract), ReadFailed)
    assert isinstance(looked_up(answer(200, {"data": [job("rep_1")], "next": "c1"}), contract), JobKnown)


# --- list


def walk(contract: Contract = BATCHES) -> ListWalk:
    operation = unknown(origin="https://batches.example")
    return ListWalk.start(operation, contract, credential="s3cret-credential", now=NOW)


def page(*ids: str, ours: str = "", more: bool = False, last: Any = None) -> AnsweredOutcome:
    items = [{"id": job_id, "metadata": OURS if job_id in ours.split() else {}} for job_id in ids]
    return answer(200, {"data": items, "has_more": more, "last_id": last if last is not None else (ids[-1] if ids else None)})


def walked(*pages: AnsweredOutcome, contract: Contract = BATCHES) -> tuple[Evidence | ListWalk, list[str]]:
    """Return where the walk ends and the addresses that it asked for."""
    at: Evidence | ListWalk = walk(contract)
    asked = []
    for outcome in pages:
        assert isinstance(at, ListWalk), at
        asked.append(at.request.url)
        at = at.step(outcome, NOW)
    return at, asked


def test_a_complete_walk_without_our_job_is_an_absence() -> None:
    """Every page was read to the end (A6)."""
    end, asked = walked(page("b1", "b2", more=True), page("b3"))
    assert end == JobNotFound()
    assert asked == ["https://batches.example/v1/batches?limit=2", "https://batches.example/v1/batches?limit=2&after=b2"]


def test_a_match_is_known_at_the_end_of_the_walk() -> None:
    """The walk goes on after a match, since a second one would be a conflict (A8)."""
    assert walked(page("b1", "b2", ours="b1", more=True), page("b3"))[0] == JobKnown(remote_job_id="b1", source="recovery")
    conflict = walked(page("b1", "b2", ours="b1", more=True), page("b3", ours="b3"))[0]
    assert isinstance(conflict, JobsConflict)
    assert conflict.remote_job_ids == ("b1", "b3")
    again = walked(page("b1", ours="b1", more=True), page("b1", "b0", ours="b1"))[0]
    assert again == JobKnown(remote_job_id="b1", source="recovery"), "a job that moved to the next page is one job"


def test_a_list_that_is_too_long_is_no_absence() -> None:
    """After max_pages nothing is proven; what was found until then is (B134's kind: bounded work)."""
    long = [page(f"b{n}", more=True) for n in range(3)]
    assert walked(*long)[0] == ReadFailed(layer="protocol", error="list too long")
    found = [page("b0", ours="b0", more=True), *long[1:]]
    assert walked(*found)[0] == JobKnown(remote_job_id="b0", source="recovery")


@pytest.mark.parametrize("cursors", [("c1", "c1"), ("c1", "c2", "c1")])
def test_a_cursor_that_comes_again_ends_the_walk(cursors: tuple[str, ...]) -> None:
    """A list without progress is a failed read, not an endless loop and not an absence."""
    end, _ = walked(
        *(page(f"b{number}", more=True, last=cursor) for number, cursor in enumerate(cursors)), contract=with_rule(BATCHES, max_pages=50)
    )
    assert end == ReadFailed(layer="protocol", error="list makes no progress")


@pytest.mark.parametrize(
    "link",
    [
        "https://evil.example/v1/batches?after=c1", "http://batches.example/v1/batches?after=c1", "https://batches.example:8443/?after=c1",
        "//evil.example/?after=c1", "https://a@batches.example/?after=c1", "https://batches.example/v1/batches", "https://[bad/?after=c1",
    ],
)  # fmt: skip
def test_a_foreign_next_link_is_not_followed(link: str) -> None:
    """A next value is a cursor, never an address to call (B148)."""
    assert walked(page("b", more=True, last=link))[0] == ReadFailed(layer="protocol", error="foreign next link")


def test_of_a_link_home_only_the_cursor_is_taken() -> None:
    """The next request is made from the contract, not from the link."""
    at, _ = walked(page("b", more=True, last="https://batches.example/other/path?x=1&after=c%201"))
    assert isinstance(at, ListWalk)
    assert at.request.url == "https://batches.example/v1/batches?limit=2&after=c%201"


@pytest.mark.parametrize("cursor", ["a b&limit=1#x", "../..", "ü?", 17])
def test_a_cursor_is_one_encoded_parameter(cursor: Any) -> None:
    """Whatever a cursor holds, it stays a value."""
    at, _ = walked(page("b", more=True, last=cursor))
    assert isinstance(at, ListWalk)
    parts = urlsplit(at.request.url)
    assert (parts.netloc, parts.path, parts.fragment) == ("batches.example", "/v1/batches", "")
    assert parse_qs(parts.query) == {"limit": ["2"], "after": [str(cursor)]}


@pytest.mark.parametrize("cursor", [True, 1.5, ["c"], {"c": 1}, "x" * 2_049, "a\nb", "\x00"])
def test_a_cursor_that_is_none_fails_the_walk(cursor: Any) -> None:
    """An unreadable cursor is not the end of the list."""
    assert walked(page("b", more=True, last=cursor))[0] == ReadFailed(layer="protocol", error="unusable cursor")


def test_a_walk_shows_no_credential() -> None:
    """Its representation may reach a log."""
    assert "s3cret-credential" not in repr(replace(walk(), request=replace(walk().request, headers=())))


# --- how lists go on


def paged(paging: str, **changes: Any) -> Contract:
    return with_rule(BATCHES, **{"paging": paging, "next": "", **changes})


def urls(*pages: AnsweredOutcome, contract: Contract) -> tuple[Evidence | ListWalk, list[str]]:
    end, asked = walked(*pages, contract=contract)
    return end, [url.removeprefix("https://batches.example") for url in asked]


def test_a_whole_next_link_is_followed_at_home() -> None:
    """A6: the provider's own address of the next page, path and all."""

    def linked(job: str, link: str | None, ours: str = "") -> AnsweredOutcome:
        return answer(200, {"data": [{"id": job, "metadata": OURS if ours else {}}], "next": link})

    contract = paged("link", next="body:next")
    end, asked = urls(
        linked("b1", "/v2/pages/7?k=a%20b"),
        linked("b2", "https://batches.example/v2/pages/8#x"),
        linked("b3", None, "y"),
        contract=contract,
    )
    assert end == JobKnown(remote_job_id="b3", source="recovery")
    assert asked == ["/v1/batches?limit=2", "/v2/pages/7?k=a%20b", "/v2/pages/8"]
    again, _ = urls(linked("b1", "/p/2"), linked("b2", "/p/2"), contract=contract)
    assert again == ReadFailed(layer="protocol", error="list makes no progress")


LINK = '<https://batches.example/v1/batches?page=1>; rel="prev", <https://batches.example/v1/batches?page=3>; title="a, b"; rel="last next"'


def test_a_link_header_is_followed_at_home() -> None:
    """A6: RFC 8288; its end is the end of the list."""
    contract = paged("header")
    first = answer(200, {"data": [{"id": "b1"}]}, link=LINK)
    end, asked = urls(first, answer(200, {"data": [{"id": "b2"}]}, link='</x>; rel="prev"'), contract=contract)
    assert end == JobNotFound()
    assert asked == ["/v1/batches?limit=2", "/v1/batches?page=3"]


@pytest.mark.parametrize(
    "link", ["https://evil.example/p", "//evil.example/p", "http://batches.example/p", "https://u@batches.example/p", "https://[x/p"]
)
@pytest.mark.parametrize("paging", ["link", "header", "cursor"])
def test_a_foreign_link_is_a_failed_read_and_never_an_absence(paging: str, link: str) -> None:
    """B148: no credential leaves home, and an unread page has not said no."""
    contract = paged(paging, next="" if paging == "header" else "body:next")
    found, _ = walked(answer(200, {"data": [], "next": link}, link=f'<{link}>; rel="next"'), contract=contract)
    assert found == ReadFailed(layer="protocol", error="foreign next link")


def test_page_numbers_go_on_until_a_page_is_empty_or_says_so() -> None:
    """A6: a list by numbers or offsets; a page that comes again is no progress."""
    numbers = paged("page", next_param="p", first_page=0)
    end, asked = urls(page("b1", "b2"), page("b3"), page(), contract=numbers)
    assert end == JobNotFound()
    assert asked == ["/v1/batches?limit=2", "/v1/batches?limit=2&p=1", "/v1/batches?limit=2&p=2"]
    end, asked = urls(page("b1", "b2", more=True), page("b3", ours="b3"), contract=paged("page", next_param="p", next="body:has_more"))
    assert end == JobKnown(remote_job_id="b3", source="recovery")
    assert asked[1] == "/v1/batches?limit=2&p=2"
    end, asked = urls(page("b1", "b2"), page("b3"), page(), contract=paged("offset", next_param="skip", max_pages=9))
    assert end == JobNotFound()
    assert asked[1:] == ["/v1/batches?limit=2&skip=2", "/v1/batches?limit=2&skip=3"]
    assert walked(page("b1", "b2"), page("b1", "b2"), contract=numbers)[0] == ReadFailed(layer="protocol", error="list makes no progress")


def test_a_list_that_begins_with_the_newest_is_read_until_it_is_older_than_our_create() -> None:
    """A6: the rest cannot hold our job; an unreadable time ends nothing."""

    def made(seconds: float | None, job_id: str = "b1") -> AnsweredOutcome:
        return answer(200, {"data": [{"id": job_id, "created_at": seconds}], "has_more": True, "last_id": job_id})

    contract = with_rule(BATCHES, created="created_at")
    sent = NOW / SECOND - 10
    assert walked(made(sent - 301), contract=contract)[0] == JobNotFound()
    assert isinstance(walked(made(sent - 299), contract=contract)[0], ListWalk)
    assert isinstance(walked(made(None), contract=contract)[0], ListWalk)


def test_what_a_found_job_remembers_comes_from_its_item() -> None:
    """A5: as its create answer would have said it."""
    assert BATCHES.create is not None
    contract = replace(BATCHES, create=replace(BATCHES.create, remember={"url": "body:status_url", "other": "header:location"}))
    found, _ = walked(answer(200, {"data": [{"id": "b1", "metadata": OURS, "status_url": "/b/1"}], "has_more": False}), contract=contract)
    assert found == JobKnown(remote_job_id="b1", source="recovery", remembered={"url": "/b/1"})


bodies = json_values | st.fixed_dictionaries(
    {"data": json_values | st.lists(st.fixed_dictionaries({"id": json_values, "metadata": st.just(OURS) | json_values}), max_size=3)},
    optional={"has_more": st.booleans(), "last_id": json_values},
)


@given(
    outcomes=st.lists(
        st.builds(answer, st.sampled_from([200, 404]) | st.integers(0, 999), bodies | st.binary(max_size=50))
        | st.builds(MaybeOutcome, error=st.text())
        | st.builds(NotSentOutcome, error=st.text()),
        min_size=1,
        max_size=6,
    )
)
def test_any_answers_end_in_evidence_within_the_bound(outcomes: list[Outcome]) -> None:
    """Any bytes: evidence or the next page at home; never an exception, never more than max_pages."""
    rule = RecoveryRule(**{name: getattr(BATCHES.recovery, name) for name in RecoveryRule.__slots__})
    at: Any = walk(replace(BATCHES, recovery=rule))
    for count, outcome in enumerate(outcomes, 1):
        assert isinstance(interpret_lookup(outcome, unknown(), REPORTS, NOW), get_args(Evidence))
        at = at.step(outcome, NOW)
        if not isinstance(at, ListWalk):
            assert isinstance(at, JobKnown | JobNotFound | JobsConflict | ReadFailed)
            return
        assert urlsplit(at.request.url).netloc == "batches.example"
        assert count < rule.max_pages
