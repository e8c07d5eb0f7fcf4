"""Contracts: a TOML file's bytes in, a checked `Contract` out, or every fault of the file at once."""

from dataclasses import dataclass

from schemas.contract import Contract


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that is wrong: where (line from 1, dotted key), what, and the cure."""

    line: int
    key: str
    message: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.key}: {self.message}" if self.line else f"{self.key}: {self.message}"


class ContractError(ValueError):
    """The file is not a contract. `faults` are all of them, in the order of lines."""

    def __init__(self, faults: tuple[Fault, ...], name: str = "") -> None:
        super().__init__("\n".join(str(fault) for fault in faults))
        self.faults = faults
        self.name = name


def load(data: bytes, *, name: str | None = None) -> Contract:
    """Return the contract in `data`. `name` names it where the file does not. Raises ContractError with all faults."""
    raise NotImplementedError
