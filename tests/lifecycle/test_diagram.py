"""The page docs/states.md says what the code says."""

from pathlib import Path

import pytest

from lifecycle.diagram import arrows_table, causes_table, mermaid, questions_table
from schemas.states import State

PAGE = (Path(__file__).parents[2] / "docs" / "states.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("piece", [mermaid(), arrows_table(), questions_table(), causes_table()])
def test_the_page_shows_the_tables_of_the_code(piece: str) -> None:
    """The diagram and the tables in the docs are drawn from the table in the code."""
    assert piece in PAGE


def test_the_page_explains_every_state() -> None:
    """Each state stands in the table of meanings."""
    assert all(f"| `{state}` | " in PAGE for state in State)
