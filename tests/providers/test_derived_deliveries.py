"""Every shipped contract's genuine deliveries, changed as mistaken and hostile senders change them (as the vector files derive theirs).

Where a provider has no published test deliveries, these stand in: what HTTP may change is accepted, and nothing else is.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from providers.contract import load
from providers.vectors import judge
from providers.verification.messages import compile_message
from schemas.contract import Contract, SignatureScheme
from schemas.delivery import Refused, Verified

FOLDER = Path(__file__).parents[2] / "providers" / "contracts"
BODY_TOKENS = {"body", "sha256_body_hex", "sha256_body_raw", "crc32_body", "json_string_body"}
CASES = [
    pytest.param(contract, sample, id=f"{contract.name}-{sample['name']}")
    for contract in (load(path.read_bytes()) for path in sorted(FOLDER.glob("*.toml")))
    for sample in contract.samples
    if sample.get("expect") == "valid"
]


def accepted(contract: Contract, case: dict[str, Any]) -> bool:
    verdict = judge(case, contract.signatures)
    assert isinstance(verdict, Verified | Refused)
    return isinstance(verdict, Verified)


def signing(contract: Contract, sample: dict[str, Any]) -> SignatureScheme:
    """Return the scheme that accepts the sample."""
    verdict = judge(sample, contract.signatures)
    assert isinstance(verdict, Verified)
    return next(scheme for scheme in contract.signatures if scheme.id == verdict.scheme_id)


def signature_headers(scheme: SignatureScheme, sample: dict[str, Any]) -> list[str]:
    """Return the sample's own spellings of the headers that hold what is checked."""
    names: list[str] = []
    if scheme.location is not None and scheme.location.place in {"header", "headers_numbered"}:
        names = [name.replace("{n}", "1") for name in scheme.location.options.get("names") or (scheme.location.name,)]
    token = scheme.options.get("token") or {}
    if token.get("in") in {"header", "bearer", "basic"}:
        names = [(sample.get("params") or {}).get(str(token.get("name_param")), "") or str(token.get("name") or "Authorization")]
    if scheme.primitive == "httpsig":
        names = ["Signature"]
    wanted = {name.lower() for name in names}
    return [name for name in sample["headers"] if name.lower() in wanted]


def with_header(sample: dict[str, Any], name: str, value: Any) -> dict[str, Any]:
    return {**sample, "headers": {**sample["headers"], name: value}}


def same_deliveries(sample: dict[str, Any], names: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    for spell in (str.lower, str.upper):
        yield spell.__name__, {**sample, "headers": {spell(name): value for name, value in sample["headers"].items()}}
    for name in names:
        yield "white space", with_header(sample, name, f" \t{sample['headers'][name]}\t ")


def other_signatures(sample: dict[str, Any], names: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "missing", {**sample, "headers": {name: value for name, value in sample["headers"].items() if name not in names}}
    for name in names:
        value = sample["headers"][name]
        for what, text in (
            ("empty", ""),
            ("truncated", value[:-5]),
            ("longer", value + "00"),
            ("doubled", value + value),
            ("NUL behind", value + "\x00"),
            ("line behind", value + "\u0085x"),
            ("twice", [value, value]),
            ("twice, one wrong", ["x", value]),
        ):
            if len(names) == 1 or what in {"twice", "twice, one wrong"}:
                yield what, with_header(sample, name, text)


def other_bodies(sample: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    body = str(sample["body"])
    for what, changed in (("line break", body + "\n"), ("space", " " + body), ("NUL", body + "\x00"), ("gone", ""), ("more", body + body)):
        if changed != body:
            yield what, {**sample, "body": changed}


@pytest.mark.parametrize(("contract", "sample"), CASES)
def test_what_http_may_change_is_accepted_and_nothing_else(contract: Contract, sample: dict[str, Any]) -> None:
    """Case of names and white space around values count for nothing; another signature, secret or body is refused (B1, B004, B018)."""
    scheme = signing(contract, sample)
    if scheme.primitive == "refetch":
        return
    names = signature_headers(scheme, sample)
    for what, changed in same_deliveries(sample, names):
        assert accepted(contract, changed), what
    # Of a list of signatures one that is right is enough: what stands beside it, or is cut off it, may be anything.
    several = scheme.location is not None and scheme.location.parser in {"kv", "list", "pairs"}
    for what, changed in other_signatures(sample, names) if names else ():
        beside = (several and what in {"doubled", "truncated", "longer"}) or (scheme.primitive == "httpsig" and what == "twice, one wrong")
        assert beside or not accepted(contract, changed), what
    if "secret" in sample:
        assert not accepted(contract, {**sample, "secret": "x" + str(sample["secret"])[1:]})
    tokens = [compile_message(message).tokens for message in scheme.messages]
    if "body" in sample and tokens and all(BODY_TOKENS & found for found in tokens):
        for what, changed in other_bodies(sample):
            assert not accepted(contract, changed), what


@pytest.mark.parametrize(("contract", "sample"), CASES)
def test_a_signature_has_one_spelling(contract: Contract, sample: dict[str, Any]) -> None:
    """Hex in upper case, base64 without padding or with the other alphabet: refused, unless the contract says so."""
    scheme = signing(contract, sample)
    names = signature_headers(scheme, sample)
    if scheme.location is None or len(names) != 1 or scheme.location.parser not in {"raw", "prefix"}:
        return
    (name,) = names
    prefix = str(scheme.location.options.get("prefix", ""))
    value = str(sample["headers"][name]).removeprefix(prefix)
    spellings = {"hex": value.upper(), "base64": value.rstrip("=") if value.endswith("=") else value.replace("+", "-").replace("/", "_")}
    other = spellings.get(scheme.encoding, value)
    if other != value:
        assert not accepted(contract, with_header(sample, name, prefix + other))
