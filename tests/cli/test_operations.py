"""`gateway operations`: the operator sees every owner's, and asks by name."""

from pathlib import Path

import pytest

from schemas.commands import Settle
from schemas.evidence import JobKnown
from schemas.operation import SECOND
from schemas.states import Errand, State
from schemas.sweeping import ClaimWalks, Listed, SettleWalk
from tests.cli.conftest import Command
from tests.cli.records import WORLD, opened, operation, register
from tests.cli.stage import CANARY


def test_list_filters_and_keeps_the_newest_first(command: Command, tmp_path: Path) -> None:
    """Owner, state, status, provider, reference narrow the list; the newest stands first."""
    one = register(tmp_path, reference="r-1")
    two = register(tmp_path, owner="other", approval_seconds=600)
    assert [row["id"] for row in command("operations", "list", "--json").json()] == [two, one]
    for arguments, expected in (
        (("--owner", "acme"), [one]),
        (("--state", "awaiting_approval"), [two]),
        (("--status", "queued"), [one]),
        (("--status", "succeeded"), []),
        (("--provider", "reports", "--limit", "1"), [two]),
        (("--reference", "r-1"), [one]),
        (("--remote-job-id", "x"), []),
    ):
        assert [row["id"] for row in command("operations", "list", *arguments, "--json").json()] == expected
    text = command("operations", "list").out
    assert one in text
    assert "create_pending" in text


