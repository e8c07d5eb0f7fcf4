"""Every shipped contract passes its own samples: a contract is data, and its proof lies beside it."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from providers.contract import load
from providers.coverage import covers_event, covers_place
from providers.mapping import describe, events
from providers.vectors import judge, request_of, secrets_of
from providers.verification import check_secret
from schemas.contract import Contract
from schemas.delivery import Refused, Verified

FOLDER = Path(__file__).parents[2] / "providers" / "contracts"
FILES = sorted(FOLDER.glob("*.toml"))
NEAR = [Path(__file__).parents[level].parent / "shared" / "evidence" / "catalogue.md" for level in (2, 3)]
CATALOGUE = [file for file in NEAR if file.is_file()]
CONTRACTS = [load(file.read_bytes(), name=file.stem) for file in FILES]
SAMPLES = [
    pytest.param(contract, sample, id=f"{contract.name}-{sample['name']}")
    for contract in CONTRACTS
    for sample in contract.samples
    if "expect" in sample
]


def test_every_contract_bears_the_name_of_its_file() -> None:
    """A contract is found by its file name."""
    assert [contract.name for contract in CONTRACTS] == [file.stem for file in FILES]


@pytest.mark.skipif(not CATALOGUE, reason="../shared/evidence/catalogue.md is not beside this repository")
def test_every_slug_of_the_catalogue_has_its_contract() -> None:
    """Every scheme that the grammar covers is shipped, under the catalogue's name (B2)."""
    section = CATALOGUE[0].read_text().partition("schemes that the grammar covers")[2].partition("Where a slug")[0]
    slugs = re.findall(r"`([a-z0-9-]+)`", section)
    assert len(slugs) == len(set(slugs)) >= 105
    assert not set(slugs) - {file.stem for file in FILES}


@pytest.mark.parametrize("contract", [c for c in CONTRACTS if c.signatures], ids=lambda contract: contract.name)
def test_a_signed_contract_has_samples_of_both_kinds(contract: Contract) -> None:
    """A contract that verifies deliveries shows one that is accepted and one that is refused."""
    assert {sample["expect"] for sample in contract.samples if "expect" in sample} == {"valid", "invalid"}


@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda contract: contract.name)
def test_what_is_unconfirmed_is_a_key_of_the_contract(contract: Contract) -> None:
    """A value that nobody has read is named by its key, so that people can find and check it."""
    document = tomllib.loads((FOLDER / f"{contract.name}.toml").read_text())
    for key in contract.unconfirmed:
        place: Any = document
        for step in key.split("."):
            assert step in place, key
            place = place[step]
            place = place[0] if isinstance(place, list) and step in {"signature", "handshake"} else place


@pytest.mark.parametrize("contract", [c for c in CONTRACTS if c.signatures], ids=lambda contract: contract.name)
def test_a_contract_claims_no_more_than_its_signature_covers(contract: Contract) -> None:
    """Where the body is free the contract says so, and no id outside the signed bytes is a key (catalogue, section 4)."""
    assert contract.event.body_signed == all(covers_event(scheme, contract.event) for scheme in contract.signatures)
    if contract.event.body_signed and contract.event.id:
        assert contract.event.id_signed == all(covers_place(scheme, contract.event.id) for scheme in contract.signatures)


@pytest.mark.parametrize(("contract", "sample"), SAMPLES)
def test_a_sample_is_judged_and_mapped_as_it_says(contract: Contract, sample: dict[str, Any]) -> None:
    """The delivery gets its verdict, its dedup key and its fields (B2)."""
    secrets = secrets_of(sample)
    assert not secrets or any(check_secret(scheme, secrets[0].value) is None for scheme in contract.signatures)
    request = request_of(sample)
    verdict = judge(sample, contract.signatures)
    match verdict:
        case Verified():
            assert sample["expect"] == "valid"
            found = events(contract, request, verdict.signed)
            assert all(event.readable for event in found)
            assert {event.dedup_key.partition(":")[0] for event in found} == {sample["dedup"]}
            assert len({event.dedup_key for event in found}) == len(found)
            wanted = sample["event"] if isinstance(sample["event"], list) else [sample["event"]]
            assert [describe(event) for event in found] == wanted
        case Refused():
            assert sample["expect"] == "invalid", verdict
