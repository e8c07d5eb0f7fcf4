"""Both databases for the played behaviours; PostgreSQL with names that no other folder of tests uses."""

from collections.abc import Iterator

import pytest

from tests.conformance.conftest import PostgresServer

__all__ = ["postgres_server"]


class BehavioursServer(PostgresServer):
    """The run's one PostgreSQL."""

    def create(self, template: str = "template0") -> str:
        if not self.worker.startswith("behaviours_"):
            self.worker = f"behaviours_{self.worker}"
        return super().create(template)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[BehavioursServer]:
    server = BehavioursServer()
    yield server
    server.server.cleanup()
