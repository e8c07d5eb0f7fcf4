"""The table of shipped contracts (docs/providers.md), made from the contracts themselves so that it cannot say anything else."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from schemas.contract import Contract, SignatureScheme

HEAD: Final = """\
| Contract | Scheme | Signed | Event id | Trust | Handshakes | Unconfirmed |
|---|---|---|---|---|---|---|
"""
_DASH: Final = "–"  # noqa: RUF001 - an empty cell of the table is an en dash


def table(contracts: Iterable[Contract]) -> str:
    """Return the table in Markdown, one row for each contract that verifies deliveries, by name."""
    rows = [_row(contract) for contract in sorted(contracts, key=lambda contract: contract.name) if contract.signatures]
    return HEAD + "".join(rows)


def _row(contract: Contract) -> str:
    event = contract.event
    identity = _DASH
    if event.id:
        identity = f"{_code(event.id)} {'signed' if event.id_signed and event.body_signed else 'not signed'}"
    cells = (
        _code(contract.name),
        "<br>".join(_scheme(scheme) for scheme in contract.signatures),
        "<br>".join(_signed(scheme) for scheme in contract.signatures),
        identity,
        "event" if event.body_signed else "hint",
        "<br>".join(f"{item.kind} ({item.when})" for item in contract.handshakes) or _DASH,
        ", ".join(_code(key) for key in contract.unconfirmed) or _DASH,
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _scheme(scheme: SignatureScheme) -> str:
    options = scheme.options
    match scheme.primitive:
        case "token":
            return f"shared token in {_place(options['token'])}"
        case "jwt":
            kind = "detached token" if "detached" in options else "token"
            return f"{kind} {'/'.join(options['algs'])} in {_place(options['token'])}, {_keys(options)}"
        case "httpsig":
            return "HTTP message signature, key by its id"
        case _:
            pass
    names = {"hmac": f"HMAC-{scheme.algorithm.upper()}", "hash": f"plain {scheme.algorithm.upper()} with the secret"}
    algorithm = names.get(scheme.primitive) or scheme.algorithm or "/".join(sorted(set(options["alg_by"]["map"].values())))
    where = scheme.location
    stands = "" if where is None else f" in {where.place} " + ", ".join(_code(name) for name in where.options.get("names") or (where.name,))
    return f"{algorithm}, {scheme.encoding}{stands}" + (f", {_keys(options)}" if scheme.primitive == "asym" else "")


def _signed(scheme: SignatureScheme) -> str:
    options = scheme.options
    text = _DASH
    if scheme.messages:
        text = " or ".join(_code(message) for message in scheme.messages)
    elif "segments" in options:
        text = _code("".join(template for template, _ in options["segments"])) + ", absent parts dropped"
    elif "choice" in options:
        text = f"named fields, by {_code(options['choice']['by'])}"
    elif "detached" in options:
        text = "method, path, listed headers and body"
    elif scheme.primitive == "jwt":
        hashed = options.get("claims", {}).get("body_hash")
        text = f"the token, with the digest of the body in {_code(hashed['claim'])}" if hashed else "the token alone, not the body"
    elif scheme.primitive == "httpsig":
        text = "the components that the sender covers"
    rule = scheme.timestamp
    if rule is None or scheme.primitive == "httpsig":
        return text
    return f"{text}; {_side(rule.past_seconds)}/{_side(rule.future_seconds)}"


def _side(seconds: int | None) -> str:
    return "open" if seconds is None else str(seconds)


def _keys(options: Mapping[str, Any]) -> str:
    words = {"jwks": "published key set", "cert_url": "certificate named by the delivery", "static": "public key"}
    return words.get(str((options.get("keysource") or {}).get("kind", "")), "secret")


def _place(rule: Mapping[str, Any]) -> str:
    named = rule.get("name") or rule.get("path") or ".".join(str(rule[key]) for key in ("list", "field") if key in rule)
    return f"{rule['in']} {_code(str(named))}" if named else str(rule["in"])


def _code(text: str) -> str:
    return f"`{text}`"
