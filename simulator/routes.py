"""A contract's addresses read backwards: which call of ours a request is, and what it names."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from schemas.contract import Contract

CallKind = Literal["create", "status", "cancel", "search"]
_FIELD: Final = re.compile(r"\{(\+?)([A-Za-z0-9_.-]+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request as read: its kind, and the values of the template's fields that stand in its address."""

    kind: CallKind
    values: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One address of the contract."""

    kind: CallKind
    method: str
    path: re.Pattern[str]
    fields: tuple[str, ...]
    query: Mapping[str, str]  # parameter -> field that it carries
    words: int  # letters of the address that are not fields

    def read(self, method: str, url: str) -> Call | None:
        """Return the call, if the request is one to this address."""
        parts = urlsplit(url)
        found = self.path.fullmatch(parts.path) if method == self.method else None
        if found is None:
            return None
        given = dict(parse_qsl(parts.query, max_num_fields=50))
        values = dict(zip(self.fields, map(unquote, found.groups()), strict=True))
        values |= {field: given[name] for name, field in self.query.items() if name in given}
        return Call(kind=self.kind, values=values)


def routes(contract: Contract) -> tuple[Route, ...]:
    """Return the addresses of a contract; those that say most are tried first."""
    found: list[Route] = []
    for kind, rule in (("create", contract.create), ("status", contract.status), ("cancel", contract.cancel)):
        if rule is not None and rule.path:
            found.append(_route(kind, rule.method, rule.path))  # type: ignore[arg-type] # the three words above
    if contract.recovery.path:
        found.append(_route("search", contract.recovery.method, contract.recovery.path))
    return tuple(sorted(found, key=lambda route: -route.words))


def _route(kind: CallKind, method: str, template: str) -> Route:
    path, _, query = template.partition("?")
    pieces: list[str] = []
    fields: list[str] = []
    end = 0
    for match in _FIELD.finditer(path):
        pieces += (re.escape(path[end : match.start()]), "([^?#]+)" if match[1] else "([^/?#]+)")
        fields.append(match[2])
        end = match.end()
    pieces.append(re.escape(path[end:]))
    carried = {name: field[2] for name, value in parse_qsl(query) if (field := _FIELD.fullmatch(value))}
    return Route(
        kind=kind, method=method, path=re.compile("".join(pieces)), fields=tuple(fields), query=carried, words=len(_FIELD.sub("", path))
    )
