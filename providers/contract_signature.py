"""`[signature]`: one scheme's parameters, in the same words as in vector files, checked and made a `SignatureScheme`.

Parameters: id, primitive, alg, key, message, encoding, sig, timestamp, token, require_headers, body_digest; those about keys and
tokens (keysource, algs, claims, detached, covers) are read in `contract_keys.py`.
"""

import re
from collections.abc import Container, Mapping, Sequence
from typing import Any, Final

from providers.contract_faults import Faults, Path
from providers.contract_keys import JWT_PLACES, read_keys
from providers.contract_shorthands import expanded
from providers.verification.encodings import ENCODINGS
from providers.verification.engine import PRIMITIVES
from providers.verification.keys import TRANSFORMS
from providers.verification.locations import PARSERS, PLACES
from providers.verification.messages import compile_choice, compile_message, compile_segments
from providers.verification.signatures import DIGESTS
from providers.verification.times import UNITS
from providers.verification.tokens import TOKEN_PLACES
from schemas.contract import SignatureLocation, SignatureScheme, TimestampRule

PARAMETERS: Final = (
    "id", "primitive", "alg", "key", "message", "encoding", "sig", "timestamp", "token", "keysource", "claims", "algs",
    "require_headers", "body_digest", "detached", "covers",
)  # fmt: skip
"""Keys of `[signature]`."""

_SIG_KEYS: Final = ("in", "name", "path", "parser", "prefix", "sep", "sep_re", "key", "ts_key", "trim", "ver_sep", "version", "own")
_PARSER_NEEDS: Final = {"prefix": ("prefix",), "kv": ("key",), "list": ("version",)}
_TIMESTAMP_KEYS: Final = ("in", "name", "path", "unit", "tolerance", "future", "earliest")
_SIGNED: Final = ("hmac", "hash", "asym")
_DEFAULT_TOLERANCE: Final = 300


def read_schemes(values: Sequence[Any], faults: Faults, *, listed: bool, keys_given: bool = False) -> tuple[SignatureScheme, ...]:
    """Return the schemes of `[signature]` or `[[signature]]` (`listed`); faults are collected, faulty ones left out.

    `keys_given`: published keys come with the cases of a vector file, so that a key set needs no address.
    """
    schemes: list[SignatureScheme] = []
    for index, value in enumerate(values):
        path: Path = ("signature", index) if listed else ("signature",)
        scheme = read_scheme(value, path, faults, index, keys_given=keys_given)
        if scheme is not None and any(other.id == scheme.id for other in schemes):
            faults.add((*path, "id"), f"{scheme.id!r} is taken: give every scheme its own id")
        elif scheme is not None:
            schemes.append(scheme)
    return tuple(schemes)


def read_scheme(value: Any, path: Path, faults: Faults, index: int = 0, *, keys_given: bool = False) -> SignatureScheme | None:
    """Return one scheme, or None with its faults added."""
    before = len(faults.all())
    if not isinstance(value, Mapping):
        faults.add(path, "must be a table")
        return None
    if "id" in value and (not isinstance(value["id"], str) or not value["id"]):
        faults.add((*path, "id"), "must be a text (in quotes)")
    for name in value:
        if name not in PARAMETERS:
            faults.unknown((*path, name), PARAMETERS)
    primitive = value.get("primitive")
    if not _in(primitive, PRIMITIVES):
        _primitive_fault(primitive, path, faults)
        return None
    value = expanded(value)
    location = _location(value.get("sig"), (*path, "sig"), faults) if primitive in _SIGNED else None
    timestamp = _timestamp(value.get("timestamp"), (*path, "timestamp"), faults)
    messages, forms = _messages(value, path, faults)
    options = _options(value, path, faults) | forms | read_keys(value, path, faults, given=keys_given)
    if primitive in _SIGNED:
        _check_words(value, path, faults)
    if primitive in _SIGNED and messages is not None:
        _check_signed(primitive, path, faults, location=location, timestamp=timestamp, messages=messages, forms=forms)
    if primitive in {"token", "jwt"}:
        _check_token(value.get("token"), (*path, "token"), faults, TOKEN_PLACES if primitive == "token" else JWT_PLACES)
    if len(faults.all()) > before:
        return None
    return SignatureScheme(
        id=str(value.get("id") or (primitive if index == 0 else f"{primitive}-{index + 1}")),
        primitive=str(primitive),
        algorithm=_algorithm(value),
        key=str(value.get("key", "utf8")),
        messages=messages or (),
        encoding=str(value.get("encoding", "hex")),
        location=location,
        timestamp=timestamp,
        options=options,
    )


def _algorithm(value: Mapping[str, Any]) -> str:
    # A table chooses by the delivery: it is an option of the scheme.
    said = value.get("alg", "sha256" if value["primitive"] in {"hmac", "hash"} else "")
    return said if isinstance(said, str) else ""


