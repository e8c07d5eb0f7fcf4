"""Operations put into a record directly, for commands that look at them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cli.configuration import load
from cli.house import House, open_house
from cli.world import RealWorld
from ledger import queries
from schemas.commands import Intent, Register
from schemas.operation import Operation
from schemas.states import Mode
from tests.cli.stage import CANARY

WORLD = RealWorld()


@contextmanager
def opened(folder: Path, **environment: str) -> Iterator[House]:
    """Open the record of a folder's configuration."""
    house = open_house(load(file=None, environment=environment, folder=folder), world=WORLD, migrate=True)
    try:
        yield house
    finally:
        house.ledger.close()


def register(folder: Path, **changes: Any) -> str:
    """Register an operation and return its id. Its request holds the canary: nothing may print it."""
    with opened(folder) as house:
        provider = changes.get("provider", "reports")
        values: dict[str, Any] = {
            "id": WORLD.new_id("op_"),
            "owner": "acme",
            "subject": "agent-7",
            "provider": provider,
            "action": "create",
            "mode": Mode.SEND,
            "origin": "http://127.0.0.1:9",
            "contract_digest": house.contracts[provider].digest if provider in house.contracts else "0" * 64,
            "idempotency_token": WORLD.new_token(),
            "trace_id": WORLD.new_id(""),
            "request_fingerprint": "sha256:" + "0" * 64,
            "create_seconds": 900,
            "result_seconds": 900,
            "cancel_seconds": 900,
            "collect_seconds": 900,
            "request": f'{{"note":"{CANARY}"}}'.encode(),
            **changes,
        }
        answer = house.ledger.write_now(Register(intent=Intent(**values), now=WORLD.now()))
        assert answer.outcome == "created"
        assert answer.operation is not None
        return answer.operation.id


def operation(folder: Path, operation_id: str) -> Operation:
    """Return the operation as committed."""
    with opened(folder) as house:
        found = house.ledger.read_now(queries.operation, operation_id, None)
    assert found is not None
    return found
