"""Contracts: a TOML file's bytes in, a checked `Contract` out, or every fault of the file at once.

Section and key names are the field names of the dataclasses in `schemas/contract.py` (docs/contracts.md explains each).
"""

import hashlib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from providers.contract_checks import check_complete, check_sections
from providers.contract_faults import ContractError, Fault, Faults, Path, outline
from providers.contract_parts import check_headers, check_origin
from providers.contract_reading import read_section
from providers.contract_signature import read_schemes
from providers.coverage import check_coverage
from providers.handshake_reading import read_handshakes
from providers.places import compile_place
from schemas.contract import (
    Auth,
    CancelRule,
    Contract,
    CreateRule,
    Deadlines,
    EventMap,
    Limits,
    ListRule,
    RecoveryRule,
    ResultRule,
    RetryRules,
    StatusRule,
)

__all__ = ["ContractError", "Fault", "load", "params_of"]

MAX_BYTES: Final = 262_144  # a contract with many samples has tens of kilobytes
UNSIGNED_BYTES: Final = 65_536  # of a delivery that anybody can send and that only names a job, unless the contract says otherwise
SECTIONS: Final[Mapping[str, type]] = {
    "event": EventMap,
    "retry": RetryRules,
    "auth": Auth,
    "create": CreateRule,
    "recovery": RecoveryRule,
    "status": StatusRule,
    "cancel": CancelRule,
    "result": ResultRule,
    "list": ListRule,
    "limits": Limits,
    "deadlines": Deadlines,
}
ACTION_SECTIONS: Final = ("create", "recovery", "status", "cancel", "result", "deadlines")
"""Sections of a kind of operation: at the top of the file, or under `[actions.NAME]` where there are several."""
_TEXTS: Final = ("name", "title", "origin", "docs", "trace_header")
_KNOWN: Final = (*_TEXTS, "unconfirmed", "headers", "signature", "handshake", "actions", "samples", *SECTIONS)
_ACTION = re.compile(r"[a-z][a-z0-9_]{0,63}")
_PARAM = re.compile(r"\{\+?param\.([A-Za-z0-9_-]+)\}")
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_TOML_LINE = re.compile(r"\(at line (\d+), column \d+\)")


def load(data: bytes, *, name: str | None = None) -> Contract:
    """Return the contract in `data`. `name` names it where the file does not. Raises ContractError with all faults."""
    source, document = _parsed(data, name or "")
    faults = Faults(outline(source))
    for key in document:
        if key not in _KNOWN:
            faults.unknown((key,), _KNOWN)
    texts: dict[str, Any] = _texts(document, faults)
    texts["name"] = texts["name"] or name or ""
    if not _NAME.fullmatch(texts["name"]):
        faults.add(("name",), "is missing or no slug: use lower-case letters, digits and hyphens, as in acme-reports")
    sections: dict[str, Any] = {key: _section(key, document[key], (key,), faults) for key in SECTIONS if key in document}
    actions = _actions(document, faults)
    headers = _headers(document, faults)
    signature = document.get("signature", [])
    listed = isinstance(signature, list)
    schemes = read_schemes(signature if listed else [signature], faults, listed=listed)
    handshakes = read_handshakes(document["handshake"], faults) if "handshake" in document else ()
    samples = _samples(document, faults)
    unconfirmed = _unconfirmed(document, faults)
    faults.judge()
    check_complete(document, faults)
    check_origin(texts["origin"], ("origin",), faults)
    check_headers(headers, ("headers",), faults)
    check_sections(sections, faults)
    for action, own in actions.items():
        check_sections(own, faults, ("actions", action))
    if isinstance(event := sections.get("event"), EventMap):
        check_coverage(event, schemes, faults)
    if faults.all():
        raise ContractError(faults.all(), texts["name"])
    if schemes and all(scheme.primitive == "refetch" for scheme in schemes) and "delivery_bytes" not in document.get("limits", {}):
        sections["limits"] = replace(sections.get("limits", Limits()), delivery_bytes=UNSIGNED_BYTES)
    whole = Contract(
        **texts,
        digest=hashlib.sha256(data).hexdigest(),
        unconfirmed=unconfirmed,
        headers=headers,
        signatures=schemes,
        handshakes=handshakes,
        samples=samples,
        **sections,
    )
    return replace(whole, actions={action: _narrowed(whole, action, own) for action, own in actions.items()})


def params_of(contract: Contract) -> frozenset[str]:
    """Return the constants of an account that the contract's requests need: every `{param.NAME}` in a template."""
    found: set[str] = set()
    for kind in contract.kinds().values():
        for section in (kind.create, kind.recovery, kind.status, kind.cancel, kind.result):
            found.update(_PARAM.findall(repr(section)))
    return frozenset(found)