def _in(value: Any, words: Container[str]) -> bool:
    # Anything may stand behind a key of a file, also what cannot be hashed.
    return isinstance(value, str) and value in words


def _primitive_fault(primitive: Any, path: Path, faults: Faults) -> None:
    if primitive is None:
        faults.add((*path, "primitive"), f"is missing; use one of {', '.join(PRIMITIVES)}")
    else:
        faults.word((*path, "primitive"), primitive, PRIMITIVES)


def _location(sig: Any, path: Path, faults: Faults) -> SignatureLocation | None:
    if not isinstance(sig, Mapping):
        faults.add(path, 'is missing; say where the signature is, as in { in = "header", name = "X-Signature" }')
        return None
    for name in sig:
        if name not in _SIG_KEYS:
            faults.unknown((*path, name), _SIG_KEYS)
    place, parser = sig.get("in"), sig.get("parser", "raw")
    if not _in(place, PLACES):
        faults.word((*path, "in"), place, PLACES)
    if not _in(parser, PARSERS):
        faults.word((*path, "parser"), parser, PARSERS)
        return None
    for need in _PARSER_NEEDS.get(str(parser), ()):
        if not isinstance(sig.get(need), str) or not sig[need]:
            faults.add((*path, need), f"is missing; the parser {parser} needs it")
    names = sig.get("path", sig.get("name"))
    listed = [names] if isinstance(names, str) else names
    if not isinstance(listed, list | tuple) or not listed or not all(isinstance(name, str) and name for name in listed):
        faults.add((*path, "name"), "is missing; name the header, field or path that holds the signature")
        return None
    if place == "headers_numbered" and "{n}" not in listed[0]:
        faults.add((*path, "name"), "needs {n} where the number stands, as in X-Signature-{n}")
    _check_regex(sig, path, faults)
    options = {key: sig[key] for key in sig if key not in {"in", "name", "path", "parser"}}
    if len(listed) > 1:
        options["names"] = tuple(listed)
    return SignatureLocation(place=str(place), name=str(listed[0]), parser=str(parser), options=options)


def _check_regex(sig: Mapping[str, Any], path: Path, faults: Faults) -> None:
    for name in ("sep", "sep_re", "prefix", "key", "ts_key", "ver_sep", "version", "own"):
        if name in sig and (not isinstance(sig[name], str) or not sig[name]):
            faults.add((*path, name), "must be a text (in quotes)")
            return
    if "trim" in sig and not isinstance(sig["trim"], bool):
        faults.add((*path, "trim"), "must be true or false")
    if "sep_re" in sig:
        try:
            pattern = re.compile(str(sig["sep_re"]).encode())
        except re.error as error:
            faults.add((*path, "sep_re"), f"is no regular expression: {error}")
        else:
            if pattern.match(b""):
                faults.add((*path, "sep_re"), "matches the empty text: use + instead of *")


def _timestamp(rule: Any, path: Path, faults: Faults) -> TimestampRule | None:
    if rule is None:
        return None
    if not isinstance(rule, Mapping):
        faults.add(path, "must be a table")
        return None
    for name in rule:
        if name not in _TIMESTAMP_KEYS:
            faults.unknown((*path, name), _TIMESTAMP_KEYS)
    place, unit, name = rule.get("in"), rule.get("unit", "s"), rule.get("path", rule.get("name", ""))
    if not _in(place, ("header", "sig", "json")):
        faults.word((*path, "in"), place, ("header", "sig", "json"))
    if not _in(unit, UNITS):
        faults.word((*path, "unit"), unit, UNITS)
    if place != "sig" and (not isinstance(name, str) or not name):
        faults.add((*path, "name"), "is missing; name the header or path that holds the time")
    past = _seconds(rule.get("tolerance", None if "tolerance" in rule else _DEFAULT_TOLERANCE), (*path, "tolerance"), faults)
    # A window that a provider's own verifier leaves open towards the future is closed like the past (B006);
    # only the word "none" keeps it open.
    future = past if rule.get("future") is None else _seconds(rule["future"], (*path, "future"), faults)
    earliest = _seconds(rule.get("earliest"), (*path, "earliest"), faults)
    return TimestampRule(place=str(place), name=str(name), unit=str(unit), past_seconds=past, future_seconds=future, earliest=earliest)


def _seconds(value: Any, path: Path, faults: Faults) -> int | None:
    if value is None or value == "none":
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        faults.add(path, 'must be whole seconds, or "none"')
        return None
    return value


