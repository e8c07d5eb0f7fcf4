"""JSON Schema of a stranger's hand, held against a stranger's data, in bounded time (MISSION F2).

Draft 2020-12. References stay inside the schema and nothing is fetched. Patterns run in a linear-time engine without look-around and
back-references. How many subschemas can meet at one place of a document is counted before a schema is taken: `anyOf` over
references doubles with every step, and a validator that does not stop is a way to stop a reconciler.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from jsonschema_rs import Draft202012Validator, RegexOptions

from schemas.jsontext import UnreadableJsonError, canonical

MAX_BYTES: Final = 32_768
MAX_DEPTH: Final = 32
MAX_PATTERNS: Final = 50
MAX_PATTERN: Final = 500  # characters
MAX_AT_ONE_PLACE: Final = 1_000  # subschemas that one place of a document may have to meet
_PLACES: Final = 64  # levels of a document: deeper JSON is refused when it is parsed
_WORK: Final = 400_000_000  # bytes of a document times subschemas at one place: some seconds at the worst
_REGEX: Final = RegexOptions(size_limit=1_000_000, dfa_size_limit=1_000_000)
_DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"

_SAME: Final = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas")
_ANY: Final = (
    "items", "additionalProperties", "contains", "propertyNames", "unevaluatedItems", "unevaluatedProperties", "patternProperties",
)  # fmt: skip
_NAMED: Final = ("properties", "prefixItems")
_REFUSED: Final = ("$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveRef", "$recursiveAnchor", "$vocabulary", "dependencies")
_CONTAINERS: Final = ("$defs", "definitions")


class SchemaRefusedError(ValueError):
    """The schema is not taken; the message says why, for whoever wrote it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """A checked schema. `cost`: how many subschemas can meet at one place of a document."""

    cost: int
    _validator: Any = field(repr=False)

    def fault(self, value: Any, size: int) -> str | None:
        """Return where `value` (of `size` bytes as text) breaks the schema and by which keyword, or None.

        No value is repeated. Never raises.
        """
        if size * self.cost > _WORK:
            return "the record is too large for so many subschemas"
        try:
            error = next(iter(self._validator.iter_errors(value)), None)
        except (ValueError, UnicodeError, RecursionError, OverflowError, TypeError):
            return "the record cannot be compared with the schema"
        if error is None:
            return None
        place = "/".join(str(step)[:60] for step in list(error.instance_path)[:12])
        return f"at /{place}: {error.kind.name}"


def compiled(schema: Mapping[str, Any]) -> Schema:
    """Return the schema, ready for use. Raises SchemaRefusedError."""
    cost = _cost(schema)
    try:
        validator = Draft202012Validator(dict(schema), pattern_options=_REGEX, validate_formats=False, offline=True)
    except (ValueError, TypeError, RecursionError, OverflowError) as error:
        raise SchemaRefusedError(f"is no schema of draft 2020-12: {str(error).partition(chr(10))[0][:200]}") from None
    return Schema(cost=cost, _validator=validator)


# --- what a schema costs


@dataclass(slots=True)
class _Node:
    """One subschema: which others meet the same place, and which its parts (by name, or any)."""

    same: list[int] = field(default_factory=list)
    any: list[int] = field(default_factory=list)
    named: list[tuple[str, int]] = field(default_factory=list)


