"""The pages of a provider's list, as the two-way sweep reads them (C9)."""

import json
from dataclasses import replace
from typing import Any

import pytest

from providers.contract import ContractError, load
from providers.walking import MAX_ITEMS, Page, list_rule, page_request, read_page
from schemas.contract import Contract, ListRule, RecoveryRule
from schemas.evidence import ReadFailed
from schemas.http import AnsweredOutcome, MaybeOutcome, NotSentOutcome, Outcome
from schemas.operation import SECOND
from schemas.sweeping import Listed

HOME = "https://api.example"
RULE = ListRule(path="/jobs", reference="meta.op", time="at", next="body:next")
CONTRACT = Contract(name="c", digest="d", list=RULE)
TOML = """
name = "jobs"
origin = "https://api.example"
[status]
path = "/jobs/{remote_job_id}"
state = "body:status"
readings = { done = "succeeded" }
[list]
"""


def read(value: Any, rule: ListRule = RULE, status: int = 200) -> Page | ReadFailed:
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    headers = (("content-type", "application/json"),)
    return read_page(AnsweredOutcome(status=status, headers=headers, body=body), rule, CONTRACT, HOME, 0)


def test_a_page_is_its_jobs_and_its_cursor() -> None:
    """C9: ids exactly, our echo, the provider's time."""
    page = read({"data": [{"id": "j1", "meta": {"op": "op_1"}, "at": 1_700_000_000}, {"id": 7}], "next": "c"})
    first = Listed(remote_job_id="j1", reference="op_1", made_at=1_700_000_000 * SECOND)
    assert page == Page(items=(first, Listed(remote_job_id="7")), cursor="c")


@pytest.mark.parametrize(
    "value",
    [
        {"data": [{"id": "j1"}, {"name": "no id"}]},
        {"data": ["j1"]},
        {"data": None},
        {"data": [{"id": str(number)} for number in range(MAX_ITEMS + 1)]},
        {"data": [], "next": "https://elsewhere.example/jobs?after=c"},
        {"data": [], "next": ["c"]},
        {"data": [], "next": "c" * 3_000},
        b"<html>",
        b"",
    ],
)
def test_what_is_not_a_whole_readable_page_proves_nothing(value: Any) -> None:
    """C4, C9: a page that is cut or strange is a failed read, never an absence."""
    assert isinstance(read(value), ReadFailed)


@pytest.mark.parametrize("outcome", [NotSentOutcome(error="x"), MaybeOutcome(error="x"), AnsweredOutcome(status=503)])
def test_a_page_that_did_not_come_is_a_failed_read(outcome: Outcome) -> None:
    """C4: outages are no news about jobs."""
    assert isinstance(read_page(outcome, RULE, CONTRACT, HOME, 0), ReadFailed)


def test_a_next_link_is_never_followed_only_its_cursor_is_taken() -> None:
    """B148: the next page is asked for at the configured origin, whatever the provider writes."""
    page = read({"data": [], "next": f"{HOME}/other?after=c%2F2"})
    assert page == Page(items=(), cursor="c/2")
    request = page_request(RULE, CONTRACT, HOME, "c/2", credential="canary")
    assert request.url == f"{HOME}/jobs?after=c%2F2"
    assert request.secret_headers == ("Authorization",)


def test_the_list_of_the_recovery_serves_where_it_needs_no_operation() -> None:
    """C9: without [list] the recovery's list is walked, unless its address belongs to one operation."""
    recovery = RecoveryRule(strategies=("list",), path="/jobs", match="meta.op", next="body:next")
    contract = replace(CONTRACT, list=None, recovery=recovery)
    found = list_rule(contract)
    assert found is not None
    assert (found.path, found.reference, found.next) == ("/jobs", "meta.op", "body:next")
    assert list_rule(replace(contract, recovery=replace(recovery, path="/jobs?ref={reference}"))) is None
    assert list_rule(replace(contract, recovery=RecoveryRule())) is None
    assert list_rule(CONTRACT) is RULE


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "list.path"),
        ('path = "/jobs/{operation}"', "list.path"),
        ('path = "jobs"', "list.path"),
        ('path = "/jobs"\nnewest_first = true', "list.newest_first"),
        ('path = "/jobs"\nmax_pages = 0', "list.max_pages"),
        ('path = "/jobs"\ntime = "a b"', "list.time"),
        ('path = "/jobs"\nitmes = "body:data"', "list.itmes"),
    ],
)
def test_a_list_that_could_not_work_is_refused_at_load_time(text: str, fault: str) -> None:
    """A contract's author is told the key."""
    with pytest.raises(ContractError) as caught:
        load((TOML + text).encode())
    assert {item.key for item in caught.value.faults} == {fault}


SEVERAL = """
name = "jobs"
origin = "https://api.example"
[actions.film.status]
path = "/films/{remote_job_id}"
state = "body:status"
readings = { done = "succeeded" }
[actions.song.status]
path = "/songs/{remote_job_id}"
state = "body:status"
readings = { done = "succeeded" }
[list]
path = "/films"
"""


def test_a_list_loads() -> None:
    """The section becomes the rule."""
    assert load((TOML + 'path = "/jobs"\ntime = "at"\nnewest_first = true').encode()).list == ListRule(
        path="/jobs", time="at", newest_first=True
    )


@pytest.mark.parametrize(
    ("text", "fault"),
    [("", "name the kinds"), ("actions = []", "name the kinds"), ('actions = ["flim"]', "film, song"), ('actions = ["film"]', "")],
)
def test_a_list_of_one_kind_of_jobs_says_which(text: str, fault: str) -> None:
    """C9: where there are several kinds, a list that names none would report every job of the others as missing."""
    if not fault:
        assert getattr(load((SEVERAL + text).encode()).list, "actions", ()) == ("film",)
        return
    with pytest.raises(ContractError) as caught:
        load((SEVERAL + text).encode())
    assert [item.key for item in caught.value.faults] == ["list.actions"]
    assert fault in str(caught.value.faults[0])
