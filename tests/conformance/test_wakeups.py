"""What one process commits wakes the others; a lost hint costs a second and no more."""

import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.commits import News
from ledger.engine import open_engines
from ledger.ledger import Ledger
from ledger.vault import Vault
from ledger.wakeups import PAYLOAD_BYTES, FileWakeups, PostgresWakeups, decode, encode
from schemas.commands import Beat
from tests.conformance.conftest import LIMIT, Database

ON_POSTGRES = pytest.mark.parametrize("kind", [pytest.param("postgres", marks=pytest.mark.postgres)])  # SQLite polls
News_ = tuple[frozenset[str] | None, bool]


class Ear:
    """A listener that keeps what it hears and can be waited for."""

    def __init__(self) -> None:
        self.heard: list[News_] = []
        self.ready = threading.Condition()

    def __call__(self, changed: frozenset[str] | None, due: bool) -> None:  # noqa: FBT001 - a callback's shape
        with self.ready:
            self.heard.append((changed, due))
            self.ready.notify_all()

    def wait_for(self, *wanted: News_) -> bool:
        with self.ready:
            return self.ready.wait_for(lambda: set(wanted) <= set(self.heard), LIMIT)


@given(st.sets(st.text("abcdef0123456789_", min_size=1, max_size=40), max_size=60), st.booleans())
def test_payloads_say_what_changed(changed: set[str], due: bool) -> None:  # noqa: FBT001 - generated
    """For any ids that fit, decode(encode(x)) is x."""
    assert decode(encode(changed, due=due)) == (frozenset(changed), due)


def test_too_many_ids_become_everything() -> None:
    """A payload never exceeds what PostgreSQL takes; then it says that anything may have changed."""
    payload = encode({f"op_{number:032d}" for number in range(1000)}, due=True)
    assert len(payload) <= PAYLOAD_BYTES
    assert decode(payload) == (None, True)


@given(st.text(max_size=50))
def test_any_payload_is_read(payload: str) -> None:
    """Whoever may write to the channel cannot break the listener."""
    decode(payload)


@pytest.fixture
def pair(database: Database) -> Iterator[tuple[PostgresWakeups, PostgresWakeups, Ear, Ear]]:
    """Two processes' wake-ups on one PostgreSQL, whose fallback is too slow to help."""
    engines = open_engines(database.url)
    ears = Ear(), Ear()
    ones = tuple(PostgresWakeups(engines, ear, fallback=600) for ear in ears)
    for one in ones:
        one.start()
        assert one.listening.wait(LIMIT)
    yield ones[0], ones[1], ears[0], ears[1]
    for one in ones:
        one.close(LIMIT)
    engines.close()


@ON_POSTGRES
def test_what_changed_is_heard_by_others_only(pair: tuple[PostgresWakeups, PostgresWakeups, Ear, Ear]) -> None:
    """The other process hears the ids; the one that committed has told its own listeners already and hears nothing."""
    one, other, at_one, at_other = pair
    one.publish({"op_1"}, due=True)
    assert at_other.wait_for((frozenset({"op_1"}), True))
    other.publish({"op_2"}, due=False)
    assert at_one.wait_for((frozenset({"op_2"}), False))
    assert at_one.heard == [(frozenset({"op_2"}), False)]


@ON_POSTGRES
def test_a_flood_is_coalesced(pair: tuple[PostgresWakeups, PostgresWakeups, Ear, Ear]) -> None:
    """A thousand commits become a few notifications, and every id of them arrives or is covered by "anything"."""
    one, _, _, at_other = pair
    for number in range(1000):
        one.publish({f"op_{number}"}, due=False)
    one.publish({"op_last"}, due=True)
    with at_other.ready:
        assert at_other.ready.wait_for(lambda: any(due for _, due in at_other.heard), LIMIT)
    assert len(at_other.heard) <= 60
    told = frozenset().union(*(changed for changed, _ in at_other.heard if changed is not None))
    assert None in {changed for changed, _ in at_other.heard} or len(told) == 1001


@ON_POSTGRES
def test_a_lost_hint_costs_a_second(database: Database) -> None:
    """Without any notification the fallback tells listeners to look, on PostgreSQL within the given time."""
    engines, ear = open_engines(database.url), Ear()
    wakeups = PostgresWakeups(engines, ear, fallback=0.05)
    wakeups.start()
    assert ear.wait_for((None, True))
    wakeups.close(LIMIT)
    engines.close()


@ON_POSTGRES
def test_a_lost_connection_is_dialled_again(pair: tuple[PostgresWakeups, PostgresWakeups, Ear, Ear], database: Database) -> None:
    """When the server ends the connections, listeners are told to look at once, and hints come again afterwards."""
    one, _, at_one, at_other = pair
    one._fallback = pair[1]._fallback = 0.05
    engines = open_engines(database.url)
    with engines.dial() as killer:
        killer.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    assert at_one.wait_for((None, True))
    assert at_other.wait_for((None, True))
    with at_other.ready:

        def again() -> bool:
            one.publish({"op_9"}, due=True)  # the first ones may go to the dead connection: hints may be lost
            return (frozenset({"op_9"}), True) in at_other.heard

        assert any(again() or (at_other.ready.wait(0.1) and again()) for _ in range(100))
    engines.close()


@pytest.mark.parametrize("kind", ["sqlite"])
def test_an_sqlite_file_says_that_somebody_committed(database: Database, vault: Vault) -> None:
    """A commit of another process is seen by polling, one's own reads are not."""
    ledger = Ledger.open(database.url, vault=vault, contracts={})
    engines, ear = open_engines(database.url), Ear()
    wakeups = FileWakeups(engines, ear)
    wakeups.start()
    assert wakeups.listening.wait(LIMIT)
    assert ear.heard == []
    ledger.write_now(Beat(duty="d", process="p", now=1, ok=True))
    assert ear.wait_for((None, True))
    wakeups.close(LIMIT)
    engines.close()
    ledger.close()


def test_two_ledgers_hear_each_other(database: Database, vault: Vault) -> None:
    """A commit through one ledger wakes the listeners of its own and of another process's, on both databases."""
    ledgers = [Ledger.open(database.url, vault=vault, contracts={}) for _ in range(2)]
    events = [threading.Event() for _ in range(2)]
    for ledger, event in zip(ledgers, events, strict=True):
        ledger.on_due(event.set)
        ledger.start(several_processes=True)
        assert ledger._wakeups is not None
        assert ledger._wakeups.listening.wait(LIMIT)
    ledgers[0].write_now(Beat(duty="d", process="p", now=1, ok=True))
    ledgers[0]._tell(News(changed={"op_1"}, due={"op_1"}))
    assert events[0].is_set(), "in process it is told directly"
    assert events[1].wait(LIMIT)
    for ledger in ledgers:
        assert ledger.close()


def test_a_listener_can_leave(ledger: Ledger) -> None:
    """Who has stopped listening hears nothing any more; the others do."""
    one: list[frozenset[str] | None] = []
    other: list[frozenset[str] | None] = []
    leave = ledger.on_change(one.append)
    ledger.on_change(other.append)
    ledger._tell(News(changed={"op_1"}))
    leave()
    ledger._tell(News(changed={"op_2"}))
    ledger._tell(News(due={"op_2"}))
    assert one == [frozenset({"op_1"})]
    assert other == [frozenset({"op_1"}), frozenset({"op_2"})]
