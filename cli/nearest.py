"""The word that was probably meant. Without one that is near enough, no guess: the known ones where they are few, else where they stand."""

import difflib
from collections.abc import Iterable
from typing import Final

_ENOUGH: Final = 0.6  # of 1: below it the nearest word has little to do with what was written
_FEW: Final = 12


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the known word that was probably meant, or the empty text."""
    return next(iter(difflib.get_close_matches(word[:200], list(known), n=1, cutoff=_ENOUGH)), "")


def hint(word: str, known: Iterable[str], *, where: str, what: str = "the nearest", prefix: str = "") -> str:
    """Return how a message about an unknown word ends: the nearest one, else all where they are few, else `where` they stand.

    `prefix` is common to all of them and says nothing about nearness.
    """
    names = list(known)
    if near := nearest(word.removeprefix(prefix), [name.removeprefix(prefix) for name in names]):
        return f"{what} is {prefix}{near}"
    return f"known are {', '.join(names)}" if len(names) <= _FEW else f"see {where}"
