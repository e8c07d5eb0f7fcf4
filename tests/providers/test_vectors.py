"""The vectors of the catalogue: every case of every provider whose scheme this version supports."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from providers.contract import load
from providers.contract_faults import ContractError
from providers.vectors import run, schemes_of

FOLDER = Path(__file__).parents[2].parent / "shared" / "evidence" / "vectors"
FOLDERS = [FOLDER, Path(__file__).parents[3].parent / "shared" / "evidence" / "vectors"]
FILES = next((sorted(folder.glob("*.json")) for folder in FOLDERS if folder.is_dir()), [])
CONTRACTS = Path(__file__).parents[2] / "providers" / "contracts"
LATER = ("jwt", "httpsig", "jwks", "cert_url")


@pytest.mark.skipif(not FILES, reason="../shared/evidence/vectors is not beside this repository")
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_provider_s_vectors_get_their_verdicts(file: Path, record_property: Callable[[str, object], None]) -> None:
    """Each case is accepted or refused as expected; a scheme of another primitive is refused by name when it is read."""
    vector: dict[str, Any] = json.loads(file.read_text())
    if any(f'"{word}"' in json.dumps(vector["schemes"]) for word in LATER):
        with pytest.raises(ContractError, match="not supported by this version"):
            schemes_of(vector)
        return
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


def test_a_case_that_cannot_be_read_fails_and_stops_nothing() -> None:
    """A broken vector file is reported case by case."""
    schemes = [{"primitive": "hmac", "message": "{body}", "sig": {"in": "header", "name": "X"}}]
    results = run({"schemes": schemes, "cases": [{"name": "a"}, {"name": "b", "url": "https://h/p", "body_base64": "%", "now": 1}]})
    assert [(name, passed) for name, passed, _ in results] == [("a", False), ("b", False)]
