"""Logs on stderr: text on a terminal, JSON elsewhere. One physical line an event, whatever a stranger put into a value.

Guards here stand behind those of the callers, who do not log bodies, secrets or signatures in the first place.
"""

import json
import logging
import re
import sys
import traceback
from collections.abc import Mapping, MutableMapping
from typing import Any, Final, TextIO

import structlog

from cli.escaping import safe

MAX_FIELDS: Final = 64
MAX_DEPTH: Final = 4
MAX_FRAMES: Final = 6
# They log whole URLs, with signed queries, below WARNING (B142).
LOUD: Final = ("httpx", "httpcore", "aiohttp", "apscheduler", "alembic", "sqlalchemy", "uvicorn", "asyncio")

_HIDDEN: Final = re.compile(
    r"(^|_)(authorization|cookie|credential|credentials|secret|secrets|password|signature|signatures|token|body|headers|api_key|key)$",
    re.IGNORECASE,
)


def configure(*, level: str, form: str, debug: bool = False, stream: TextIO | None = None) -> None:
    """Send structlog's and the standard library's events to `stream` (stderr), in `form` auto, text or json."""
    out = stream or sys.stderr
    text = form == "text" or (form == "auto" and out.isatty())
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
    ]
    last: list[structlog.typing.Processor] = [
        structlog.stdlib.ProcessorFormatter.remove_processors_meta,
        _debug_failure if debug else _failure,
        clean,
        _as_text if text else _as_json,
    ]
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=last))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    for name in LOUD:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))


def clean(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Return the event with every key and value safe, bounded, and hidden where its name says that it is secret."""
    return _mapping(event, MAX_DEPTH)


def _mapping(event: Mapping[str, Any], depth: int) -> dict[str, Any]:
    return {
        safe(str(key), 64): "…"
        if _HIDDEN.search(str(key)) and isinstance(value, str | bytes | Mapping | list | tuple)
        else _value(value, depth)
        for key, value in list(event.items())[:MAX_FIELDS]
    }


def _value(value: Any, depth: int) -> Any:
    match value:
        case bool() | int() | float() | None:
            return value
        case str():
            return safe(value)
        case bytes() | bytearray() | memoryview():
            return f"<{len(value)} bytes>"
        case Mapping() if depth:
            return _mapping(value, depth - 1)
        case list() | tuple() | set() | frozenset() if depth:
            return [_value(item, depth - 1) for item in list(value)[:MAX_FIELDS]]
        case BaseException():
            return type(value).__name__  # its text may carry anything
        case _:
            return safe(str(value))


def _failure(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Replace an exception by its type and places: its text and its locals may carry payloads and credentials."""
    error = _exception(event)
    if error is not None:
        frames = traceback.extract_tb(error.__traceback__)[-MAX_FRAMES:]
        event["error"] = type(error).__name__
        event["at"] = " > ".join(f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}" for frame in frames)
    return event


def _debug_failure(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    error = _exception(event)
    if error is not None:
        event["error"] = "".join(traceback.format_exception(error))
    return event


def _exception(event: MutableMapping[str, Any]) -> BaseException | None:
    info = event.pop("exc_info", None)
    event.pop("stack_info", None)
    match info:
        case BaseException():
            return info
        case (_, BaseException() as error, _):
            return error
        case True:
            return sys.exc_info()[1]
        case _:
            return None


def _as_json(_: Any, __: str, event: MutableMapping[str, Any]) -> str:
    head = {name: event.pop(name) for name in ("time", "level", "event") if name in event}
    return json.dumps(head | dict(event), ensure_ascii=False, allow_nan=True)


def _as_text(_: Any, __: str, event: MutableMapping[str, Any]) -> str:
    time, level, name = (str(event.pop(key, "")) for key in ("time", "level", "event"))
    values = " ".join(f"{key}={_word(value)}" for key, value in event.items())
    return f"{time[11:23]} {level:<7} {name}  {values}".rstrip()


def _word(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if text and not re.search(r'[\s="]', text) else json.dumps(text, ensure_ascii=False)
