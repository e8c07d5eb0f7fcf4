"""Real processes on both databases; the databases are those of the conformance suite."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.conftest import Database, database, empty_database, kind, postgres_server
from tests.processes.remote import Remote
from tests.processes.town import Town, town

__all__ = ["database", "empty_database", "house", "kind", "postgres_server", "remote"]


@pytest.fixture
def remote() -> Iterator[Remote]:
    """Run a provider that is quick."""
    with Remote() as running:
        yield running


@pytest.fixture
def house(tmp_path: Path, database: Database, remote: Remote) -> Iterator[Town]:
    """Set up a town on a migrated database of each kind."""
    with town(tmp_path, database.url, remote) as made:
        yield made


@pytest.fixture
def file_house(tmp_path: Path, remote: Remote) -> Iterator[Town]:
    """Set up a town on SQLite alone: what is tested does not differ by database."""
    with town(tmp_path, f"sqlite:///{tmp_path}/gateway.db", remote) as made:
        yield made
