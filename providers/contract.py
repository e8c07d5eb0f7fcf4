"""Contracts: a TOML file's bytes in, a checked `Contract` out, or every fault of the file at once.

Section and key names are the field names of the dataclasses in `schemas/contract.py` (docs/contracts.md explains each).
"""

import hashlib
import re
import tomllib
from collections.abc import Mapping
from typing import Any, Final

from providers.contract_checks import check_complete, check_origin, check_sections
from providers.contract_faults import ContractError, Fault, Faults, outline
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

__all__ = ["ContractError", "Fault", "load"]

MAX_BYTES: Final = 262_144  # a contract with many samples has tens of kilobytes
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
_TEXTS: Final = ("name", "title", "origin", "docs", "trace_header")
_KNOWN: Final = (*_TEXTS, "unconfirmed", "signature", "handshake", "samples", *SECTIONS)
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
    sections: dict[str, Any] = {
        key: read_section(shape, document[key], (key,), faults) for key, shape in SECTIONS.items() if key in document
    }
    signature = document.get("signature", [])
    listed = isinstance(signature, list)
    schemes = read_schemes(signature if listed else [signature], faults, listed=listed)
    handshakes = read_handshakes(document["handshake"], faults) if "handshake" in document else ()
    samples = _samples(document, faults)
    unconfirmed = _unconfirmed(document, faults)
    faults.judge()
    check_complete(document, faults)
    check_origin(texts["origin"], ("origin",), faults)
    check_sections(sections, faults)
    if isinstance(event := sections.get("event"), EventMap):
        check_coverage(event, schemes, faults)
    if faults.all():
        raise ContractError(faults.all(), texts["name"])
    return Contract(
        **texts,
        digest=hashlib.sha256(data).hexdigest(),
        unconfirmed=unconfirmed,
        signatures=schemes,
        handshakes=handshakes,
        samples=samples,
        **sections,
    )


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
        raise fault(int(found[1]) if found else 0, f"is not TOML: {text or 'nested too deeply'}") from error


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
