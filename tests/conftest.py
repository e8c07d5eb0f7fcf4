"""What every test process needs, however it was started."""

import signal

import pytest

# A shell starts background jobs with SIGINT ignored, and whatever they start inherits that: a Ctrl-C that a test sends would
# then never arrive. With a handler here, what the tests start begins with the default again.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_SLOW_FIRST = ("processes", "simulation", "faults", "demo", "cli", "behaviours", "conformance", "gateway")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the rooms whose tests wait long, so that several test processes end together."""
    rank = {room: number for number, room in enumerate(_SLOW_FIRST)}
    items.sort(key=lambda item: rank.get(item.path.parent.name, len(rank)))