def _narrowed(whole: Contract, action: str, own: Mapping[str, Any]) -> Contract:
    """Return the contract as one action has it: its own sections, and what all of them share. Deliveries are the whole one's."""
    create = own.get("create")
    sections = {**own, "create": replace(create, action=action)} if create is not None else own
    return replace(whole, signatures=(), handshakes=(), samples=(), unconfirmed=(), **sections)


def _actions(document: Mapping[str, Any], faults: Faults) -> dict[str, dict[str, Any]]:
    """Return action -> its sections. Each action is whole in itself: what it leaves out it does not have."""
    found: dict[str, dict[str, Any]] = {}
    table = document.get("actions", {})
    if not isinstance(table, Mapping):
        faults.add(("actions",), "must be tables: write [actions.refund.create], [actions.refund.status] and so on")
        return found
    for section in ACTION_SECTIONS[:-1]:
        if table and section in document:
            faults.add((section,), "stands beside [actions]: where there are several actions, each has its own")
    for action, sections in table.items():
        path: Path = ("actions", action)
        if not _ACTION.fullmatch(action):
            faults.add(path, "is no name: use lower-case letters, digits and _, as in payment_intent")
        elif not isinstance(sections, Mapping):
            faults.add(path, "must be a table of sections")
        else:
            for key in sections:
                if key not in ACTION_SECTIONS:
                    faults.unknown((*path, key), ACTION_SECTIONS)
            found[action] = {
                key: value
                for key in ACTION_SECTIONS
                if key in sections and (value := _section(key, sections[key], (*path, key), faults)) is not None
            }
    return found


def _section(key: str, table: Any, path: Path, faults: Faults) -> Any:
    """Return a section. Where a provider names its own addresses, or speaks by its HTTP status, no path and no place is guessed."""
    section = read_section(SECTIONS[key], table, path, faults)
    if isinstance(section, StatusRule | CancelRule) and section.url and "path" not in table:
        section = replace(section, path="")
    if isinstance(section, StatusRule) and section.http_readings and "state" not in table:
        section = replace(section, state="")
    return section


def _headers(document: Mapping[str, Any], faults: Faults) -> dict[str, str]:
    """Return the headers that every call carries. Credentials have their own place, and framing is not a contract's to say."""
    table = document.get("headers", {})
    if not isinstance(table, Mapping) or not all(isinstance(value, str) for value in table.values()):
        faults.add(("headers",), "must be a table of texts: header = value")
        return {}
    return dict(table)


def _parsed(data: bytes, name: str) -> tuple[str, dict[str, Any]]:
    def fault(line: int, message: str) -> ContractError:
        return ContractError((Fault(line=line, key="", message=message),), name)

    if len(data) > MAX_BYTES:
        raise fault(0, f"the file has more than {MAX_BYTES} bytes")
    try:
        source = data.decode()
    except UnicodeDecodeError as error:
        raise fault(data.count(b"\n", 0, error.start) + 1, "is not UTF-8: save the file as UTF-8") from error
    try:
        return source, tomllib.loads(source)
    except (ValueError, RecursionError) as error:
        found = _TOML_LINE.search(str(error))
        text = _TOML_LINE.sub("", str(error)).strip()
        cure = " (a text stands in quotes)" if text == "Invalid value" else ""
        raise fault(int(found[1]) if found else 0, f"is not TOML: {text or 'nested too deeply'}{cure}") from error


def _texts(document: Mapping[str, Any], faults: Faults) -> dict[str, str]:
    texts: dict[str, str] = {}
    for key in _TEXTS:
        value = document.get(key, "")
        if not isinstance(value, str):
            faults.add((key,), "must be a text (in quotes)")
        texts[key] = value if isinstance(value, str) else ""
    if texts["trace_header"]:
        try:
            compile_place(f"header:{texts['trace_header']}")
        except ValueError as error:
            faults.add(("trace_header",), str(error))
    return texts


def _unconfirmed(document: Mapping[str, Any], faults: Faults) -> tuple[str, ...]:
    values = document.get("unconfirmed", [])
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        faults.add(("unconfirmed",), 'must be a list of keys, as in ["retry.horizon_seconds"]')
        return ()
    return tuple(values)


def _samples(document: Mapping[str, Any], faults: Faults) -> tuple[Mapping[str, Any], ...]:
    values = document.get("samples", [])
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        faults.add(("samples",), "must be tables: write [[samples]]")
        return ()
    for index, sample in enumerate(values):
        if not isinstance(sample.get("name"), str):
            faults.add(("samples", index), "needs a name")
    return tuple(values)