def _messages(value: Mapping[str, Any], path: Path, faults: Faults) -> tuple[tuple[str, ...] | None, dict[str, Any]]:
    message = value.get("message")
    try:
        if isinstance(message, Mapping) and "by" in message:
            by, of = str(message["by"]), {str(name): _segments(form) for name, form in message["of"].items()}
            compile_choice(by, of)
            return (), {"choice": {"by": by, "of": of}}
        if isinstance(message, Mapping):
            segments = _segments(message["segments"])
            compile_segments(list(segments))
            return (), {"segments": segments}
        texts = (message,) if isinstance(message, str) else tuple(message or ())
        for text in texts:
            compile_message(str(text))
        return tuple(str(text) for text in texts), {}
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        wanted = "must be a template, a list of them, segments, or by and of"
        faults.add((*path, "message"), str(error) if isinstance(error, ValueError) else wanted)
        return None, {}


def _segments(items: Sequence[Any]) -> tuple[tuple[str, str | None], ...]:
    return tuple((str(item[0]), str(item[1]) if len(item) > 1 and item[1] else None) for item in items)


def _options(value: Mapping[str, Any], path: Path, faults: Faults) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name in ("token", "require_headers", "body_digest"):
        if value.get(name) is None:
            continue
        if isinstance(value[name], Mapping):
            options[name] = dict(value[name])
        else:
            faults.add((*path, name), "must be a table")
    digest = options.get("body_digest")
    if digest is not None and not (
        _in(digest.get("in"), ("query", "header"))
        and isinstance(digest.get("name"), str)
        and digest["name"]
        and _in(digest.get("alg", "sha256"), DIGESTS)
    ):
        faults.add((*path, "body_digest"), 'needs in = "query" or "header", a name, and alg = one of ' + ", ".join(DIGESTS))
    return options


def _check_words(value: Mapping[str, Any], path: Path, faults: Faults) -> None:
    if value["primitive"] != "asym" and not _in(value.get("alg", "sha256"), DIGESTS):
        faults.word((*path, "alg"), value.get("alg"), DIGESTS)
    if not _in(value.get("key", "utf8"), TRANSFORMS):
        faults.word((*path, "key"), value.get("key"), TRANSFORMS)
    if not _in(value.get("encoding", "hex"), ENCODINGS):
        faults.word((*path, "encoding"), value.get("encoding"), ENCODINGS)


def _check_signed(
    primitive: str,
    path: Path,
    faults: Faults,
    *,
    location: SignatureLocation | None,
    timestamp: TimestampRule | None,
    messages: tuple[str, ...],
    forms: Mapping[str, Any],
) -> None:
    if not messages and not forms:
        faults.add((*path, "message"), 'is missing; say which bytes are signed, as in "{ts}.{body}"')
        return
    covered = [compile_message(text).tokens for text in messages]
    if "segments" in forms:
        covered = [compile_segments(list(forms["segments"])).tokens]
    if "choice" in forms:
        covered = [compile_choice(**forms["choice"]).tokens]
    if any(("secret" in tokens) != (primitive == "hash") for tokens in covered):
        faults.add((*path, "message"), "{secret} belongs to every message of the primitive hash, and to no other")
    if timestamp and location and not all(_covers(tokens, timestamp) for tokens in covered):
        faults.add(
            (*path, "timestamp"), "is not among the signed bytes: its freshness would prove nothing (use {ts} or {body}, or drop it)"
        )
    if timestamp and timestamp.place == "sig" and location and not ("ts_key" in location.options and location.parser == "kv"):
        faults.add((*path, "sig", "ts_key"), "is missing; it names the pair that holds the time")


def _covers(tokens: frozenset[str], rule: TimestampRule) -> bool:
    if rule.place == "json":
        return "body" in tokens or f"json:{rule.name}" in tokens or "ts" in tokens
    listed = any(token.startswith("canonical_headers:") for token in tokens)  # checked per request: the sender lists what it signed
    return "ts" in tokens or (rule.place == "header" and (listed or f"header:{rule.name}" in tokens))


def _check_token(rule: Any, path: Path, faults: Faults, places: Sequence[str]) -> None:
    if not isinstance(rule, Mapping):
        faults.add(path, 'is missing; say where the token is, as in { in = "header", name = "X-Token" }')
        return
    known = ("in", "name", "name_param", "path", "scheme", "optional_scheme", "list", "field")
    for name in rule:
        if name not in known:
            faults.unknown((*path, name), known)
    place = rule.get("in")
    if not _in(place, places):
        faults.word((*path, "in"), place, places)
        return
    if "name_param" in rule and (place != "header" or not isinstance(rule["name_param"], str) or not rule["name_param"]):
        faults.add((*path, "name_param"), "must be the name of a constant of the account, for a token in a header")
    needs = {"header": ("name",), "query": ("name",), "json_each": ("list", "field")}.get(str(place), ())
    if place == "json" and not isinstance(rule.get("path", rule.get("name")), str):
        faults.add((*path, "path"), "is missing; give the dotted path of the token in the body")
    for need in needs:
        if not isinstance(rule.get(need), str) or not rule[need]:
            faults.add((*path, need), f"is missing; a token in {place} needs it")
