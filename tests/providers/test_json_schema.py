"""A stranger's schema: taken only where holding it against anything ends soon, and then it says nothing of the values (F2)."""

import time
from typing import Any

import pytest

from providers.json_schema import MAX_AT_ONE_PLACE, SchemaRefusedError, compiled


def doubling(steps: int) -> dict[str, Any]:
    """Return a schema whose subschemas double with every step, though it is written in a few lines."""
    names: dict[str, Any] = {
        f"a{n}": {"anyOf": [{"allOf": [{"$ref": f"#/$defs/a{n + 1}"}, {"minimum": n}]}, {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}]}]}
        for n in range(steps)
    }
    return {"$defs": {**names, f"a{steps}": {"not": {}}}, "$ref": "#/$defs/a0"}


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(depth):
        schema = {"not": schema}
    return schema


@pytest.mark.parametrize(
    ("schema", "word"),
    [
        (doubling(40), "branches too much"),
        ({"allOf": [{"properties": {"a": {"$ref": "#"}}}, {"properties": {"a": {"$ref": "#"}}}]}, "branches too much"),
        ({"$ref": "#"}, "back to itself"),
        ({"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"not": {"$ref": "#/$defs/a"}}}, "$ref": "#/$defs/a"}, "back to itself"),
        ({"$ref": "https://schemas.example/x.json"}, "nothing is fetched"),
        ({"$ref": "file:///etc/passwd"}, "nothing is fetched"),
        ({"$ref": "#/$defs/none"}, "points at nothing"),
        ({"$ref": "#/$defs/none/0", "$defs": {"none": [1]}}, "neither an object"),
        ({"properties": {"a": {"$id": "https://schemas.example/", "$ref": "#"}}}, "$id"),
        ({"$dynamicRef": "#x"}, "$dynamicRef"),
        ({"$schema": "https://json-schema.org/draft/2019-09/schema"}, "2020-12"),
        ({"type": "whole number"}, "no schema"),
        ({"properties": ["a"]}, "must be an object"),
        ({"items": 3}, "neither an object"),
        ({"pattern": "(?=look)ahead"}, "no schema"),
        ({"pattern": r"(a)\1"}, "no schema"),
        ({"pattern": r"(\w{1000}){1000}"}, "no schema"),
        ({"pattern": "a" * 501}, "patterns"),
        ({"patternProperties": {f"^{n}$": {} for n in range(51)}}, "patterns"),
        (nested(40), "deeper"),
        ({"description": "x" * 40_000}, "bytes"),
        ({"const": 2**60}, "exactly"),
        ({"const": "\ud800"}, "exactly"),
    ],
)
def test_a_schema_that_could_hurt_is_refused(schema: dict[str, Any], word: str) -> None:
    """Doubling, loops, references to elsewhere, patterns that could run for ever, sizes: refused with a word for its author (F2)."""
    with pytest.raises(SchemaRefusedError, match=word.replace("$", r"\$")):
        compiled(schema)


@pytest.mark.parametrize(
    ("schema", "good", "bad", "fault"),
    [
        ({"type": "object", "required": ["a"]}, {"a": 1}, {}, "at /: required"),
        ({"properties": {"a": {"items": {"maximum": 3}}}}, {"a": [1]}, {"a": [1, 9]}, "at /a/1: maximum"),
        ({"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}, "n": {"type": "integer"}}}, {"left": {"n": 1}},
         {"left": {"right": {"n": "CANARY"}}}, "at /left/right/n: type"),
        ({"$defs": {"x/y": {"enum": [1]}}, "$ref": "#/$defs/x~1y"}, 1, "CANARY", "at /: enum"),
        ({"$schema": "https://json-schema.org/draft/2020-12/schema", "prefixItems": [True, False]}, [1], [1, "CANARY"],
         "at /1: falseSchema"),
        ({"oneOf": [{"type": "string", "pattern": "^a+$"}, {"type": "null"}]}, "aaa", "b", "at /: oneOf"),
    ],
)  # fmt: skip
def test_what_breaks_a_schema_is_named_by_its_place(schema: dict[str, Any], good: Any, bad: Any, fault: str) -> None:
    """Recursive schemas work; the message holds the place and the keyword, never the value (F2, B142)."""
    schema_ = compiled(schema)
    assert schema_.fault(good, 100) is None
    found = schema_.fault(bad, 100)
    assert found is not None
    assert found.lower() == fault.lower()


def test_many_flat_properties_are_cheap() -> None:
    """What is counted is how many subschemas meet one place, not how many there are."""
    assert compiled({"properties": {f"p{n}": {"type": "integer"} for n in range(900)}}).cost < 3
    assert compiled({"anyOf": [{"const": n} for n in range(MAX_AT_ONE_PLACE - 10)]}).cost < MAX_AT_ONE_PLACE


def test_a_hostile_text_meets_a_linear_pattern() -> None:
    """The classic that doubles with every letter elsewhere: over at once, and a record too large for its schema is not tried."""
    schema = compiled({"pattern": "^(a+)+$"})
    began = time.monotonic()
    assert schema.fault("a" * 200_000 + "b", 200_000) == "at /: pattern"
    assert time.monotonic() - began < 10
    wide = compiled({"anyOf": [{"const": n} for n in range(500)]})
    assert wide.fault(1, 5_000_000) == "the record is too large for so many subschemas"


def test_odd_values_are_no_exception() -> None:
    """Half characters and numbers beyond a float are compared or told of, never raised."""
    schema = compiled({"type": ["string", "number"], "minLength": 1, "multipleOf": 0.1})
    values: list[Any] = ["\ud800", 10**400, float("nan"), [[]]]
    for value in values:
        assert isinstance(schema.fault(value, 10), str | None)