def test_the_public_status_is_filtered_over_all_pages(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages are read until there are enough, since the public status is no column."""
    monkeypatch.setattr("cli.commands.operations.PAGE", 2)
    wanted = register(tmp_path, approval_seconds=600)
    for _ in range(5):
        register(tmp_path)
    assert [row["id"] for row in command("operations", "list", "--status", "awaiting_approval", "--json").json()] == [wanted]
    assert len(command("operations", "list", "--limit", "5", "--json").json()) == 5


def test_show_and_history(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Show has what the owner sees and whose it is; history has every row, over pages."""
    monkeypatch.setattr("cli.commands.operations.PAGE", 1)
    made = register(tmp_path)
    command("operations", "cancel", made, "--as", "ann")
    shown = command("operations", "show", made, "--json").json()
    assert (shown["id"], shown["owner"], shown["subject"], shown["state"]) == (made, "acme", "agent-7", "withdrawn")
    rows = command("operations", "history", made, "--json").json()
    assert [row["seq"] for row in rows] == [1, 2]
    assert rows[0]["to_state"] == "create_pending"
    assert "create_pending" in command("operations", "history", made).out
    assert "withdrawn" in command("operations", "show", made).out


def test_cancel_is_recorded_by_name(command: Command, tmp_path: Path) -> None:
    """A cancel before anything was sent withdraws at once; the history says which operator and why. A second one is refused."""
    made = register(tmp_path)
    done = command("operations", "cancel", made, "--reason", "not needed", "--as", "ann")
    assert done.code == 0
    assert f"{made} withdrawn" in done.out
    row = command("operations", "history", made, "--json").json()[-1]
    assert row["actor"] == "operator:ann"
    assert operation(tmp_path, made).cancel_by == "ann"
    done = command("operations", "cancel", made)
    assert done.code == 1
    assert "already_final" in done.err


def test_decide_answers_the_open_question(command: Command, tmp_path: Path) -> None:
    """Approve goes on, deny ends; the question is found by itself or checked when it is named."""
    made = register(tmp_path, approval_seconds=600)
    assert command("operations", "decide", made, "resend").code == 2
    assert command("operations", "decide", made, "nonsense").code == 2
    done = command("operations", "decide", made, "approve", "--question", "q_other")
    assert (done.code, operation(tmp_path, made).state) == (1, State.AWAITING_APPROVAL)
    assert command("operations", "decide", made, "approve", "--as", "ann", "--json").json()["state"] == "create_pending"
    done = command("operations", "decide", made, "approve")
    assert done.code == 1
    assert "asks nothing" in done.err
    other = register(tmp_path, approval_seconds=600)
    assert command("operations", "decide", other, "deny", "--reason", "too dear", "--json").json()["state"] == "withdrawn"


def test_only_named_people_approve(command: Command, tmp_path: Path) -> None:
    """G7: where the approvers are named, another name is refused."""
    made = register(tmp_path, approval_seconds=600, approval_by=("bob",))
    assert command("operations", "decide", made, "approve", "--as", "ann").code == 1
    assert operation(tmp_path, made).state is State.AWAITING_APPROVAL
    assert command("operations", "decide", made, "approve", "--as", "bob").code == 0


def test_refresh_makes_it_due(command: Command, tmp_path: Path) -> None:
    """A refresh is recorded; what it means is for the judgement to say."""
    made = register(tmp_path)
    done = command("operations", "refresh", made)
    assert done.code in {0, 1}
    assert done.code == 0 or done.err.startswith("gateway: refused: ")


def test_unknown_ids_and_words(command: Command, tmp_path: Path) -> None:
    """An unknown id is 1, an unknown word 2; both in one line."""
    register(tmp_path)
    for verb in ("show", "history", "refresh", "cancel"):
        done = command("operations", verb, "op_0")
        assert (done.code, done.err) == (1, "gateway: there is no operation op_0; see gateway operations list\n")
    assert command("operations", "list", "--state", "nope").code == 2
    assert command("operations", "list", "--status", "nope").code == 2
    assert command("operations", "cancel", "op_0", "--as", "a\x1b[31m").code == 2


def test_without_a_database_nothing_is_made(command: Command, tmp_path: Path) -> None:
    """A look at a database that is not there is a usage error and leaves no file behind."""
    for arguments in (
        ("operations", "list"),
        ("keys", "list"),
        ("audit", "verify"),
        ("database", "check"),
        ("providers", "show", "reports"),
    ):
        done = command(*arguments)
        assert done.code == 2
        assert "start gateway serve first" in done.err
    assert not (tmp_path / "var").exists()


def test_bundle_is_printed_or_written_for_its_reader_alone(command: Command, tmp_path: Path) -> None:
    """E4: one JSON document of any owner's operation, without its request; a file is new and private, never overwritten."""
    made = register(tmp_path)
    printed = command("operations", "bundle", made)
    assert printed.json()["account"]["trace_id"] == printed.json()["operation"]["trace_id"]
    assert CANARY not in printed.out
    target = tmp_path / "bundle.json"
    assert command("operations", "bundle", made, "--output", str(target)).code == 0
    assert target.read_text() == printed.out
    assert target.stat().st_mode & 0o777 == 0o600
    again = command("operations", "bundle", made, "-o", str(target))
    assert (again.code, "is there already" in again.err) == (1, True)
    assert command("operations", "bundle", "op_0").code == 1
    assert command("operations", "bundle", made, "-o", str(tmp_path / "no" / "where")).code == 1


def test_sweep_lists_findings_and_where_walks_stand(command: Command, tmp_path: Path) -> None:
    """C9: what a walk found is listed until it is none any more; exit 1 while anything is open."""
    register(tmp_path)
    nothing = command("operations", "sweep", "--json")
    assert (nothing.code, nothing.json()) == (0, {"findings": [], "walks": []})
    with opened(tmp_path) as house:
        now = WORLD.now()
        walk = house.ledger.write_now(ClaimWalks(pauses={"reports": 60}, lease=SECOND, now=now))
        assert walk is not None
        leak = Listed(remote_job_id="job-x", made_at=now - 3_600 * SECOND)
        house.ledger.write_now(
            SettleWalk(walk=walk, outcome="end", items=(leak,), due_at=now, grace=SECOND, overlap=SECOND, now=now)
        )  # fmt: skip
    told = command("operations", "sweep", "--json")
    assert told.code == 1
    assert [(row["kind"], row["remote_job_id"]) for row in told.json()["findings"]] == [("leak", "job-x")]
    assert told.json()["walks"][0]["walks"] == 1
    assert "job-x" in command("operations", "sweep").out
    assert command("operations", "sweep", "--provider", "other").code == 0
    assert command("providers", "show", "reports", "--json").json()["sweep_findings"] == {"leak": 1}


def test_an_incident_is_acknowledged_with_a_reason(command: Command, tmp_path: Path) -> None:
    """D1: shown with the operation, closed by name and reason; the end stays."""
    made = register(tmp_path)
    command("operations", "cancel", made, "--as", "ann")
    with opened(tmp_path) as house:
        found = JobKnown(remote_job_id="job-1", source="recovery")
        now = WORLD.now()
        house.ledger.write_now(
            Settle(operation_id=made, fence=0, errand=Errand.RECOVER, evidence=found, started_at=now, now=now, chance=0.5, actor="late")
        )
    shown = command("operations", "show", made, "--json").json()
    assert (shown["state"], shown["question"]["kind"], shown["incident"] is not None) == ("withdrawn", "incident", True)
    refused = command("operations", "decide", made, "acknowledge", "--as", "ann")
    assert (refused.code, "reason" in refused.err) == (1, True)
    assert command("operations", "decide", made, "acknowledge", "--reason", "ended it there", "--as", "ann").code == 0
    after = operation(tmp_path, made)
    assert (after.state, after.incident_id, after.question_id) == (State.WITHDRAWN, None, None)
    last = command("operations", "history", made, "--json").json()[-1]
    assert (last["code"], last["actor"], last["text"]) == ("incident_acknowledged", "operator:ann", "ended it there")