class _Graph:
    """The subschemas of one schema, each once; references are followed inside it."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.root = root
        self.nodes: list[_Node] = []
        self.patterns = 0
        self._known: dict[int, int] = {}
        self._waiting: list[Any] = []

    def read(self) -> None:
        self._index(self.root)
        while self._waiting:
            self._read(self._waiting.pop())

    def _index(self, schema: Any) -> int:
        if not isinstance(schema, dict | bool):
            raise SchemaRefusedError("a subschema is neither an object nor true or false")
        known = self._known.get(id(schema)) if isinstance(schema, dict) else None
        if known is None:
            known = len(self.nodes)
            self.nodes.append(_Node())
            if isinstance(schema, dict):
                self._known[id(schema)] = known
                self._waiting.append(schema)
        return known

    def _read(self, schema: Mapping[str, Any]) -> None:
        node = self.nodes[self._known[id(schema)]]
        for name in _REFUSED:
            if name in schema:
                raise SchemaRefusedError(f"{name} is not supported: use $ref to a place in the schema")
        if "$id" in schema and schema is not self.root:
            raise SchemaRefusedError("$id is taken at the top alone: it would change what $ref means")
        self._patterns(schema)
        for name in _SAME:
            node.same.extend(self._index(part) for _, part in _parts(schema, name))
        if "$ref" in schema:
            node.same.append(self._index(self._target(schema["$ref"])))
        for name in _ANY:
            node.any.extend(self._index(part) for _, part in _parts(schema, name))
        for name in _NAMED:
            node.named.extend((f"{name}:{label}", self._index(part)) for label, part in _parts(schema, name))
        for name in _CONTAINERS:
            for _, part in _parts(schema, name):
                self._index(part)

    def _patterns(self, schema: Mapping[str, Any]) -> None:
        found = [*schema.get("patternProperties", {})] if isinstance(schema.get("patternProperties"), dict) else []
        found += [schema["pattern"]] if isinstance(schema.get("pattern"), str) else []
        self.patterns += len(found)
        if self.patterns > MAX_PATTERNS or any(len(pattern) > MAX_PATTERN for pattern in found):
            raise SchemaRefusedError(f"has more than {MAX_PATTERNS} patterns, or one of more than {MAX_PATTERN} characters")

    def _target(self, reference: Any) -> Any:
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            raise SchemaRefusedError('$ref must point into the schema itself, as in "#/$defs/name": nothing is fetched')
        value: Any = self.root
        for step in reference.split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(value, list) and name.isascii() and name.isdigit() and int(name[:9]) < len(value):
                value = value[int(name[:9])]
            elif isinstance(value, dict) and name in value:
                value = value[name]
            else:
                raise SchemaRefusedError(f"$ref {reference[:100]!r} points at nothing")
        return value


def _parts(schema: Mapping[str, Any], name: str) -> Iterator[tuple[str, Any]]:
    """Yield the subschemas under a keyword: one, a list of them, or a table of them."""
    value = schema.get(name)
    tables = {"dependentSchemas", "patternProperties", "properties", *_CONTAINERS}
    if name not in schema:
        return
    if name in tables:
        if not isinstance(value, dict):
            raise SchemaRefusedError(f"{name} must be an object")
        yield from value.items()
    elif isinstance(value, list):
        yield from ((str(index), part) for index, part in enumerate(value))
    else:
        yield "", value


def _cost(schema: Mapping[str, Any]) -> int:
    """Return how many subschemas can meet at one place of a document of any shape. Raises SchemaRefusedError."""
    try:
        size = len(canonical(dict(schema)))
    except (UnreadableJsonError, RecursionError, TypeError):
        raise SchemaRefusedError("has a number or a text that JSON does not carry exactly") from None
    if size > MAX_BYTES:
        raise SchemaRefusedError(f"has {size} bytes; {MAX_BYTES} are taken")
    if _depth(schema) > MAX_DEPTH:
        raise SchemaRefusedError(f"is nested deeper than {MAX_DEPTH}")
    if schema.get("$schema", _DRAFT) not in {_DRAFT, f"{_DRAFT}#"}:
        raise SchemaRefusedError("must be of draft 2020-12: leave $schema out")
    graph = _Graph(schema)
    graph.read()
    closures = [_closure(graph, index) for index in range(len(graph.nodes))]
    return _walk(graph, closures)


def _closure(graph: _Graph, start: int) -> dict[int, int]:
    """Return which subschemas meet a place when `start` does, and how often each. Raises where that has no end."""
    counts: dict[int, int] = {}
    total = 0
    stack: list[tuple[int, frozenset[int]]] = [(start, frozenset())]
    while stack:
        index, above = stack.pop()
        if index in above:
            raise SchemaRefusedError("a $ref leads back to itself without going deeper into the document")
        counts[index] = counts.get(index, 0) + 1
        total += 1
        if total > MAX_AT_ONE_PLACE:
            raise SchemaRefusedError(f"more than {MAX_AT_ONE_PLACE} subschemas can meet at one place: it branches too much")
        stack.extend((part, above | {index}) for part in graph.nodes[index].same)
    return counts


def _walk(graph: _Graph, closures: list[dict[int, int]]) -> int:
    """Go down a document, level by level, always into the part that meets the most."""
    met = closures[0]
    worst = sum(met.values())
    for _ in range(_PLACES):
        anywhere: dict[int, int] = {}
        named: dict[str, dict[int, int]] = {}
        for index, count in met.items():
            for part in graph.nodes[index].any:
                _add(anywhere, closures[part], count)
            for label, part in graph.nodes[index].named:
                _add(named.setdefault(label, {}), closures[part], count)
        below = dict(anywhere)
        for table in named.values():  # a part has one name: what meets it comes from one of the tables
            for part, count in table.items():
                below[part] = max(below.get(part, 0), anywhere.get(part, 0) + count)
        worst = max(worst, sum(anywhere.values()) + max((sum(table.values()) for table in named.values()), default=0))
        if worst > MAX_AT_ONE_PLACE:
            raise SchemaRefusedError(f"more than {MAX_AT_ONE_PLACE} subschemas can meet at one place: it branches too much")
        if not below or below == met:
            break
        met = below
    return worst


def _add(table: dict[int, int], closure: Mapping[int, int], count: int) -> None:
    for part, times in closure.items():
        table[part] = table.get(part, 0) + count * times


def _depth(value: Any) -> int:
    deepest, stack = 0, [(value, 1)]
    while stack:
        item, depth = stack.pop()
        deepest = max(deepest, depth)
        if deepest > MAX_DEPTH:
            break
        if isinstance(item, dict):
            stack.extend((part, depth + 1) for part in item.values())
        elif isinstance(item, list):
            stack.extend((part, depth + 1) for part in item)
    return deepest
