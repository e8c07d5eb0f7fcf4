"""Places and templates: total finding, exact texts, and paths that cannot escape."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.places import TemplateError, as_id, as_text, compile_expression, compile_place, is_fit, render, template_fields

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def test_places_find_headers_parameters_and_body_values() -> None:
    """A header is found in any case of its name, a parameter exactly, a body value by its expression."""
    assert compile_place("header:X-Job").find(headers=[("x-job", "1"), ("x-job", "2")]) == "1"
    assert compile_place("query:id").find(query=[("ID", "no"), ("id", "yes")]) == "yes"
    assert compile_place("body:data[0].id").find(body={"data": [{"id": 7}]}) == 7
    assert compile_place("body:data.id").find(body=None) is None


@pytest.mark.parametrize("text", ["", "id", "cookie:x", "header:", "header:a b", "body:", "body:a[", "body:a-b", "query: "])
def test_a_wrong_place_is_refused_with_a_cure(text: str) -> None:
    """What is no place is refused when the contract is loaded, not when a delivery comes."""
    with pytest.raises(ValueError, match=r"write|remove|JMESPath"):
        compile_place(text)


@given(JSON)
def test_finding_never_raises(body: Any) -> None:
    """Whatever the document is, an expression answers a value or None (B1)."""
    for expression in (
        "body:a.b",
        "body:sort(@)",
        "body:[0].x",
        "body:length(@)",
        "body:max_by(@, &a)",
        "body:join(',', @)",
        "body:abs(@)",
    ):
        compile_place(expression).find(body=body)


@given(JSON)
def test_texts_are_bounded_and_fit_to_be_stored(value: Any) -> None:
    """No text holds NUL, controls or half characters, and none is longer than its limit (B137, B141)."""
    text = as_text(value, 10)
    assert len(text) <= 10
    assert is_fit(text)
    text.encode()
    if isinstance(value, bool | float | list | dict) or value is None:
        assert text == ""


def test_integers_are_exact_decimals() -> None:
    """An id above 2^53 keeps every digit; a monstrous one is none instead of an exception."""
    assert as_text(9007199254740993) == "9007199254740993"
    assert as_text(10**5000) == ""
    assert as_text(-3) == "-3"


_LEAVES = st.none() | st.booleans() | st.integers(-1, 1) | st.sampled_from(["", "x", 0.0, 1.5])


@given(st.recursive(_LEAVES, lambda inner: st.dictionaries(st.sampled_from("abc"), inner) | st.lists(inner, max_size=2)))
def test_a_chain_of_names_is_walked_as_jmespath_would(body: Any) -> None:
    """The short way through plain names finds what the expression language finds."""
    for chain in ("a", "a.b", "a.b.c", "a || b", "a.b||b.c || c", "c || a.b.c"):
        assert repr(compile_place(f"body:{chain}").find(body=body)) == repr(compile_expression(chain).search(body))


def test_texts_lose_what_forges_log_lines() -> None:
    """CR, LF, escapes, U+2028 and NUL are removed, length is capped (B137, B141)."""
    assert as_text("a\r\n2026 INFO paid\x1b[31m\u2028b\x00c") == "a2026 INFO paid[31mbc"
    assert len(as_text("x" * 1_000_000)) == 200


def test_an_id_is_exact_or_none() -> None:
    """A cut or cleaned id could be another job's: it is empty instead."""
    assert as_id("job_1") == "job_1"
    assert as_id("job_1\x00") == ""
    assert as_id("j" * 201) == ""
    assert as_id(True) == as_id("  ") == as_id([]) == as_id(1.0) == ""


@given(st.text())
def test_a_field_is_one_segment_of_a_path(value: str) -> None:
    """No value leaves its segment (`../x`, `/`, `?`, `#`, `%2e`)."""
    try:
        path = render("/jobs/{remote_job_id}/cancel", {"remote_job_id": value}, in_path=True)
    except TemplateError:
        assert value in {"", ".", ".."} or not is_fit(value)
        return
    assert path.startswith("/jobs/")
    assert path.endswith("/cancel")
    segment = path[len("/jobs/") : -len("/cancel")]
    assert not set(segment) & set("/?#\\ \r\n")
    assert segment not in {"", ".", ".."}


def test_templates_refuse_what_they_cannot_fill() -> None:
    """A missing value, a lone brace, a strange name and a value with a line break are errors, not texts."""
    assert render("Bearer {credential}", {"credential": "a/b"}, in_path=False) == "Bearer a/b"
    assert template_fields("/x/{result.output_file}/{token}") == ("result.output_file", "token")
    for template, values in (("{a}", {}), ("{a", {"a": "1"}), ("{A b}", {"A b": "1"}), ("{a}", {"a": "x\r\ny"})):
        with pytest.raises(TemplateError):
            render(template, values, in_path=False)
