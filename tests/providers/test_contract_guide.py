"""The contract author's guide says what the code does: its example loads and passes, and no key is left out."""

import re
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest

from cli.contracts import sample_faults
from providers.contract import load
from providers.contract_keys import KEYSOURCE
from providers.contract_shorthands import SHORTHANDS
from providers.contract_signature import PARAMETERS
from providers.handshake_reading import KINDS as HANDSHAKES
from providers.samples import ANSWER_KEYS, notes
from providers.samples import KINDS as ANSWERED
from providers.verification import claims, detached, httpsig
from providers.verification.algorithms import ALGORITHMS, JWS_PUBLIC, JWS_SECRET
from providers.verification.components import DERIVED
from providers.verification.encodings import ENCODINGS
from providers.verification.engine import PRIMITIVES
from providers.verification.keys import FORMATS, TRANSFORMS
from providers.verification.locations import PARSERS, PLACES
from providers.verification.messages import TOKENS
from providers.verification.sources import KINDS
from providers.verification.times import UNITS
from providers.verification.tokens import TOKEN_PLACES
from schemas import contract as shapes
from schemas.states import Reading

GUIDE = (Path(__file__).parents[2] / "docs" / "contracts.md").read_text()
CODE = "\n".join(re.findall(r"`[^`\n]+`", GUIDE)) + "".join(re.findall(r"```toml\n(.*?)```", GUIDE, re.DOTALL))
SECTIONS = [
    shapes.EventMap, shapes.RetryRules, shapes.Handshake, shapes.Auth, shapes.TokenRule, shapes.CreateRule,
    shapes.RecoveryRule, shapes.StatusRule, shapes.OutcomeRule,
    shapes.CancelRule, shapes.ResultFile, shapes.ResultRule, shapes.ListRule, shapes.Limits, shapes.Deadlines,
]  # fmt: skip
RENAMED = {"place": "in"}
WORDS = {
    "parameters": PARAMETERS, "primitives": PRIMITIVES, "key transforms": TRANSFORMS, "algorithms": ALGORITHMS, "formats": FORMATS,
    "key sources": KINDS, "keys of keysource": KEYSOURCE, "shorthands": SHORTHANDS, "claims": claims.WORDS,
    "body hash": claims.BODY_HASH_WORDS, "hash encodings": claims.HASH_ENCODINGS, "detached": detached.WORDS,
    "detached kinds": detached.KINDS, "covers": httpsig.WORDS, "http algorithms": httpsig.ALGORITHMS, "derived": DERIVED,
    "jws algorithms": (*JWS_SECRET, *JWS_PUBLIC),
    "encodings": ENCODINGS, "parsers": PARSERS, "places": PLACES, "units": UNITS, "token places": TOKEN_PLACES, "message tokens": TOKENS,
    "handshake kinds": HANDSHAKES,
    "readings": [str(reading) for reading in Reading],
}  # fmt: skip


def mentioned(word: str) -> bool:
    return re.search(rf"(?<![a-z0-9_-]){re.escape(word)}(?![a-z0-9_-])", CODE) is not None


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.__name__)
def test_every_key_of_a_section_is_explained(section: Any) -> None:
    """A field that is added to a section without a word in the guide is found."""
    missing = [item.name for item in fields(section) if not mentioned(RENAMED.get(item.name, item.name))]
    assert not missing


def test_every_top_level_key_is_explained() -> None:
    """Sections and texts of the top level stand in the guide; the digest is computed and no key."""
    names = {item.name for item in fields(shapes.Contract)} - {"digest", "signatures", "handshakes", "params"} | {"signature", "handshake"}
    assert not [name for name in names if not mentioned(name)]


@pytest.mark.parametrize("kind", WORDS)
def test_every_word_of_a_closed_set_is_explained(kind: str) -> None:
    """Primitives, transforms, parsers, tokens and readings are listed as the code knows them."""
    assert not [word for word in WORDS[kind] if not mentioned(word)]


