"""The page for people at `/docs`: the OpenAPI document as one still page of HTML, without scripts and without anything from elsewhere."""

import base64
import hashlib
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Final

from gateway.call import Answer

_STYLE: Final = (
    "body{font:16px/1.5 sans-serif;margin:2em auto;max-width:60em;padding:0 1em}"
    "td,th{text-align:left;vertical-align:top;padding:.3em .8em .3em 0}"
)
_POLICY: Final = "default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


def page(document: Mapping[str, Any]) -> Answer:
    """Return the answer that shows an OpenAPI `document` (as of `gateway.openapi.document`): each route, its scope, its answers."""
    title = escape(f"{document['info']['title']} {document['info']['version']}")
    rows = "".join(_row(method, path, each) for path, methods in document["paths"].items() for method, each in methods.items())
    content = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style></head><body>'
        f"<h1>{title}</h1><p>{escape(document['info']['description'])}</p>"
        '<p>All of it for programs, every field included: <a href="/openapi.json">/openapi.json</a> (OpenAPI 3.1). '
        "What is under /v1 wants <code>Authorization: Bearer rgk_…</code>.</p>"
        f"<table><thead><tr><th>Route</th><th>Does</th><th>Answers</th></tr></thead><tbody>{rows}</tbody></table></body></html>"
    )
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    headers = (("Content-Security-Policy", _POLICY.format(digest=digest)),)
    return Answer(content=content.encode(), media_type="text/html; charset=utf-8", headers=headers)


def _row(method: str, path: str, operation: Mapping[str, Any]) -> str:
    does = " ".join(filter(None, (operation["summary"], operation.get("description"))))
    return (
        f"<tr><td><code>{method.upper()} {escape(path)}</code></td><td>{escape(does)}</td><td>{'<br>'.join(_answers(operation))}</td></tr>"
    )


def _answers(operation: Mapping[str, Any]) -> Iterator[str]:
    for status, answer in operation["responses"].items():
        said = "" if answer["description"] == operation["summary"] else f" {answer['description']}"
        yield escape(f"{status}{said}")
