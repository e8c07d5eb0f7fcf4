"""What code, tests and pages cite can be looked up in a clone: requirements, faults, headings."""

import re
from collections.abc import Iterator
from pathlib import Path

from cli.contracts import contract, shipped

ROOT = Path(__file__).parents[2]
PAGE = "docs/requirements.md"
ROW = re.compile(r"^\| ([A-I][0-9]{0,2}|B[0-9]{3}) \| (.+) \|$", re.MULTILINE)
# The signs of encodings around a match (%A0, base64) mean that it is none.
CITED = re.compile(r"(?<![%\w/+])(?:([A-I])([1-9][0-9]?)(?:-\1?([1-9][0-9]?))?|(B[0-9]{3})|MISSION ([A-I]))(?![\w/+=%])")
HEADING = re.compile(r"^#{2,3} (.+)$", re.MULTILINE)
POINTER = re.compile(r"(?:\b(ARCHITECTURE), |\bdocs/([a-z]+)\.md, )([A-Z][^.;:()\n]*)")


def texts() -> Iterator[tuple[str, str]]:
    """Yield path and text of everything that may cite."""
    for file in sorted(ROOT.rglob("*")):
        name = file.relative_to(ROOT).as_posix()
        if file.suffix in {".py", ".md", ".toml"} and not name.startswith(("var/", ".")) and "/." not in name and name != PAGE:
            yield name, file.read_text(encoding="utf-8")


def cited(text: str) -> set[str]:
    """Return the ids in a text; a range stands for all of its ids. The linter's own names of rules are none."""
    text = re.sub(r"# noqa: [A-Z0-9, ]+", "", text)
    found: set[str] = set()
    for letter, first, last, fault, room in CITED.findall(text):
        found |= {f"{letter}{number}" for number in range(int(first), int(last or first) + 1)} if letter else {fault or room}
    return found


def test_every_cited_id_is_explained() -> None:
    """A requirement or fault that is named anywhere has its line in docs/requirements.md."""
    rows = ROW.findall((ROOT / PAGE).read_text(encoding="utf-8"))
    explained = [name for name, _ in rows]
    assert len(explained) == len(set(explained))
    letters = {name[0] for name in explained}
    missing = {(path, name) for path, text in texts() for name in cited(text) - set(explained) - letters}
    assert not missing


def test_a_range_and_an_encoding_are_told_apart() -> None:
    """`E1-E5` is five ids, `MISSION F` a chapter, and neither `%A0` nor base64 cites anything."""
    assert cited("MISSION E1-E3 and B004, A6") == {"E1", "E2", "E3", "B004", "A6"}
    assert cited("(MISSION F)") == {"F"}
    assert cited("%A0%A9 x/A7= B12345") == set()


def test_every_pointer_to_a_heading_leads_there() -> None:
    """`ARCHITECTURE, X` and `docs/page.md, X` begin with a heading of that page."""
    for path, text in texts():
        if path == "tests/demo/test_citations.py":
            continue
        for architecture, page, words in POINTER.findall(text):
            name = "architecture" if architecture else page
            headings = HEADING.findall((ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8"))
            assert any(words.startswith(heading) for heading in headings), (path, words)


def test_where_to_add_things_stands_once() -> None:
    """The places of a new state or errand are listed in CONTRIBUTING.md, exist, and are pointed at from elsewhere."""
    listed = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Where to add what")[2]
    for place in re.findall(r"`((?:schemas|lifecycle|providers|reconciler|ledger|tests|docs|cli)/[\w/.]*)`", listed):
        assert (ROOT / place).exists(), place
    for name, link in (("README.md", "CONTRIBUTING.md#where-to-add-what"), ("docs/states.md", "../CONTRIBUTING.md#where-to-add-what")):
        page = (ROOT / name).read_text(encoding="utf-8")
        assert f"({link})" in page
        assert "`lifecycle/errands.py`" not in page


def test_the_page_tells_which_contracts_have_jobs() -> None:
    """README leads to the page, and each kind of operation that a shipped contract has stands in its table."""
    page = (ROOT / "docs" / "providers.md").read_text(encoding="utf-8").partition("## Jobs")[2].partition("## Deliveries")[0]
    kinds = {name: found.kinds() for name in shipped() if (found := contract(name, ROOT)).kinds()}
    assert len(kinds) >= 20
    for name, actions in kinds.items():
        for action in actions:
            assert f"| `{name}`" + (f" `{action}` |" if len(actions) > 1 else "") in page
    assert "(docs/providers.md)" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_page_is_found() -> None:
    """README and CONTRIBUTING lead to it."""
    for name in ("README.md", "CONTRIBUTING.md"):
        assert f"({PAGE})" in (ROOT / name).read_text(encoding="utf-8")
