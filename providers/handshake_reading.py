"""`[handshake]` and `[[handshake]]`: tables in, checked `Handshake` values out."""

import re
from collections.abc import Mapping
from typing import Any, Final

from providers.contract_faults import Faults, Path
from providers.contract_reading import read_section
from providers.places import compile_place
from providers.verification.keys import TRANSFORMS
from providers.verification.signatures import DIGESTS
from schemas.contract import Handshake

METHODS: Final = ("GET", "POST", "HEAD", "OPTIONS", "PUT")
FIELDS: Final = re.compile(r"\{(challenge|hmac|param:[A-Za-z0-9_.-]+)\}")
"""Fields of an answer's templates."""
FORBIDDEN: Final = frozenset("<>\"'&{}`\\%") | {chr(code) for code in range(0x20)} | {"\x7f"}
"""Never in a challenge: markup would be reflected, and braces would let a stranger have a document signed by challenge_hmac."""

_PLACES: Final = {"query_echo": "query:", "json_echo": "body:", "header_echo": "header:", "header_json": "header:"}
_CHALLENGED: Final = (*_PLACES, "challenge_hmac", "fetch_url", "secret_capture")
KINDS: Final = (*_CHALLENGED, "typed_ping", "options", "probe", "head_ok", "fixed_reply")
"""Every kind of handshake."""
_LONGEST: Final = 4_096
_OK, _NOT_OK = 200, 300


def read_handshakes(value: Any, faults: Faults) -> tuple[Handshake, ...]:
    """Return the handshakes of a contract; faults are collected, faulty ones left out."""
    listed = isinstance(value, list)
    found: list[Handshake] = []
    for index, table in enumerate(value if listed else [value]):
        path: Path = ("handshake", index) if listed else ("handshake",)
        if not isinstance(table, Mapping) or "kind" not in table:
            faults.add((*path, "kind"), "is missing; say what kind of handshake it is")
            continue
        before = len(faults.all())
        handshake = read_section(Handshake, table, path, faults) if _is_known(table["kind"], path, faults) else None
        if handshake is not None and len(faults.all()) == before:
            _check(handshake, path, faults)
            found.append(handshake)
    return tuple(found)


def _is_known(kind: Any, path: Path, faults: Faults) -> bool:
    if isinstance(kind, str) and kind in KINDS:
        return True
    faults.word((*path, "kind"), kind, KINDS)
    return False


def _check(rule: Handshake, path: Path, faults: Faults) -> None:
    if rule.method and rule.method not in METHODS:
        faults.word((*path, "method"), rule.method, METHODS)
    for name in (rule.challenge, rule.verify, *rule.match):
        try:
            _ = name and compile_place(name)
        except ValueError as error:
            faults.add(path, str(error))
    if rule.kind in _CHALLENGED and not (rule.challenge and rule.challenge.startswith(_PLACES.get(rule.kind, ""))):
        faults.add(
            (*path, "challenge"), f"is missing; {rule.kind} needs the place of its value, as in {_PLACES.get(rule.kind, 'body:')}NAME"
        )
    if rule.kind == "header_echo" and not rule.header:
        faults.add((*path, "header"), "is missing; name the header of the answer")
    if rule.header:
        _place(f"header:{rule.header}", (*path, "header"), faults)
    if rule.kind in {"typed_ping", "fixed_reply"} and not rule.match:
        faults.add((*path, "match"), "is missing; say by which values the request is known")
    if rule.kind == "typed_ping" and rule.body is None:
        faults.add((*path, "body"), "is missing; write the answer")
    if rule.kind == "header_json" and not rule.json:
        faults.add((*path, "json"), 'is missing; write the answer, as in { verification = "{challenge}" }')
    if rule.kind == "options" and not rule.allow:
        faults.add((*path, "allow"), "is missing; name the origins that may ask")
    if not _OK <= rule.status < _NOT_OK:
        faults.add((*path, "status"), "must be 200 to 299: a refusal has its own")
    _check_order(rule, path, faults)
    _check_challenge(rule, path, faults)


def _check_order(rule: Handshake, path: Path, faults: Faults) -> None:
    if rule.when == "before" and rule.kind in {"fetch_url", "probe"}:
        why = "an unsigned message must not make us fetch anything" if rule.kind == "fetch_url" else "it answers a wrong signature"
        faults.add((*path, "when"), f'must be "after": {why}')
    if rule.when == "after" and rule.kind == "secret_capture":
        faults.add((*path, "when"), 'must be "before": there is no secret yet that could have signed it')


def _check_challenge(rule: Handshake, path: Path, faults: Faults) -> None:
    if not 1 <= rule.min_length <= rule.max_length <= _LONGEST:
        faults.add((*path, "max_length"), f"must be min_length to {_LONGEST}")
    if bad := FORBIDDEN & set(rule.also):
        faults.add((*path, "also"), f"must not have {min(bad)!r}: a challenge never holds markup, quotes or braces")
    for text in (rule.text, *rule.json.values()):
        if "{" in FIELDS.sub("", text) or "}" in FIELDS.sub("", text):
            faults.add(path, "has an unknown field: known are {challenge}, {hmac} and {param:NAME}")
    for name, value, words in (("alg", rule.alg, DIGESTS), ("key", rule.key, TRANSFORMS), ("encoding", rule.encoding, ("hex", "base64"))):
        if value not in words:
            faults.word((*path, name), value, words)
    if rule.kind == "fetch_url":
        try:
            if not rule.host_re or re.compile(rule.host_re).fullmatch(""):
                faults.add((*path, "host_re"), "is missing; give the pattern that the whole host must match")
        except re.error as error:
            faults.add((*path, "host_re"), f"is no regular expression: {error}")


def _place(text: str, path: Path, faults: Faults) -> None:
    try:
        compile_place(text)
    except ValueError as error:
        faults.add(path, str(error))
