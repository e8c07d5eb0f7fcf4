"""Diagnosis over every shipped contract: its own genuine samples, broken in known ways, are explained (B12)."""

from dataclasses import replace
from typing import Any

import pytest

from providers.diagnosis import TEXTS, Account, diagnose
from providers.vectors import keys_of, request_of, secrets_of
from providers.verification import verify
from schemas.contract import Contract
from schemas.delivery import InboundRequest, Secret, Verified
from schemas.operation import SECOND
from tests.providers.test_shipped_contracts import CONTRACTS

GENUINE = [
    pytest.param(contract, sample, id=f"{contract.name}-{sample['name']}")
    for contract in CONTRACTS
    for sample in contract.samples
    if sample.get("expect") == "valid"
]


def known(contract: Contract, sample: dict[str, Any]) -> tuple[InboundRequest, Account, int]:
    params = {str(name): str(value) for name, value in (sample.get("params") or {}).items()}
    keys = keys_of(sample, contract.signatures)
    account = Account(schemes=contract.signatures, secrets=secrets_of(sample), params=params, keys=keys)
    return request_of(sample), account, int(sample["now"] * SECOND)


@pytest.mark.parametrize(("contract", "sample"), GENUINE)
def test_a_broken_sample_is_explained_or_honestly_not(contract: Contract, sample: dict[str, Any]) -> None:
    """B12: whatever the scheme, causes are of the closed set and name no secret; a body that only grew a line break is said so."""
    request, account, now = known(contract, sample)
    broken = [
        replace(request, body=request.body + b"\n"),
        replace(request, body=request.body[:-1]),
        replace(request, headers=()),
        replace(request, headers=tuple((name, value.upper()) for name, value in request.headers)),
        replace(request, query=b"added=1", public_url="http://elsewhere.example/x"),
    ]
    for number, asked in enumerate(broken):
        refused = not isinstance(verify(asked, account.schemes, account.secrets, now, account.params, keys=account.keys), Verified)
        causes = diagnose(asked, account, now)
        assert bool(causes) == refused
        assert all(cause.code in TEXTS for cause in causes)
        told = "".join(cause.text for cause in causes).encode()
        assert not any(secret.value in told for secret in account.secrets if len(secret.value) > 8)
        if number == 0 and refused and not contract_parses_the_body(contract):
            assert (causes[0].code, causes[0].certain) == ("newline_added", True)


def contract_parses_the_body(contract: Contract) -> bool:
    """Say whether a line break more is another kind of fault there: keys that are fetched, or a scheme that is none over bytes."""
    return any(scheme.primitive not in {"hmac", "hash"} for scheme in contract.signatures)


@pytest.mark.parametrize(("contract", "sample"), GENUINE)
def test_the_wrong_slot_is_recognised_for_every_scheme_with_a_secret(contract: Contract, sample: dict[str, Any]) -> None:
    """B12: with its secret configured at another endpoint, a genuine delivery is told to be that one's."""
    request, account, now = known(contract, sample)
    moved = replace(account, secrets=(), others=[Secret(id=f"other {secret.id}", value=secret.value) for secret in account.secrets])
    causes = diagnose(request, moved, now)
    if account.secrets and causes:
        assert causes[0].code in {"other_secret", "key_unavailable", "no_secret"}
