"""Downloading what was stored (MISSION F)."""

import asyncio
import base64
import hashlib
from pathlib import Path

from schemas.evidence import Collected, ResultInvalid, StatusFacts
from schemas.states import Reading
from tests.gateway.asking import FILE, RESULT, adopted, made, settle_read
from tests.gateway.house import house


def test_a_result_is_downloaded_whole_or_in_part(tmp_path: Path) -> None:
    """F: bytes with digest and tag; one range; 304; `HEAD`; nothing that a browser would run."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            op = await adopted(client)
            address = op["links"]["result"]
            early = await client.get(address)
            assert (early.status_code, early.json()["code"], early.json()["operation"]) == (409, "not_ready", op["id"])
            assert early.headers["retry-after"]
            home.files["art_1"] = RESULT
            await settle_read(home, op["id"], StatusFacts(reading=Reading.SUCCEEDED, inline=Collected(files=(FILE,))))
            whole = await client.get(address)
            digest = hashlib.sha256(RESULT).digest()
            assert (whole.status_code, whole.content) == (200, RESULT)
            assert whole.headers["content-length"] == str(len(RESULT))
            assert whole.headers["content-type"] == "text/csv"
            assert whole.headers["repr-digest"] == f"sha-256=:{base64.b64encode(digest).decode()}:"
            assert whole.headers["etag"] == f'"sha256:{digest.hex()}"'
            assert whole.headers["content-disposition"].startswith("attachment")
            assert "sandbox" in whole.headers["content-security-policy"]
            tag = whole.headers["etag"]
            assert (await client.get(address, headers={"If-None-Match": tag})).status_code == 304
            head = await client.head(address)
            assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", str(len(RESULT)))
            for asked, wanted in (
                ("bytes=0-3", RESULT[:4]),
                ("bytes=5-", RESULT[5:]),
                ("bytes=-4", RESULT[-4:]),
                ("bytes=-999", RESULT),
                ("bytes=3-99999", RESULT[3:]),
            ):
                part = await client.get(address, headers={"Range": asked})
                start = len(RESULT) - len(wanted) if asked != "bytes=0-3" else 0
                assert (part.status_code, part.content) == (206, wanted), asked
                assert part.headers["content-range"] == f"bytes {start}-{start + len(wanted) - 1}/{len(RESULT)}"
            for ignored in ("bytes=0-1,3-4", "bytes=x-", "lines=1-2", "bytes=-", "bytes=5-3"):
                assert (await client.get(address, headers={"Range": ignored})).status_code == 200, ignored
            changed = await client.get(address, headers={"Range": "bytes=0-3", "If-Range": '"other"'})
            assert changed.status_code == 200
            for outside in ("bytes=999-", "bytes=-0"):
                beyond = await client.get(address, headers={"Range": outside})
                assert (beyond.status_code, beyond.headers["content-range"]) == (416, f"bytes */{len(RESULT)}")
            del home.files["art_1"]
            gone = await client.get(address)
            assert (gone.status_code, gone.json()["code"]) == (410, "result_expired")

    asyncio.run(scenario())


def test_an_end_without_a_result_says_so(tmp_path: Path) -> None:
    """F: a withdrawn operation has nothing to wait for."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            op = await made(client)
            await client.post(op["links"]["cancel"])
            answer = await client.get(op["links"]["result"])
            assert (answer.status_code, answer.json()["code"], answer.json()["state"]) == (409, "no_result", "withdrawn")
            assert "retry-after" not in answer.headers

    asyncio.run(scenario())


def test_what_failed_validation_is_shown_only_to_whoever_may_decide(tmp_path: Path) -> None:
    """F2: kept for inspection, and no result to a caller who would take it for one."""

    async def scenario() -> None:
        async with house(tmp_path) as home:
            client = await home.client()
            caller = await home.client(scopes=("operations:read", "operations:download"))
            op = await adopted(client)
            home.files["art_1"] = RESULT
            invalid = ResultInvalid(code="media_type", message="not text/csv", files=(FILE,))
            await settle_read(home, op["id"], StatusFacts(reading=Reading.SUCCEEDED, inline=invalid))
            assert (await client.get(op["links"]["self"])).json()["state"] == "result_validation_failed"
            assert (await caller.get(op["links"]["result"])).json()["code"] == "not_ready"
            assert (await client.get(op["links"]["result"])).content == RESULT

    asyncio.run(scenario())
