"""The route and problem tables, the OpenAPI document and the page in docs/ say the same."""

import asyncio
import base64
import hashlib
import html
import json
import re
from pathlib import Path
from typing import Any

import httpx

from gateway import openapi, reference
from gateway.keys import SCOPES
from gateway.problems import PROBLEMS
from gateway.problems import table as problem_table
from gateway.routes import EVERY_BODY, EVERY_SCOPED, ROUTES
from gateway.routes import table as route_table
from tests.gateway.house import house

ROOT = Path(__file__).parents[2]
SCOPED = [route for route in ROUTES if route.scope is not None]


def test_the_openapi_document_says_what_the_route_table_says(tmp_path: Path) -> None:
    """One table drives routes, scopes and the document; every reference in it leads somewhere."""

    async def scenario() -> dict[str, Any]:
        async with house(tmp_path) as home:
            answer = await home.bare().get("/openapi.json")
            assert answer.status_code == 200
            found: dict[str, Any] = answer.json()
            return found

    document = asyncio.run(scenario())
    assert document["openapi"] == "3.1.0"
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert described == {(route.method, route.path) for route in ROUTES} | {("POST", "/webhooks/{provider}")}
    names = [operation["operationId"] for methods in document["paths"].values() for operation in methods.values()]
    assert len(names) == len(set(names))
    references = set(re.findall(r'"\$ref": "#/components/schemas/(\w+)"', json.dumps(document)))
    assert references <= set(document["components"]["schemas"])
    for route in ROUTES:
        operation = document["paths"][route.path][route.method.lower()]
        assert ("security" in operation) == (route.scope is not None)
        wanted = {str(PROBLEMS[code].status) for code in route.codes} | {str(status) for status in route.statuses}
        assert wanted <= set(operation["responses"])
    assert openapi.document("1")["info"]["version"] == "1"


def test_the_page_for_people_shows_every_route_and_runs_nothing(tmp_path: Path) -> None:
    """`/docs` is the OpenAPI document as still HTML: no script, nothing from elsewhere, its own style alone is allowed."""

    async def scenario() -> tuple[httpx.Response, httpx.Response]:
        async with house(tmp_path) as home:
            return await home.bare().get("/docs"), await home.bare().post("/docs")

    shown, refused = asyncio.run(scenario())
    assert shown.status_code == 200
    assert shown.headers["content-type"] == "text/html; charset=utf-8"
    assert refused.status_code == 405
    for route in ROUTES:
        assert f"<code>{route.method} {route.path}</code></td><td>{html.escape(route.summary)}" in shown.text
    assert "<script" not in shown.text
    assert re.findall(r'(?:href|src)="([^"]*)"', shown.text) == ["/openapi.json"]
    style = shown.text.partition("<style>")[2].partition("</style>")[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = shown.headers["content-security-policy"]
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{digest}'; ")
    assert "unsafe" not in policy


def test_the_page_for_people_shows_texts_as_texts() -> None:
    """Whatever a summary holds is escaped."""
    odd = {"summary": "<b>&", "responses": {"200": {"description": "<i>"}}}
    document = {"info": {"title": "<t>", "version": "1", "description": "d"}, "paths": {"/{x}<": {"get": odd}}}
    content = reference.page(document).encoded()
    assert isinstance(content, bytes)
    assert b"<b>" not in content
    assert b"<i>" not in content
    assert b"<t>" not in content
    assert b"&lt;b&gt;&amp;" in content


def test_codes_in_the_route_table_exist_and_every_scope_is_asked_for() -> None:
    """No route names a code that the problem table lacks; the list of scopes is the routes' (and adopt's)."""
    for route in ROUTES:
        assert [code for code in (*route.codes, *EVERY_SCOPED, *EVERY_BODY) if code not in PROBLEMS] == []
    assert {route.scope for route in SCOPED} | {"operations:adopt"} == set(SCOPES)


def test_every_code_that_is_raised_is_in_the_table() -> None:
    """A code in the source that the table lacks would be an assertion in production."""
    source = "\n".join(path.read_text() for path in (ROOT / "gateway").glob("*.py"))
    raised = set(re.findall(r'ProblemError\(\s*"(\w+)"', source))
    assert raised <= set(PROBLEMS)


def test_the_documentation_prints_the_tables() -> None:
    """docs/http.md holds the route table and the problem table as the code has them."""
    text = (ROOT / "docs" / "http.md").read_text()
    assert route_table() in text
    assert problem_table() in text
    for scope in SCOPES:
        assert f"`{scope}`" in text
