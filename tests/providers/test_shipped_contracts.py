"""Every shipped contract passes its own samples: a contract is data, and its proof lies beside it."""

from pathlib import Path
from typing import Any

import pytest

from providers.contract import load
from providers.mapping import describe, events
from providers.vectors import request_of, secrets_of
from providers.verification import check_secret, prepare
from schemas.contract import Contract
from schemas.delivery import Refused, Verified
from schemas.operation import SECOND

FILES = sorted((Path(__file__).parents[2] / "providers" / "contracts").glob("*.toml"))
CONTRACTS = [load(file.read_bytes(), name=file.stem) for file in FILES]
SAMPLES = [
    pytest.param(contract, sample, id=f"{contract.name}-{sample['name']}")
    for contract in CONTRACTS
    for sample in contract.samples
    if "expect" in sample
]


def test_there_are_contracts_and_each_bears_the_name_of_its_file() -> None:
    """A contract is found by its file name."""
    assert len(CONTRACTS) >= 7
    assert [contract.name for contract in CONTRACTS] == [file.stem for file in FILES]


@pytest.mark.parametrize("contract", [c for c in CONTRACTS if c.signatures], ids=lambda contract: contract.name)
def test_a_signed_contract_has_samples_of_both_kinds(contract: Contract) -> None:
    """A contract that verifies deliveries shows one that is accepted and one that is refused."""
    assert {sample["expect"] for sample in contract.samples if "expect" in sample} == {"valid", "invalid"}


@pytest.mark.parametrize(("contract", "sample"), SAMPLES)
def test_a_sample_is_judged_and_mapped_as_it_says(contract: Contract, sample: dict[str, Any]) -> None:
    """The delivery gets its verdict, its dedup key and its fields (B2)."""
    secrets = secrets_of(sample)
    assert any(check_secret(scheme, secrets[0].value) is None for scheme in contract.signatures)
    request = request_of(sample)
    verdict = prepare(contract.signatures, secrets).verify(request, sample["now"] * SECOND)
    match verdict:
        case Verified():
            assert sample["expect"] == "valid"
            (event,) = events(contract, request, verdict.signed)
            assert event.readable
            assert event.dedup_key.partition(":")[0] == sample["dedup"]
            assert describe(event) == sample["event"]
        case Refused():
            assert sample["expect"] == "invalid", verdict
