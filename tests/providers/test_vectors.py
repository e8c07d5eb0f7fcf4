"""The vectors of the catalogue: every case of every provider whose scheme this version supports."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from providers.contract import load
from providers.contract_faults import ContractError
from providers.vectors import constants_of, judge, keys_of, run, schemes_of
from schemas.delivery import Reason, Refused
from tests.providers.signing import ED, pem

FOLDER = Path(__file__).parents[2].parent / "shared" / "evidence" / "vectors"
FOLDERS = [FOLDER, Path(__file__).parents[3].parent / "shared" / "evidence" / "vectors"]
FILES = next((sorted(folder.glob("*.json")) for folder in FOLDERS if folder.is_dir()), [])
CONTRACTS = Path(__file__).parents[2] / "providers" / "contracts"


@pytest.mark.skipif(not FILES, reason="../shared/evidence/vectors is not beside this repository")
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_provider_s_vectors_get_their_verdicts(file: Path, record_property: Callable[[str, object], None]) -> None:
    """Each case is accepted or refused as expected, with the schemes that its file brings along (B1, B2)."""
    vector: dict[str, Any] = json.loads(file.read_text())
    results = run(vector)
    failed = [f"{name}: {why}" for name, passed, why in results if not passed]
    record_property("passed", len(results) - len(failed))
    assert len(results) == len(vector["cases"]) > 0
    assert not failed


@pytest.mark.skipif(not FILES, reason="../shared/evidence/vectors is not beside this repository")
@pytest.mark.parametrize("file", [file for file in FILES if (CONTRACTS / f"{file.stem}.toml").exists()], ids=lambda file: file.stem)
def test_a_shipped_contract_passes_its_provider_s_vectors(file: Path) -> None:
    """The contract that we ship judges every case as expected, not only the parameters in the vector file."""
    contract = load((CONTRACTS / f"{file.stem}.toml").read_bytes())
    assert not [f"{name}: {why}" for name, passed, why in run(json.loads(file.read_text()), contract.signatures) if not passed]


@pytest.mark.skipif(not FILES, reason="../shared/evidence/vectors is not beside this repository")
def test_no_case_that_is_expected_invalid_passes_without_its_own_secret() -> None:
    """A runner that accepted everything would be found: with the verdicts turned round, every case fails."""
    vector = json.loads(next(file for file in FILES if file.stem == "stripe").read_text())
    for case in vector["cases"]:
        wanted = case.pop("strict_expect", case["expect"])
        case["expect"] = "invalid" if wanted == "valid" else "valid"
    assert not any(passed for _, passed, _ in run(vector))


@pytest.mark.skipif(not FILES, reason="../shared/evidence/vectors is not beside this repository")
@pytest.mark.parametrize("name", ["aws-sns", "fal", "google-pubsub", "paypal", "plaid", "rfc9421", "truelayer"])
def test_without_its_published_keys_a_genuine_delivery_names_what_to_fetch(name: str) -> None:
    """A key that is not at hand is no reason to accept, nor to call the delivery forged: the refusal says what is wanted."""
    vector = json.loads(next(file for file in FILES if file.stem == name).read_text())
    schemes = schemes_of(vector)
    genuine = next(case for case in vector["cases"] if case["expect"] == "valid")
    bare = {key: value for key, value in genuine.items() if key not in {"jwks", "certs", "keys"}}
    verdict = judge(bare, schemes)
    assert isinstance(verdict, Refused)
    assert verdict.reason is Reason.KEY_UNAVAILABLE
    assert verdict.wanted is not None
    certificate = verdict.wanted.url
    assert (certificate in genuine["certs"]) if "certs" in genuine else not verdict.genuine


def test_a_file_s_own_account_constants_serve_contracts_that_name_them() -> None:
    """Single texts of the file's claims become parameters; a list of several is no constant."""
    vector = {"schemes": [{"claims": {"iss": ["a", "b"], "aud": ["x"], "equals": {"email": "e@x", "verified": True}}}, "odd", {}]}
    assert constants_of(vector) == {"aud": "x", "email": "e@x"}
    assert constants_of({"schemes": 3}) == {}


