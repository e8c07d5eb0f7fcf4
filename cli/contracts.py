"""Finds and reads contract files: the shipped ones by name, one's own by path. `providers.contract.load` judges their bytes."""

import re
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Final

from cli.configuration import ConfigurationError
from cli.nearest import hint
from providers.contract import ContractError, load, params_of
from providers.mapping import describe, events
from providers.samples import answer_faults
from providers.vectors import judge, request_of, run
from schemas.contract import Contract
from schemas.delivery import Verified
from schemas.settings import ProviderSettings

MAX_BYTES: Final = 1_048_576
_SUFFIX: Final = ".toml"
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,99}\Z")


def shipped() -> tuple[str, ...]:
    """Return the names of the contracts that come with this version, sorted."""
    folder = resources.files("providers") / "contracts"
    if not folder.is_dir():
        return ()
    return tuple(sorted(item.name.removesuffix(_SUFFIX) for item in folder.iterdir() if item.name.endswith(_SUFFIX)))


def is_path(reference: str) -> bool:
    """Return whether a contract is named by path: it has a `/` or ends in `.toml`."""
    return "/" in reference or reference.endswith(_SUFFIX)


def read(reference: str, folder: Path) -> bytes:
    """Return the bytes of a contract, a relative path starting at `folder`. Raises ConfigurationError."""
    if is_path(reference):
        place = folder / Path(reference).expanduser()
        try:
            with place.open("rb") as file:
                data = file.read(MAX_BYTES + 1)
        except OSError as error:
            raise ConfigurationError([f"contract {place}: {error.strerror}"]) from None
        if len(data) > MAX_BYTES:
            raise ConfigurationError([f"contract {place}: larger than {MAX_BYTES} bytes; this is not a contract"])
        return data
    names = shipped()
    if reference not in names or not _NAME.match(reference):
        ending = hint(reference, names, where="gateway contracts list", what="the nearest shipped one")
        fault = f"contract {reference[:100]}: no shipped contract has this name; {ending} (a path has a / or ends in .toml)"
        raise ConfigurationError([fault])
    return (resources.files("providers") / "contracts" / f"{reference}{_SUFFIX}").read_bytes()


def contract(reference: str, folder: Path) -> Contract:
    """Return the contract of that name or path. Raises ConfigurationError with all faults of the file."""
    data = read(reference, folder)
    name = Path(reference).name.removesuffix(_SUFFIX)
    try:
        return load(data, name=name)
    except ContractError as error:
        raise ConfigurationError([f"contract {reference}: {fault}" for fault in error.faults]) from None


def of_providers(providers: Mapping[str, ProviderSettings], folder: Path) -> dict[str, Contract]:
    """Return the contract of every configured provider by the provider's name. Raises ConfigurationError with all faults of all."""
    found: dict[str, Contract] = {}
    faults: list[str] = []
    for name, settings in providers.items():
        try:
            found[name] = contract(settings.contract, folder)
        except ConfigurationError as error:
            faults.extend(f"providers.{name}: {fault}" for fault in error.faults)
        else:
            if receives_only(found[name], settings):
                found[name] = found[name].receiving()
            used = {key: settings.params.get(key, "") for key in sorted(params_of(found[name]))}
            faults.extend(f"providers.{name}.params.{key}: {fault}" for key, text in used.items() if (fault := _constant(text)))
            found[name] = found[name].with_params(used)
            if not (settings.base_url or found[name].origin) and found[name].kinds():
                faults.append(f"providers.{name}.base_url: is missing; the contract {settings.contract} names no origin")
    if faults:
        raise ConfigurationError(faults)
    return found


def receives_only(contract: Contract, settings: ProviderSettings) -> bool:
    """Say whether an account with neither credential nor any constant of the contract's requests wants deliveries alone.

    Whoever gives one of them means to make calls, and is told what is missing.
    """
    wanted = params_of(contract)
    return bool(wanted and contract.signatures) and settings.credential is None and not any(settings.params.get(key) for key in wanted)


def _constant(text: str) -> str:
    """Return why a constant cannot stand in a request, or the empty text. It is no secret: addresses are shown and logged."""
    if not text:
        return "is missing; the contract's requests need it"
    return "must be a plain value: it stands in addresses" if text.startswith(("env:", "file:")) else ""


def sample_faults(contract: Contract) -> Iterator[tuple[str, str]]:
    """Yield (sample, fault) for every sample, delivery or answer, that the contract itself judges or maps otherwise than it says."""
    yield from answer_faults(contract)
    deliveries = [sample for sample in contract.samples if "kind" not in sample]
    for sample, (name, passed, why) in zip(deliveries, run({"cases": deliveries}, contract.signatures), strict=True):
        if sample.get("expect") not in {"valid", "invalid"}:
            yield name, 'needs expect = "valid" or "invalid" (a delivery), or kind (an answer)'
        elif not passed:
            yield name, f"expected {sample['expect']}, but {why}"
        elif sample["expect"] == "valid" and ("event" in sample or "dedup" in sample):
            yield from ((name, fault) for fault in _mapped_otherwise(contract, sample))


def _mapped_otherwise(contract: Contract, sample: Mapping[str, Any]) -> Iterator[str]:
    verdict = judge(sample, contract.signatures)
    assert isinstance(verdict, Verified), "the same judgement twice"
    mapped = events(contract, request_of(sample), verdict.signed)
    found = [dict(describe(event)) for event in mapped]
    expected = sample["event"] if isinstance(sample.get("event"), list) else [sample.get("event")]
    if "event" in sample and found != expected:
        yield f"expected the event {expected}, but found {found}"
    keys = sorted({event.dedup_key.partition(":")[0] for event in mapped})
    if "dedup" in sample and keys != [sample["dedup"]]:
        yield f"expected the dedup key from the {sample['dedup']}, but it is from the {', '.join(keys) or 'nothing'}"
