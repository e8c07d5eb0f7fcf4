"""The command line with a crash point: `python -m tests.processes.crashing serve …` kills itself where CRASH_AT says.

CRASH_AT is `<Kind>.<place>` of the writer (`ledger/writer.py`), e.g. `Settle.after_commit`, and CRASH_ON the number of the
passage (1 is the first). The end is SIGKILL: nothing is flushed, nobody is told.
"""

import functools
import itertools
import os
import signal

from cli import main
from ledger.ledger import Ledger


def run() -> None:
    """Give the ledger the crash point and hand over to the command line."""
    place, number = os.environ["CRASH_AT"], int(os.environ.get("CRASH_ON", "1"))
    passages = itertools.count(1)

    def crash(passed: str) -> None:
        if passed == place and next(passages) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    Ledger.open = functools.partial(Ledger.open, crash_point=crash)  # type: ignore[method-assign] # this process only
    main.main()


if __name__ == "__main__":
    run()
