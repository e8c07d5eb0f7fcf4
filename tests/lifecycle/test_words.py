"""Every code of the rules has a sentence that a stranger understands."""

import ast
from pathlib import Path

import pytest

from lifecycle.words import MEANINGS, error_words, meaning
from schemas.states import Cause, State

RULES = Path(__file__).parents[2] / "lifecycle"
PLACES = {"go": 2, "note": 1, "unresolved": 1}  # which argument is the code


def codes() -> set[str]:
    """Return the codes that stand as literals in calls that write rows, or are bound to a name `code`."""
    found: set[str] = set()
    for file in RULES.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            values: list[ast.expr] = []
            if isinstance(node, ast.Call):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                place = PLACES.get(name)
                if place is not None:
                    values = [*node.args[place : place + 1], *(word.value for word in node.keywords if word.arg == "code")]
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "code":
                values = [node.value]
            compared = {
                id(part) for value in values for test in ast.walk(value) if isinstance(test, ast.Compare) for part in ast.walk(test)
            }
            literals = [part for value in values for part in ast.walk(value) if id(part) not in compared]
            found |= {part.value for part in literals if isinstance(part, ast.Constant) and isinstance(part.value, str)}
    return {code for code in found if code and not code.endswith("_")}


def test_every_code_of_the_rules_means_something() -> None:
    """D4, D6: no row of the history is a riddle; a code without a sentence is found here."""
    found = codes()
    assert len(found) > 50
    assert found - MEANINGS.keys() == set()
    assert all(words[0].isupper() and words.endswith(".") for words in MEANINGS.values())


@pytest.mark.parametrize(
    ("code", "to", "cause", "known"),
    [
        ("no_safe_recovery", State.CREATE_UNRESOLVED, Cause.DEADLINE, True),
        ("late_delivery", State.SUCCEEDED, Cause.DELIVERY, True),
        ("abandoned", State.FAILED, Cause.CREATE_ANSWER, False),
        ("card_declined", State.FAILED, Cause.READING, False),
    ],
)
def test_a_providers_own_code_is_its_word(code: str, to: State, cause: Cause, *, known: bool) -> None:
    """A10: what a provider calls its refusal is not explained by us, even where it is a word of ours."""
    assert (meaning(code, to, cause) is not None) is known


def test_an_error_has_a_message() -> None:
    """G1: the provider's own message comes first; a code of ours is explained; a provider's is not."""
    assert error_words("no_safe_recovery", None, State.CREATE_UNRESOLVED) == MEANINGS["no_safe_recovery"]
    assert error_words("no_safe_recovery", "said", State.CREATE_UNRESOLVED) == "said"
    assert error_words("abandoned", None, State.FAILED) is None
    assert error_words("not_created", None, State.FAILED) == MEANINGS["not_created"]
