"""What the database itself refuses about schedule and questions, on both databases."""

from typing import Any

import pytest
import sqlalchemy as sa

from ledger import tables
from ledger.engine import Engines
from ledger.vault import Vault
from tests.conformance.house import Record


@pytest.mark.parametrize(
    "change",
    [
        {"due_at": None},  # active, and nobody would look at it again
        {"question_id": "q_1"},  # active, and asking
        {"state": "awaiting_approval"},  # waits for nobody's answer
        {"state": "quarantined", "due_at": None},  # parked, and nobody is asked
        {"state": "quarantined", "question_id": "q_1"},  # parked, and read for ever without a grant
    ],
)
def test_the_database_refuses_what_nobody_would_look_at(engines: Engines, vault: Vault, change: dict[str, Any]) -> None:
    """C2, invariant 5: active means due, parked means a question, and no read of a parked operation without a grant."""
    record = Record(engines=engines, vault=vault)
    record.accept(1, "job-1")
    with pytest.raises(sa.exc.IntegrityError, match="due"), engines.write.begin() as connection:
        connection.execute(sa.update(tables.operations).values(**change))
    with engines.write.begin() as connection:
        connection.execute(sa.update(tables.operations).values(state="quarantined", question_id="q_1", due_at=None))