def test_keys_by_id_that_are_none_are_as_if_they_were_not_there() -> None:
    """A key of another kind than its algorithm is never used (B015)."""
    case = {"keys": {"a": {"alg": "ed25519", "key": "no pem"}, "b": {"alg": "hmac-sha256", "key": "c2VjcmV0"}}}
    case["keys"]["c"] = {"alg": "rsa-pss-sha512", "key": pem(ED.public_key()).decode()}
    store = keys_of(case, ())
    assert store.named("a") is None
    assert store.named("c") is None
    assert store.named("b") == ("hmac-sha256", b"secret")


def test_a_case_that_cannot_be_read_fails_and_stops_nothing() -> None:
    """A broken vector file is reported case by case."""
    schemes = [{"primitive": "hmac", "message": "{body}", "sig": {"in": "header", "name": "X"}}]
    results = run({"schemes": schemes, "cases": [{"name": "a"}, {"name": "b", "url": "https://h/p", "body_base64": "%", "now": 1}]})
    assert [(name, passed) for name, passed, _ in results] == [("a", False), ("b", False)]


HMAC = {"primitive": "hmac", "alg": "sha256", "key": "utf8", "message": "{body}", "encoding": "hex"}
SIGNED = {
    "name": "signed",
    "method": "POST",
    "url": "https://hooks.example.test/any",
    "headers": {"X-Signature": "88cd2108b5347d973cf39cdf9053d7dd42704876d8c9a9bd8e2d168259d3ddf7"},  # HMAC-SHA256 of "test" by "test"
    "body_base64": "dGVzdA==",
    "now": 1767225600,
    "secret": "test",
    "expect": "valid",
}
READABLE: dict[str, dict[str, Any]] = {
    "as it is": {},
    "secret beside secrets": {"secrets": ["another"]},
    "the second of secrets": {"secret": None, "secrets": ["another", "test"]},
    "an empty strict_expect": {"strict_expect": None},
    "strict_expect counts": {"secret": "another", "strict_expect": "invalid", "disputed": True},
    "a header as a list of one": {"headers": {"x-signature": [SIGNED["headers"]["X-Signature"]]}},  # type: ignore[index]
    "no params": {"params": None},
    "a fraction of a second": {"now": 1767225600.25},
}
UNREADABLE: dict[str, tuple[object, str]] = {
    "no object": (1, "no object"),
    "nothing": ({}, "neither valid nor invalid"),
    "a misspelt expectation": ({**SIGNED, "expect": "Valid"}, "neither valid nor invalid"),
    "no time": ({key: value for key, value in SIGNED.items() if key != "now"}, "it has no 'now'"),
    "a text as time": ({**SIGNED, "now": "1767225600"}, "now is unix seconds"),
    "an endless time": ({**SIGNED, "now": float("inf")}, "cannot be read"),
    "a list of headers": ({**SIGNED, "headers": [["X-Signature", "00"]]}, "cannot be read"),
}


@pytest.mark.parametrize("change", READABLE.values(), ids=READABLE)
def test_every_key_of_the_format_is_understood(change: dict[str, Any]) -> None:
    """All key material of a case counts, and an absent value may also be null."""
    vector = {"schemes": [{**HMAC, "sig": {"in": "header", "name": "X-Signature"}}], "cases": [{**SIGNED, **change}]}
    assert [passed for _, passed, _ in run(vector)] == [True]


@pytest.mark.parametrize(("case", "why"), UNREADABLE.values(), ids=UNREADABLE)
def test_a_case_that_is_none_fails_and_says_why(case: object, why: str) -> None:
    """What cannot be judged is a failure with its reason, never a pass and never an internal error (B10)."""
    (result,) = run({"schemes": [{**HMAC, "sig": {"in": "header", "name": "X-Signature"}}], "cases": [case]})
    assert not result[1]
    assert why in result[2]


def test_a_file_of_an_unknown_provider_without_schemes_is_named() -> None:
    """It is said what is missing, not that every case were refused."""
    with pytest.raises(ContractError, match="no shipped contract has the name"):
        run({"provider": "nobody", "schemes": [], "cases": [SIGNED]})
