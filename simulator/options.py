"""What a simulator is started with: how long jobs take, whom it calls back, with which secrets, and its standing faults."""

from dataclasses import dataclass, field

# Bounds, so that a client's mistake cannot fill this process: nothing here is a promise of a real provider.
MAX_BODY_BYTES = 4_194_304
MAX_ROWS = 1_000_000
MAX_ITEMS = 50_000
MAX_KEPT_BODY_BYTES = 16_384  # of each request, in the journal


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatorOptions:
    """Options of one simulator. Durations in seconds, fractions allowed.

    `simulate` holds standing faults in the grammar of `simulator/faults.py`; every job gets them, and its own on top.
    Without a callback address (here or as `callback_url` in the create body) no callback is sent.
    """

    credential: str | None = field(default=None, repr=False)  # None: every caller is let in
    reports_callback_url: str | None = None
    batches_callback_url: str | None = None
    reports_secret: str = field(default="whsec_c2ltdWxhdG9yLXJlcG9ydHMtc2VjcmV0LTAwMDA=", repr=False)
    batches_secrets: tuple[str, ...] = field(default=("whsec_simulator_batches",), repr=False)  # several: a rotation, one v1 each
    queue_seconds: float = 1.0
    run_seconds: float = 5.0
    finalize_seconds: float = 0.5  # batches: between the last item and the files
    cancel_seconds: float = 0.5  # how long `cancelling` lasts
    progress_callbacks: bool = False  # also call back when a job starts to run
    callback_retry_seconds: tuple[float, ...] = (0.5, 2.0, 10.0)  # pauses before a refused delivery is repeated
    callback_timeout_seconds: float = 5.0
    late_copy_seconds: float = 1.0  # duplicate_callbacks: when the late copy comes
    retry_after_seconds: int = 1  # what 429 and 503 ask for
    result_query: str = field(default="", repr=False)  # reports: follows the `?` of a result's address, as in signed ones; not checked
    simulate: tuple[str, ...] = ()
    body_seconds: float = 10.0  # a request's body must come within this
    max_jobs: int = 100_000  # more creates are refused with 503
    max_log: int = 20_000  # entries of each log; the oldest are forgotten
    max_pending_callbacks: int = 100_000  # more are dropped, and the journal says so
    max_sends_at_once: int = 64
