"""The page of shipped contracts says what the contracts say."""

from pathlib import Path

from providers.contract import load
from providers.listing import table

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "providers.md"
BEGIN, END = "<!-- made: begin -->\n\n", "\n<!-- made: end -->"


def made() -> str:
    return table(load(file.read_bytes(), name=file.stem) for file in (ROOT / "providers" / "contracts").glob("*.toml"))


def test_the_page_is_made_from_the_contracts() -> None:
    """A contract that changes without its row is found; people read there what is signed and what is assumed (B2)."""
    assert PAGE.read_text().partition(BEGIN)[2].partition(END)[0] == made(), "write it anew: python -m tests.providers.test_shipped_listing"


def test_the_page_tells_hints_from_events_and_signed_ids_from_others() -> None:
    """The three columns that a person decides by (catalogue, section 4)."""
    rows = {line.split(" | ")[0].strip("| `"): line for line in made().splitlines() if line.startswith("| `")}
    assert len(rows) >= 108
    assert "| hint |" in rows["gitlab"]
    assert "| event |" in rows["stripe"]
    assert "`header:X-GitHub-Delivery` not signed" in rows["github"]
    assert "`header:webhook-id` signed" in rows["standard-webhooks"]
    assert "`retry.horizon_seconds`" in rows["stripe"]


if __name__ == "__main__":
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + BEGIN + made() + END + rest.partition(END)[2])