def _rows(words: str) -> dict[str, str]:
    """Return key -> default of the table behind `words`."""
    table = GUIDE.split(words, 1)[1].split("| Key | Meaning | Default |\n|---|---|---|\n", 1)[1].split("\n\n", 1)[0]
    return {cells[0].strip("` "): cells[-1] for cells in (row.strip("| ").split(" | ") for row in table.splitlines())}


def _written(value: Any) -> str:
    if value in (None, "", (), {}) or isinstance(value, shapes.TokenRule):
        return "none"
    if isinstance(value, tuple):
        return "`[" + ", ".join(f'"{item}"' if isinstance(item, str) else str(item) for item in value) + "]`"
    if isinstance(value, str):
        return f'`"{value}"`'
    return f"`{str(value).lower()}`" if isinstance(value, bool) else f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


NEEDED = {
    shapes.CreateRule: ("path", "job_id"),
    shapes.StatusRule: ("path", "state", "readings"),
    shapes.CancelRule: ("path",),
    shapes.Handshake: ("kind",),
}


@pytest.mark.parametrize(
    ("words", "section"),
    [
        ("## `[event]`", shapes.EventMap), ("## `[retry]`", shapes.RetryRules), ("| `head_ok` |", shapes.Handshake),
        ("## `[auth]`", shapes.Auth), ("## `[create]`", shapes.CreateRule), ("\n`[create.token]`", shapes.TokenRule),
        ("## `[recovery]`", shapes.RecoveryRule), ("## `[status]`", shapes.StatusRule),
        ("**`[[status.outcome]]`**", shapes.OutcomeRule), ("## `[cancel]`", shapes.CancelRule),
        ("## `[result]`", shapes.ResultRule), ("One `[[result.files]]`", shapes.ResultFile),
        ("\n`[result.files.items]` counts", shapes.ItemsRule), ("\n`[limits]`", shapes.Limits),
        ("\n`[deadlines]`", shapes.Deadlines),
    ],
)  # fmt: skip
def test_every_key_stands_with_its_default(words: str, section: Any) -> None:
    """One row for each key of a section, with the default that the code has; where there can be none it says required."""
    defaults = {item.name: item.default if item.default is not MISSING else item.default_factory for item in fields(section)}
    wanted = {
        RENAMED.get(name, name): "**required**" if name in NEEDED.get(section, ()) else _written(value() if callable(value) else value)
        for name, value in defaults.items()
        if value is not MISSING or name in NEEDED.get(section, ())
    }
    assert _rows(words) == wanted


def test_sample_answers_are_explained() -> None:
    """Their keys, kinds and every evidence that an answer can be."""
    part = GUIDE.split("## `[[samples]]`", 1)[1]
    told = set(re.findall(r"`([a-z0-9_]+)`", part))
    assert {*ANSWER_KEYS, *ANSWERED} <= told
    used = {sample.get("evidence", "read") for name in ("reports", "batches") for sample in _shipped(name).samples if "kind" in sample}
    assert used <= told


def _shipped(name: str) -> shapes.Contract:
    return load((Path(__file__).parents[2] / "providers" / "contracts" / f"{name}.toml").read_bytes())


def test_the_worked_example_loads_and_passes_its_own_samples() -> None:
    """What a reader copies works: its deliveries are judged and mapped, its answers mean what they say, nothing is noted as left out."""
    example = re.search(r"```toml\n(.*?)```", GUIDE, re.DOTALL)
    assert example
    contract = load(example[1].encode())
    assert {sample.get("kind", "delivery") for sample in contract.samples} == {"delivery", "create", "list", "status", "cancel"}
    assert list(sample_faults(contract)) == []
    assert notes(contract) == []
    assert f"says `ok ({contract.name}, {len(contract.samples)} samples)`" in GUIDE


@pytest.mark.parametrize("section", ["retry", "handshake"])
def test_the_short_examples_load(section: str) -> None:
    """The examples of `[retry]` and `[[handshake]]` are whole sections."""
    (example,) = re.findall(rf"```toml\n(\[+{section}\]+ .*?)```", GUIDE, re.DOTALL)
    signed = 'name = "acme"\n[signature]\nprimitive = "token"\ntoken = { in = "bearer" }\n[event]\nbody_signed = false\n'
    assert load((signed + example).encode()).signatures
