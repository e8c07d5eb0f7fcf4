"""The page of shipped contracts says what the contracts say."""

from pathlib import Path

from providers.contract import load
from providers.listing import table
from providers.listing_jobs import jobs_table
from schemas.contract import Contract

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "providers.md"
BEGIN, END = "<!-- made: begin -->\n\n", "\n<!-- made: end -->"
JOBS_BEGIN, JOBS_END = "<!-- jobs: begin -->\n\n", "\n<!-- jobs: end -->"


def shipped() -> list[Contract]:
    return [load(file.read_bytes(), name=file.stem) for file in (ROOT / "providers" / "contracts").glob("*.toml")]


def made() -> str:
    return table(shipped())


def test_the_page_is_made_from_the_contracts() -> None:
    """A contract that changes without its row is found; people read there what is signed and what is assumed (B2)."""
    assert PAGE.read_text().partition(BEGIN)[2].partition(END)[0] == made(), "write it anew: python -m tests.providers.test_shipped_listing"


def test_the_page_of_jobs_is_made_from_the_contracts() -> None:
    """What a provider promises about its jobs stands there as its contract says it (A6, A7, B071)."""
    found = PAGE.read_text().partition(JOBS_BEGIN)[2].partition(JOBS_END)[0]
    assert found == jobs_table(shipped()), "write it anew: python -m tests.providers.test_shipped_listing"


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
    text = PAGE.read_text()
    for begin, end, content in ((BEGIN, END, made()), (JOBS_BEGIN, JOBS_END, jobs_table(shipped()))):
        before, _, rest = text.partition(begin)
        text = before + begin + content + end + rest.partition(end)[2]
    PAGE.write_text(text)
