"""Both databases for the faults that concern the record; the same fixtures as the conformance suite, databases of our own."""

from collections.abc import Iterator

import pytest

from tests.conformance.conftest import PostgresServer, database, kind, vault

__all__ = ["database", "kind", "postgres_server", "vault"]


class FaultsServer(PostgresServer):
    """The run's one PostgreSQL, with names that no other folder of tests uses."""

    def create(self, template: str = "template0") -> str:
        if not self.worker.startswith("faults_"):
            self.worker = f"faults_{self.worker}"
        return super().create(template)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[FaultsServer]:
    server = FaultsServer()
    yield server
    server.server.cleanup()
