"""A caller with a key, over real HTTP: what an agent, a person or a service would send. The one place of the command line with httpx."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, Self

import httpx

View = Mapping[str, Any]
"""A JSON object as it was answered."""

WAIT_SECONDS: Final = 2  # of one long-poll; conditions on what does not change the ETag are looked at that often
_TIMEOUT_SECONDS: Final = 30.0  # of one exchange: on loopback only a hanging process is slower
_PAGE: Final = 500
_NOT_MODIFIED: Final = 304


class UnexpectedAnswerError(Exception):
    """The other side answered otherwise than the script needs to go on."""


class Caller:
    """One key. `told` hears of each call that changes something: (method and path, status)."""

    def __init__(self, base_url: str, key: str, told: Callable[[str, int], None] = lambda _what, _status: None) -> None:
        # Proxies of the environment are not used: everything here is on loopback.
        self._client = httpx.AsyncClient(
            base_url=base_url, headers={"Authorization": f"Bearer {key}"}, timeout=_TIMEOUT_SECONDS, trust_env=False
        )
        self._told = told

    async def __aenter__(self) -> Self:
        """Return self."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def post(self, path: str, body: View, *, key: str | None = None, expect: frozenset[int]) -> tuple[int, View]:
        """Return (status, answer). Raises UnexpectedAnswerError for a status that is not in `expect`."""
        headers = {} if key is None else {"Idempotency-Key": key}
        answer = await self._sent("POST", path, json=body, headers=headers)
        self._told(f"POST {path}", answer.status_code)
        return answer.status_code, _judged(answer, expect)

    async def get(self, path: str) -> View:
        """Return an answer of 200. Raises UnexpectedAnswerError."""
        return _judged(await self._sent("GET", path), frozenset({200}))

    async def operation(self, operation: str) -> View:
        """Return the operation as it is."""
        return await self.get(f"/v1/operations/{operation}")

    async def until(self, operation: str, condition: Callable[[View], bool]) -> View:
        """Return the operation once the condition holds, by long-polls. The caller bounds it by `asyncio.timeout`."""
        while True:
            answer = await self._sent("GET", f"/v1/operations/{operation}")
            view = _judged(answer, frozenset({200}))
            if condition(view):
                return view
            headers = {"Prefer": f"wait={WAIT_SECONDS}", "If-None-Match": answer.headers["etag"]}
            answer = await self._sent("GET", f"/v1/operations/{operation}", headers=headers)
            if answer.status_code != _NOT_MODIFIED and condition(_judged(answer, frozenset({200}))):
                return _judged(answer, frozenset({200}))

    async def history(self, operation: str) -> list[View]:
        """Return the whole history, oldest first."""
        rows: list[View] = []
        cursor = ""
        while True:
            page = await self.get(f"/v1/operations/{operation}/history?limit={_PAGE}{cursor}")
            rows.extend(page["history"])
            if page["next_cursor"] is None:
                return rows
            cursor = f"&cursor={page['next_cursor']}"

    async def result(self, operation: str) -> bytes:
        """Return the stored bytes. Raises UnexpectedAnswerError."""
        answer = await self._sent("GET", f"/v1/operations/{operation}/result")
        if answer.status_code != 200:  # noqa: PLR2004 - HTTP's number
            _judged(answer, frozenset({200}))
        return answer.content

    async def _sent(self, method: str, path: str, **more: Any) -> httpx.Response:
        try:
            return await self._client.request(method, path, **more)
        except httpx.HTTPError as error:
            raise UnexpectedAnswerError(f"{method} {path} got no answer ({type(error).__name__})") from error


def _judged(answer: httpx.Response, expect: frozenset[int]) -> View:
    found: Any = None
    if answer.headers.get("content-type", "").startswith(("application/json", "application/problem+json")):
        found = answer.json()
    if answer.status_code not in expect:
        code = found.get("code", "") if isinstance(found, dict) else ""
        where = f"{answer.request.method} {answer.request.url.path}"
        raise UnexpectedAnswerError(f"{where} answered {answer.status_code} {code}".strip())
    return found if isinstance(found, dict) else {}


async def condition(holds: Callable[[], bool]) -> None:
    """Return once something in this process holds that nobody signals. The caller bounds it by `asyncio.timeout`."""
    while not holds():  # noqa: ASYNC110 - the simulator's journal has no event: it stands for a party outside this process
        await asyncio.sleep(0.02)
