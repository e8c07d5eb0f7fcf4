"""The same scripted behaviours of a provider against every contract with a job section, through a simulator that speaks it."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from ledger.engine import Engines, open_engines
from ledger.migrate import migrate
from providers.contract import load
from schemas.contract import Contract, RecoveryRule
from tests.behaviours.behaviours import BEHAVIOURS, Behaviour
from tests.behaviours.capability import capability
from tests.behaviours.play import End, Kind, Play

FOLDER = Path(__file__).parents[2] / "providers" / "contracts"
pytestmark = pytest.mark.timeout(300)  # the first test of each database plays everything, on whatever machine

_FIELD = re.compile(r"\{\+?param\.([A-Za-z0-9_-]+)\}")


def _configured(file: Path) -> Contract:
    """Return a shipped contract with a value for every constant of the account that it uses."""
    source = file.read_bytes()
    contract = load(source, name=file.stem)
    shown = {name: value for sample in contract.samples if "kind" in sample for name, value in sample.get("params", {}).items()}
    return contract.with_params({name: f"{name}-1" for name in _FIELD.findall(source.decode())} | shown)


CONTRACTS = [contract for file in sorted(FOLDER.glob("*.toml")) if (contract := _configured(file)).kinds()]


def _derived(contracts: Sequence[Contract]) -> list[Contract]:
    """Return contracts with promises that no shipped one makes alone: what is played depends on promises, not on who makes them."""
    of = {contract.name: contract for contract in contracts}
    reports = of["reports"]
    assert reports.result is not None
    return [
        replace(of["cloudflare-stream"], name="only-echoes", recovery=RecoveryRule()),
        replace(reports, name="one-shot", result=replace(reports.result, one_shot=True)),
    ]


CONTRACTS += _derived(CONTRACTS)
KINDS = [Kind(whole=contract, action=action, contract=kind) for contract in CONTRACTS for action, kind in contract.kinds().items()]
# Every fifth: creating, reading, cancelling and ending are all among them. What the others decide is judgement, the same on both.
ON_POSTGRES = frozenset(BEHAVIOURS[::5])


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """All that was played on one database."""

    play: Play
    ends: dict[tuple[str, str], End]
    kind: str


def _engines(kind: str, request: pytest.FixtureRequest) -> Iterator[Engines]:
    if kind == "sqlite":
        engines = open_engines("sqlite://")
        migrate(engines)
        yield engines
        engines.close()
        return
    server = request.getfixturevalue("postgres_server")
    name = server.take()
    engines = open_engines(server.url(name))
    yield engines
    engines.close()
    server.give_back(name)


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def played(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    folder = tmp_path_factory.mktemp("played")
    for engines in _engines(request.param, request):
        play = Play(engines, CONTRACTS, folder)
        wanted = [
            (kind, behaviour)
            for kind in KINDS
            for behaviour in BEHAVIOURS
            if behaviour.fits(capability(kind)) and (request.param == "sqlite" or behaviour in ON_POSTGRES)
        ]
        identities = {
            (kind.name, behaviour.name): play.add(number, kind, behaviour.part) for number, (kind, behaviour) in enumerate(wanted, 1)
        }
        play.run()
        yield Played(play=play, ends={key: play.end(identity) for key, identity in identities.items()}, kind=request.param)


@pytest.mark.parametrize("behaviour", BEHAVIOURS, ids=lambda behaviour: behaviour.name.replace(" ", "-"))
def test_every_contract_comes_to_the_end_that_it_promises(played: Played, behaviour: Behaviour) -> None:
    """A behaviour's end depends on what a contract can and on nothing else (A5-A10, B3-B6, C3-C8, E1-E4, F1, F5)."""
    faults = []
    for kind in KINDS:
        end = played.ends.get((kind.name, behaviour.name))
        if end is not None:
            faults += [f"{kind.name}: {fault}" for fault in behaviour.ends(capability(kind), end)]
    assert not faults, f"{behaviour.name} ({behaviour.why}):\n" + "\n".join(faults)


def test_the_record_is_sound_after_all_of_it(played: Played) -> None:
    """The self-audit finds nothing and every chain verifies (C2, D4, D5)."""
    audit, chain = played.play.faults()
    assert not any(audit.values()), audit
    assert chain == []


def test_the_samples_of_a_contract_speak_its_whole_language(played: Played) -> None:
    """No answer was needed that a contract has no sample of: each of its words, its refusals, its lists."""
    assert not [text for line in played.play.lines.values() for text in sorted(line.unspoken)]


def test_there_are_at_least_twenty_behaviours() -> None:
    """The suite is not thinned out unseen."""
    assert len(BEHAVIOURS) >= 20
    assert len({behaviour.name for behaviour in BEHAVIOURS}) == len(BEHAVIOURS)
