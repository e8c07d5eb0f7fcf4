"""`gateway serve` on both databases: the whole way of an operation by real processes, then the record verifies."""

from pathlib import Path

import pytest

from tests.cli.callers import client, create, new_key, settled, simulated
from tests.conformance.conftest import Database


@pytest.mark.timeout(180)
def test_an_operation_comes_to_its_result(database: Database, tmp_path: Path) -> None:
    """Created over HTTP, sent, read, collected, downloaded; two reconcilers share the work on PostgreSQL (H2)."""
    with simulated(tmp_path, database_url=database.url) as (stage, face):
        key = new_key(stage)
        with stage.running("serve", "--port", "0") as serving, client(serving.address, key) as api:
            first = create(api, "k1")
            assert settled(api, first)["state"] == "succeeded"
            if database.kind == "postgres":
                with stage.running("reconcile") as second:
                    second.event("house.started")
                    made = [create(api, f"k{number}") for number in range(2, 8)]
                    assert {settled(api, operation)["state"] for operation in made} == {"succeeded"}
                    assert second.stop() == 0
                assert len(face.get("/_simulator/jobs").json()["jobs"]) == 7
            assert api.get(f"/v1/operations/{first}/result").text.startswith("row,")
            assert serving.stop() == 0
        done = stage.run("audit", "verify")
        assert done.code == 0, done.out
        assert stage.run("database", "check").out.endswith(": sound\n")
        assert stage.run("doctor").code == 0
