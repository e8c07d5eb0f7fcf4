"""Parts of a contract that stand in many sections: places, expressions, templates, requests, origins. Each adds its faults."""

from collections.abc import Callable, Mapping
from typing import Final

from providers.contract_faults import Faults, Path
from providers.origins import fault_of, is_any
from providers.places import compile_expression, compile_place, first_unknown

METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD")
_CREDENTIALS: Final = ("authorization", "proxy-authorization", "cookie")
_TRANSPORT: Final = ("host", "content-length", "transfer-encoding", "connection", "te", "trailer", "upgrade", "accept-encoding")
_NOT_OURS: Final = frozenset((*_CREDENTIALS, *_TRANSPORT, "traceparent"))


def tried(make: Callable[[str], object], text: str, path: Path, faults: Faults) -> None:
    """Add a fault where `make` cannot take the text."""
    try:
        make(text)
    except ValueError as error:
        faults.add(path, str(error))


def places(table: Mapping[str, str], path: Path, faults: Faults) -> None:
    """Add a fault for every value that is no place; empty ones are none."""
    for key, text in table.items():
        if text:
            tried(compile_place, text, (*path, key), faults)


def expressions(table: Mapping[str, str], path: Path, faults: Faults) -> None:
    """Add a fault for every value that is no expression; empty ones are none."""
    for key, text in table.items():
        if text:
            tried(compile_expression, text, (*path, key), faults)


def template(text: str, known: tuple[str, ...], path: Path, faults: Faults) -> None:
    """Add a fault for a brace or a name that cannot be filled."""
    try:
        unknown = first_unknown(text, known)
    except ValueError as error:
        faults.add(path, str(error))
        return
    if unknown is not None:
        faults.add(path, f"{{{unknown}}} has no value here; known are {', '.join('{' + name + '}' for name in known)}")


def request(method: str, path_template: str, known: tuple[str, ...], path: Path, faults: Faults) -> None:
    """Add the faults of a method and a path on the provider's origin."""
    if method not in METHODS:
        faults.word((*path, "method"), method, METHODS)
    if not path_template.startswith("/"):
        faults.add((*path, "path"), "must begin with / (it stands on the provider's origin)")
    template(path_template, known, (*path, "path"), faults)


def check_origin(origin: str, path: Path, faults: Faults) -> None:
    """Add a fault unless `origin` is empty or scheme, host and port alone."""
    if origin and (is_any(origin) or origin.endswith("/") or fault_of(origin)):
        faults.add(path, "must be an origin alone, as in https://api.example.com (no path, no slash at the end)")


def check_origins(listed: tuple[str, ...], path: Path, faults: Faults) -> None:
    """Add the faults of a list of origins, where `https://*.host` stands for every host below one."""
    for entry in listed:
        if fault := fault_of(entry):
            faults.add(path, fault)
        elif not entry.startswith("https://"):
            faults.add(path, "must begin with https:// (an operator may add others by result_origins)")


def check_headers(headers: Mapping[str, str], path: Path, faults: Faults) -> None:
    """Add a fault for every header that is none, or that is not a contract's to set."""
    for name, value in headers.items():
        tried(compile_place, f"header:{name}", (*path, name), faults)
        if name.lower() in _NOT_OURS:
            faults.add((*path, name), "is not a contract's to set: credentials go by [auth], and the rest is the transport's")
        elif not value.isprintable() or not value.isascii() or not value.strip():
            faults.add((*path, name), "must be visible ASCII characters")
