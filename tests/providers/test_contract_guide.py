"""The contract author's guide says what the code does: its example loads and passes, and no key is left out."""

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from providers.contract import load
from providers.contract_keys import KEYSOURCE
from providers.contract_shorthands import SHORTHANDS
from providers.contract_signature import PARAMETERS
from providers.handshake_reading import KINDS as HANDSHAKES
from providers.mapping import describe, events
from providers.vectors import request_of, secrets_of
from providers.verification import claims, detached, httpsig, verify
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
from schemas.delivery import Verified
from schemas.operation import SECOND
from schemas.states import Reading

GUIDE = (Path(__file__).parents[2] / "docs" / "contracts.md").read_text()
CODE = "\n".join(re.findall(r"`[^`\n]+`", GUIDE)) + "".join(re.findall(r"```toml\n(.*?)```", GUIDE, re.DOTALL))
SECTIONS = [
    shapes.EventMap, shapes.RetryRules, shapes.Handshake, shapes.Auth, shapes.TokenRule, shapes.CreateRule,
    shapes.RecoveryRule, shapes.StatusRule, shapes.CancelRule, shapes.ResultFile, shapes.ResultRule, shapes.Limits, shapes.Deadlines,
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
    names = {item.name for item in fields(shapes.Contract)} - {"digest", "signatures", "handshakes"} | {"signature", "handshake"}
    assert not [name for name in names if not mentioned(name)]


@pytest.mark.parametrize("kind", WORDS)
def test_every_word_of_a_closed_set_is_explained(kind: str) -> None:
    """Primitives, transforms, parsers, tokens and readings are listed as the code knows them."""
    assert not [word for word in WORDS[kind] if not mentioned(word)]


def test_the_worked_example_loads_and_passes_its_own_sample() -> None:
    """What a reader copies works."""
    example = re.search(r"```toml\n(.*?)```", GUIDE, re.DOTALL)
    assert example
    contract = load(example[1].encode())
    (sample,) = contract.samples
    request = request_of(sample)
    verdict = verify(request, contract.signatures, secrets_of(sample), sample["now"] * SECOND)
    assert isinstance(verdict, Verified)
    (event,) = events(contract, request, verdict.signed)
    assert describe(event) == sample["event"]
    assert event.dedup_key.startswith(sample["dedup"])
