"""Logs: one physical line an event, no secret, quiet libraries (B141, B142)."""

import io
import json
import logging
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from cli import logs
from cli.escaping import safe

CANARY = "canary-5f3a9c"


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


pytestmark = pytest.mark.usefixtures("unlogged")


def written(form: str = "json", *, level: str = "debug", debug: bool = False, stream: io.StringIO | None = None, **fields: Any) -> str:
    out = stream or io.StringIO()
    logs.configure(level=level, form=form, debug=debug, stream=out)
    structlog.get_logger("t").info("room.verb", **fields)
    return out.getvalue()


@pytest.mark.parametrize("form", ["json", "text"])
@given(
    value=st.text(max_size=200) | st.sampled_from(["a\r\n2026 INFO paid", "\x1b[31mred", "a\u2028b", "\ud800", "\u202etxt", "x" * 100_000])
)
def test_an_event_is_one_line_without_controls(form: str, value: str) -> None:
    """B141: CR, LF, ESC, U+2028 and long values in any field cannot forge a line or a terminal command."""
    line = written(form, event_id=value, nested={value: [value, (value,)]})
    assert line.endswith("\n")
    assert len(line[:-1].splitlines()) == 1
    assert all(char.isprintable() or char.isspace() or ord(char) > 0x9F for char in line[:-1])
    assert "\x1b" not in line
    assert len(line) < 5 * 2 * logs.MAX_FIELDS + 12 * 2_100
    line.encode("utf-8")


def test_json_elsewhere_and_text_on_a_terminal() -> None:
    """`auto` asks the stream."""
    found = json.loads(written("auto", count=3))
    assert (found["event"], found["level"], found["count"]) == ("room.verb", "info", 3)
    assert found["time"].endswith("Z")
    assert written("auto", stream=Terminal(), count=3, word="a b").rstrip().endswith('info    room.verb  count=3 word="a b"')


def test_what_is_secret_by_name_or_place_is_not_written() -> None:
    """B142: secrets by field name, users and queries of URLs, bytes and the text of exceptions stay out."""
    line = written(
        authorization=CANARY,
        webhook_secret=CANARY,
        headers={"x": CANARY},
        body=CANARY.encode(),
        payload=CANARY.encode(),
        url=f"https://user:{CANARY}@files.example/a?sig={CANARY}#{CANARY}",
        note=f"GET postgresql://u:{CANARY}@db/x failed",
        failure=ValueError(CANARY),
    )
    assert CANARY not in line
    assert "https://files.example/a?…" in line


def test_an_exception_shows_type_and_place_but_not_its_text() -> None:
    """An exception's text may carry payloads: only its type and places are written, the whole only with debug."""
    for debug in (False, True):
        out = io.StringIO()
        logs.configure(level="info", form="json", debug=debug, stream=out)
        try:
            int(CANARY)
        except ValueError:
            structlog.get_logger("t").exception("room.failed")
            logging.getLogger("library").exception("failed")
        for line in out.getvalue().splitlines():
            found = json.loads(line)
            assert (CANARY in line) is debug
            assert found["error"] == "ValueError" if not debug else "Traceback" in found["error"]
            assert debug or "test_logs.py:" in found["at"]


@pytest.mark.parametrize("name", ["httpx", "aiohttp.client", "apscheduler.executors.default", "httpcore.http11"])
def test_loud_libraries_speak_from_warning_on(name: str) -> None:
    """B142: httpx, aiohttp and apscheduler log addresses at INFO and DEBUG; that never shows, whatever the level."""
    out = io.StringIO()
    logs.configure(level="debug", form="json", stream=out)
    logging.getLogger(name).info("GET https://x/?%s", CANARY)
    assert out.getvalue() == ""
    logging.getLogger(name).warning("slow https://x/?%s", CANARY)
    assert json.loads(out.getvalue())["event"] == "slow https://x/?…"


def test_the_level_holds() -> None:
    """Events below the level are not written."""
    assert written(level="warning") == ""


@given(st.text(), st.integers(1, 50))
def test_safe_text_is_bounded_and_printable(text: str, limit: int) -> None:
    """Whatever the text, its safe form is one line and grows at most sixfold over the limit."""
    found = safe(text, limit)
    assert len(found.splitlines()) <= 1
    assert len(found) <= 6 * limit + 40
