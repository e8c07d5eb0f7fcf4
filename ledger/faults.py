"""What a driver's error means: try again at once, the database refuses for now, or the statement itself is wrong.

SQLite says it by its result code (sqlite.org/rescode.html), PostgreSQL by SQLSTATE (its manual, appendix A).
"""

import contextlib
from enum import Enum
from typing import Any, Final

import psycopg
import sqlalchemy as sa

from ledger.errors import LedgerError, LedgerUnavailableError

_BUSY, _LOCKED = 5, 6  # SQLITE_BUSY, SQLITE_LOCKED
_GONE: Final = {
    8: "the database is read-only",
    10: "the disk fails",
    13: "the disk or the database is full",
    14: "the database file cannot be opened",
    22: "the disk is full or too slow",
    7: "out of memory",
    9: "the statement was interrupted",
}
_BROKEN: Final = frozenset({11, 26})  # SQLITE_CORRUPT, SQLITE_NOTADB
_DIALLING: Final = (  # words of libpq and psycopg -> what they mean, and the cure; the first that fits counts
    ("starting up", "the server is starting; this passes by itself"),
    ("shutting down", "the server is stopping; this passes once it is started again"),
    ("in recovery mode", "the server recovers from a crash; this passes by itself"),
    ("yet accepting connections", "the server takes no connections yet; this passes once it has caught up"),
    ("not accepting connections", "the server takes no connections yet; this passes once it has caught up"),
    ("too many clients", "the server has no connection left; run fewer processes, or raise its max_connections"),
    ("too many connections", "this user or database has no connection left; run fewer processes, or raise its connection limit"),
    ("remaining connection slots", "the server has no connection left; run fewer processes, or raise its max_connections"),
    ("session is read-only", "the server takes no writes: a standby; the address must lead to the primary"),
    ("unsupported startup parameter", "a pooler stands there that keeps no session; set database_pooled = true"),
    ("password authentication failed", "the server refuses user or password; set the right ones in the address"),
    ("no password supplied", "the server asks for a password; put it into the address, or into ~/.pgpass"),
    ("role ", "the server does not know this user; make it, or name another in the address"),
    ("no pg_hba.conf entry", "the server does not let this user in from here; see its pg_hba.conf"),
    ("database ", "the server has no such database; make it (createdb), or name another in the address"),
    ("connection refused", "nobody listens there; start the server, or correct host and port"),
    ("resolve", "the host is unknown; correct the name, or the resolver"),
    ("translate host name", "the host is unknown; correct the name, or the resolver"),
    ("timeout", "there is no answer; see whether the host can be reached"),
    ("no such file", "there is no socket there; start the server, or correct the host"),
    ("ssl", "the server and this process do not agree on TLS; see sslmode in the address"),
)
_STATES: Final = {  # what a server says on an open connection
    "25006": "the server takes no writes: a standby; the address must lead to the primary",
    "53100": "the disk of the server is full; make room there",
    "57P01": "the server is stopping; this passes once it is started again",
    "57P03": "the server takes no connections yet; this passes by itself",
}
_CONFLICTS: Final = frozenset({"40001", "40P01", "55P03"})  # serialization, deadlock, lock not available
_GONE_CLASSES: Final = frozenset({"08", "53", "57", "58"})  # connection, resources, operator's intervention, system
READ_ONLY: Final = "25006"  # a standby after a fail-over
_IDLE_TIMEOUT: Final = "25P03"


class Fault(Enum):
    """What to do about a driver's error."""

    CONFLICT = "conflict"  # rolled back because of somebody else: run the whole transaction again
    UNAVAILABLE = "unavailable"  # the database refuses for now
    OTHER = "other"  # the statement or its values are wrong


def classify(error: BaseException) -> Fault:
    """Return what this error of SQLAlchemy or a driver means. Total: anything unknown is OTHER."""
    if isinstance(error, LedgerUnavailableError):
        return Fault.UNAVAILABLE
    if isinstance(error, sa.exc.TimeoutError):
        return Fault.UNAVAILABLE
    if isinstance(error, sa.exc.DBAPIError):
        return Fault.UNAVAILABLE if error.connection_invalidated else _of_driver(error.orig)
    return _of_driver(error)


def _of_driver(error: Any) -> Fault:
    code = getattr(error, "sqlite_errorcode", None)
    if code is not None:
        primary = code & 0xFF
        if primary in {_BUSY, _LOCKED}:
            return Fault.CONFLICT
        return Fault.UNAVAILABLE if primary in _GONE else Fault.OTHER
    if isinstance(error, psycopg.Error):
        state = error.sqlstate
        if state is None:  # no answer from the server: the connection was refused, lost or timed out
            return Fault.UNAVAILABLE if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) else Fault.OTHER
        if state in _CONFLICTS:
            return Fault.CONFLICT
        gone = state[:2] in _GONE_CLASSES or state in {READ_ONLY, _IDLE_TIMEOUT}
        return Fault.UNAVAILABLE if gone else Fault.OTHER
    return Fault.OTHER


def tell(error: BaseException, place: str = "") -> LedgerError:
    """Return our error for a driver's: LedgerUnavailableError for conflicts and refusals, LedgerError for the rest.

    `place` is the file's path or the server's address. The message has the kind and the code, never a statement's values
    and never an address with its password.
    """
    if isinstance(error, LedgerError):
        return error
    at = f" {place}" if place else ""
    if _is_no_database(error):
        return LedgerError(f"the file{at} is not a whole SQLite database; name another by database_url, or put it back from the backup")
    if classify(error) is Fault.OTHER:
        return LedgerError(f"the database{at} refuses a statement ({_code(error)})")
    return LedgerUnavailableError(f"the database{at} is not available: {why(error)}")


def _is_no_database(error: BaseException) -> bool:
    code = getattr(_cause(error), "sqlite_errorcode", None)
    return code is not None and code & 0xFF in _BROKEN


def _cause(error: BaseException) -> Any:
    return error.orig if isinstance(error, sa.exc.DBAPIError) else error


def _code(error: BaseException) -> str:
    cause = _cause(error)
    code = getattr(cause, "sqlite_errorname", None) or getattr(cause, "sqlstate", None)
    constraint = ""
    with contextlib.suppress(AttributeError):
        constraint = cause.diag.constraint_name or ""
    return " ".join(part for part in (type(cause).__name__, code, constraint) if part)


def why(error: BaseException) -> str:
    """Return in words why the database refuses, with the cure where there is one; no value of a statement."""
    if isinstance(error, sa.exc.TimeoutError):
        return "all connections are in use"
    cause = _cause(error)
    code = getattr(cause, "sqlite_errorcode", None)
    if code is not None:
        return _GONE.get(code & 0xFF, "it is locked by another writer; this passes once that one is done (`lsof` names who has it open)")
    if getattr(cause, "sqlstate", None) is None and isinstance(cause, psycopg.Error):
        # The client library's words name user and host, and on some systems more: they are recognized, never repeated.
        text = str(cause).lower()
        for words, meaning in _DIALLING:
            if words in text:
                return meaning
        return f"the connection was lost ({type(cause).__name__})"
    state = getattr(cause, "sqlstate", None)
    if state in _CONFLICTS:
        return "it is in conflict with another writer"
    return _STATES.get(state or "", _code(error))
