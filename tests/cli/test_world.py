"""The real world: ids, tokens and chance keep the promises of `schemas.world.World`."""

import re
import shutil
import subprocess
import sys
import time
import uuid
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.world import RealWorld, uuid7
from schemas.world import World
from tests.cli.stage import ROOT

WORLD: World = RealWorld()


@given(now=st.integers(0, (1 << 48) * 1_000 - 1), entropy=st.binary(min_size=10, max_size=10))
def test_uuid7_has_the_layout_of_the_rfc(now: int, entropy: bytes) -> None:
    """RFC 9562, section 5.7: 48 bits of milliseconds, version 7, variant 10, 74 bits of chance."""
    value = uuid.UUID(int=uuid7(now, entropy))
    assert value.version == 7
    assert value.variant == uuid.RFC_4122
    assert value.int >> 80 == now // 1_000


@given(bit=st.integers(0, 73))
def test_every_bit_of_chance_counts(bit: int) -> None:
    """Flipping any of the 74 used bits of entropy gives another id."""
    assert uuid7(0, (1 << bit).to_bytes(10, "big")) != uuid7(0, bytes(10))


@given(
    earlier=st.integers(0, 1 << 57),
    millis=st.integers(1, 1 << 30),
    one=st.binary(min_size=10, max_size=10),
    two=st.binary(min_size=10, max_size=10),
)
def test_ids_of_different_milliseconds_sort_by_time(earlier: int, millis: int, one: bytes, two: bytes) -> None:
    """Whatever the chance, an id of an earlier millisecond is the smaller text."""
    assert f"{uuid7(earlier, one):032x}" < f"{uuid7(earlier + millis * 1_000, two):032x}"


def test_an_id_is_its_prefix_and_32_hex_digits() -> None:
    """Ids look like `op_0198…` and are unique."""
    made = {WORLD.new_id("op_") for _ in range(1_000)}
    assert len(made) == 1_000
    assert all(re.fullmatch("op_[0-9a-f]{12}7[0-9a-f]{3}[89ab][0-9a-f]{15}", item) for item in made)


def test_a_token_holds_128_bits_and_safe_characters() -> None:
    """A4: at least 128 bits, only letters, digits, `-` and `_`."""
    made = {WORLD.new_token() for _ in range(1_000)}
    assert len(made) == 1_000
    assert all(re.fullmatch("[A-Za-z0-9_-]{32}", item) for item in made)


def test_chance_is_in_its_range() -> None:
    """Chance lies in [0, 1) and varies."""
    made = {WORLD.chance() for _ in range(1_000)}
    assert len(made) > 990
    assert all(0 <= item < 1 for item in made)


def test_the_clock_is_the_machines_in_microseconds() -> None:
    """The wall clock counts microseconds UTC, and the monotonic one never steps back."""
    before = time.time_ns() // 1_000  # noqa: TID251 - compared with the real clock
    now = WORLD.now()
    assert before <= now <= time.time_ns() // 1_000  # noqa: TID251 - compared with the real clock
    assert all(one <= two for one, two in pairwise(WORLD.monotonic() for _ in range(100)))


def asleep() -> list[str]:
    """Return what runs a program as on a machine that has slept for a day; nothing where that cannot be had."""
    unshare = shutil.which("unshare")
    command = [unshare or "", "--time", "--boottime", "86400", "--fork"]
    return command if unshare and subprocess.run([*command, "true"], check=False, capture_output=True).returncode == 0 else []


@pytest.mark.skipif(not asleep(), reason="a time namespace needs Linux and its permission")
def test_the_steady_clock_counts_the_time_asleep() -> None:
    """C1, B106: a suspended machine's leases run out meanwhile, so `send_by` is judged by a clock that went on."""
    code = "import time; from cli.world import RealWorld; print(RealWorld().monotonic() - time.monotonic())"
    done = subprocess.run(
        [*asleep(), sys.executable, "-c", code], env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True
    )
    before = time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()
    assert abs(float(done.stdout) - before - 86_400) < 60
