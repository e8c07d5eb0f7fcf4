"""`[signature]`, the part about keys and tokens: keysource, alg, algs, claims, detached, covers. Checked, and made the engine's options.

A scheme never mixes shared secrets with public keys: that is how a public key becomes a secret that everybody knows (B015).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from providers.contract_faults import Faults, Path
from providers.verification import claims as token_claims
from providers.verification import detached as detached_signatures
from providers.verification import httpsig
from providers.verification.algorithms import ALGORITHMS, HTTP_PUBLIC, HTTP_SECRET, JWS_PUBLIC, JWS_SECRET
from providers.verification.keys import FORMATS, TRANSFORMS
from providers.verification.sources import FETCHED, KINDS

KEYSOURCE: Final = (
    "kind", "format", "url", "kid_header", "jku_allow", "host_re", "path_suffix", "cn_suffix", "header", "json", "post",
)  # fmt: skip
"""Keys of `keysource`."""

JWT_PLACES: Final = ("header", "bearer", "query")
"""Where the token of a `jwt` scheme may stand."""

_OPTIONS: Final = ("keysource", "claims", "detached", "covers", "algs")
_BELONGS: Final = {"claims": ("jwt",), "algs": ("jwt",), "detached": ("jwt",), "covers": ("httpsig",)}
_NOBODY: Final = "host-of-nobody.invalid"
_SETS: Final = ("ed25519", "ecdsa-sha256", "rsa-sha256")  # what a key set can name; SHA-1 it cannot


def read_keys(value: Mapping[str, Any], path: Path, faults: Faults, *, given: bool) -> dict[str, Any]:
    """Return the options about keys and tokens. `given`: keys come with the cases of a vector file, so a set needs no address."""
    primitive = str(value["primitive"])
    for name, owners in _BELONGS.items():
        if name in value and primitive not in owners:
            faults.add((*path, name), f"belongs to the primitive {' or '.join(owners)} alone")
    for name in ("keysource", "claims", "detached", "covers"):
        if name in value and not isinstance(value[name], Mapping):
            faults.add((*path, name), "must be a table")
            return {}
    source = value.get("keysource")
    if source is not None:
        _check_source(source, primitive, (*path, "keysource"), faults, given=given)
    match primitive:
        case "asym":
            _check_asym(value, path, faults)
        case "jwt":
            _check_jwt(value, path, faults)
        case "httpsig":
            _check_httpsig(value, path, faults)
        case _:
            pass
    options = {name: value[name] for name in _OPTIONS if name in value}
    if primitive == "asym" and isinstance(value.get("alg"), Mapping):
        place = "header" if "header" in value["alg"] else "json"
        options["alg_by"] = {"in": place, "name": str(value["alg"].get(place, "")), "map": value["alg"].get("map")}
    return options


def _check_source(source: Mapping[str, Any], primitive: str, path: Path, faults: Faults, *, given: bool) -> None:
    for name in source:
        if name not in KEYSOURCE:
            faults.unknown((*path, name), KEYSOURCE)
    kind = source.get("kind", "secret" if primitive == "jwt" else "static")
    if not _in(kind, KINDS):
        faults.word((*path, "kind"), kind, KINDS)
        return
    if kind in FETCHED and primitive not in {"asym", "jwt", "httpsig"}:
        faults.add((*path, "kind"), f"{kind} has public keys; the primitive {primitive} needs a secret")
    for name in KEYSOURCE:
        if name not in {"jku_allow", "post"} and name in source and (not isinstance(source[name], str) or not source[name]):
            faults.add((*path, name), "must be a text (in quotes)")
            return
    if "post" in source:
        _check_post(source, primitive, (*path, "post"), faults)
    if kind == "jwks":
        _check_set(source, path, faults, given=given)
    if kind == "cert_url":
        _check_certificate(source, primitive, path, faults)


def _check_set(source: Mapping[str, Any], path: Path, faults: Faults, *, given: bool) -> None:
    allowed = source.get("jku_allow", [])
    if not isinstance(allowed, list | tuple) or not all(isinstance(url, str) for url in allowed):
        faults.add((*path, "jku_allow"), "must be a list of addresses")
        return
    for url in [*allowed, *([source["url"]] if "url" in source else [])]:
        if not re.fullmatch(r"https://[a-z0-9.-]+(?::[0-9]{1,5})?/[^\s#]*", url):
            faults.add(path, f"{url[:80]!r} is no https address with a path")
    if not given and not allowed and "url" not in source:
        faults.add((*path, "url"), "is missing; name the https address of the key set (or jku_allow)")


def _check_post(source: Mapping[str, Any], primitive: str, path: Path, faults: Faults) -> None:
    post = source["post"]
    if source.get("kind") != "jwks" or primitive != "jwt" or "jku_allow" in source or "url" not in source:
        faults.add(path, "is for a jwt scheme whose keys are asked for one by one at the contract's url (kind jwks, no jku_allow)")
    if not isinstance(post, Mapping) or not post or not all(isinstance(text, str) for text in post.values()):
        faults.add(path, 'must be a table of texts, as in { key_id = "{kid}", secret = "{param:secret}" }')
    elif not any("{kid}" in text for text in post.values()):
        faults.add(path, "asks for no key: one of its texts must hold {kid}")


def _check_certificate(source: Mapping[str, Any], primitive: str, path: Path, faults: Faults) -> None:
    if primitive == "httpsig":
        faults.add((*path, "kind"), "cert_url is for asym and jwt")
    if primitive == "asym" and ("header" in source) == ("json" in source):
        faults.add(path, "needs either header or json: where the delivery names its certificate")
    try:
        pattern = re.compile(str(source["host_re"]))
    except KeyError:
        faults.add((*path, "host_re"), "is missing; it is the whole pattern of the hosts that may be asked")
    except re.error as error:
        faults.add((*path, "host_re"), f"is no regular expression: {error}")
    else:
        if pattern.fullmatch(_NOBODY):
            faults.add((*path, "host_re"), "matches hosts of anybody: name the provider's")


def _check_asym(value: Mapping[str, Any], path: Path, faults: Faults) -> None:
    source = value.get("keysource") or {}
    kind, algorithm = source.get("kind", "static"), value.get("alg")
    if isinstance(algorithm, Mapping):
        table = algorithm.get("map")
        places = [name for name in ("header", "json") if isinstance(algorithm.get(name), str) and algorithm[name]]
        if len(places) != 1 or not isinstance(table, Mapping) or not table or not all(_in(item, ALGORITHMS) for item in table.values()):
            faults.add((*path, "alg"), "needs header or json, and map = { their word = one of " + ", ".join(ALGORITHMS) + " }")
        if kind != "cert_url":
            faults.add((*path, "alg"), "is chosen by the delivery only where its certificate is (keysource cert_url)")
    elif not _in(algorithm, ALGORITHMS if kind != "jwks" else _SETS):
        faults.word((*path, "alg"), algorithm, ALGORITHMS if kind != "jwks" else _SETS)
    if kind not in FETCHED:
        _check_format(source, path, faults)


def _check_jwt(value: Mapping[str, Any], path: Path, faults: Faults) -> None:
    source, algorithms = value.get("keysource") or {}, value.get("algs")
    kind = source.get("kind", "secret")
    allowed = JWS_SECRET if kind == "secret" else JWS_PUBLIC
    if not isinstance(algorithms, list | tuple) or not algorithms:
        faults.add((*path, "algs"), f"is missing; list the algorithms that count, of {', '.join(allowed)}")
    else:
        for algorithm in algorithms:
            if not _in(algorithm, allowed):
                faults.word((*path, "algs"), algorithm, allowed)
    if kind == "static":
        _check_format(source, path, faults)
    if not _in(value.get("key", "utf8"), TRANSFORMS):
        faults.word((*path, "key"), value.get("key"), TRANSFORMS)
    _check_tables(value, path, faults)
    if "timestamp" in value and not _covered_time(value):
        faults.add((*path, "timestamp"), "must be a header among detached.required_headers; elsewhere claims say the time")


def _check_tables(value: Mapping[str, Any], path: Path, faults: Faults) -> None:
    if "detached" in value and "claims" in value:
        faults.add((*path, "claims"), "cannot be: a detached token has no claims")
    claims = value.get("claims", {})
    _unknown(claims, token_claims.WORDS, (*path, "claims"), faults)
    if isinstance(claims.get("body_hash"), Mapping):
        _unknown(claims["body_hash"], token_claims.BODY_HASH_WORDS, (*path, "claims", "body_hash"), faults)
    _compiled(lambda: token_claims.compile_claims(claims), (*path, "claims"), faults)
    if "detached" in value:
        _unknown(value["detached"], detached_signatures.WORDS, (*path, "detached"), faults)
        _compiled(lambda: detached_signatures.compile_detached(value["detached"]), (*path, "detached"), faults)


def _covered_time(value: Mapping[str, Any]) -> bool:
    rule, detached = value["timestamp"], value.get("detached")
    if not isinstance(rule, Mapping) or not isinstance(detached, Mapping) or rule.get("in") != "header":
        return False
    required = detached.get("required_headers", ())
    return isinstance(required, list | tuple) and str(rule.get("name", "")).lower() in [str(name).lower() for name in required]


def _check_httpsig(value: Mapping[str, Any], path: Path, faults: Faults) -> None:
    source, covers = value.get("keysource"), value.get("covers", {})
    if source is not None and source.get("kind", "static") != "jwks":
        secret = source.get("kind", "static") == "secret"
        allowed: Sequence[str] = HTTP_SECRET if secret else HTTP_PUBLIC
        if not _in(value.get("alg"), allowed):
            faults.word((*path, "alg"), value.get("alg"), allowed)
        if not secret:
            _check_format(source, path, faults)
    elif "alg" in value and (source is None or not _in(value["alg"], HTTP_PUBLIC)):
        faults.add((*path, "alg"), "is the key's: leave it out, or name one of " + ", ".join(HTTP_PUBLIC) + " for a key set")
    if not _in(value.get("key", "utf8"), TRANSFORMS):
        faults.word((*path, "key"), value.get("key"), TRANSFORMS)
    _unknown(covers, httpsig.WORDS, (*path, "covers"), faults)
    names = covers.get("components", [])
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) and name for name in names):
        faults.add((*path, "covers", "components"), "must be a list of components")
    rule = value.get("timestamp")
    if isinstance(rule, Mapping) and (rule.get("in") != "sig" or rule.get("unit", "s") != "s"):
        faults.add((*path, "timestamp"), 'must be { in = "sig" } in seconds: the time is the parameter created')


def _check_format(source: Mapping[str, Any], path: Path, faults: Faults) -> None:
    if not _in(source.get("format"), FORMATS):
        faults.word((*path, "keysource", "format"), source.get("format"), FORMATS)


def _unknown(table: Mapping[str, Any], known: Sequence[str], path: Path, faults: Faults) -> None:
    for name in table:
        if name not in known:
            faults.unknown((*path, name), known)


def _compiled(make: Callable[[], object], path: Path, faults: Faults) -> None:
    try:
        make()
    except ValueError as error:
        faults.add(path, str(error))


def _in(value: Any, words: Sequence[str] | Mapping[str, object]) -> bool:
    # Anything may stand behind a key of a file, also what cannot be hashed.
    return isinstance(value, str) and value in words
