"""The artifact room: whole files or none, on real disks."""

import asyncio
import hashlib
import resource
import stat
from pathlib import Path

import pytest

from artifacts.store import MissingArtifactError, Store, StoreError, StoreFullError


def _names(directory: Path) -> list[str]:
    return sorted(item.name for item in directory.iterdir())


ID = "art_0198c0ffee0198c0ffee0198c0ffee01"
FAR_FUTURE = 4_102_444_800_000_000


async def _stored(store: Store, data: bytes, artifact_id: str = ID) -> tuple[int, str]:
    writer = await store.create(artifact_id)
    for start in range(0, len(data), 70_000):
        await writer.write(data[start : start + 70_000])
    await writer.commit()
    return writer.bytes, writer.sha256


def test_committed_file_is_whole_private_and_hashed(tmp_path: Path) -> None:
    """A committed artifact has its bytes, size, SHA-256 and mode 0600 in a directory of mode 0700 (F3)."""
    store = Store(tmp_path / "deep" / "room")
    data = bytes(range(256)) * 12_000  # three flushes and a rest

    size, digest = asyncio.run(_stored(store, data))

    assert (size, digest) == (len(data), hashlib.sha256(data).hexdigest())
    path = tmp_path / "deep" / "room" / ID
    assert path.read_bytes() == data
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert _names(path.parent) == [ID]


def test_nothing_stands_under_the_id_before_commit_or_after_abort(tmp_path: Path) -> None:
    """A cut transfer is never published and leaves nothing (B090)."""

    async def scenario() -> None:
        store = Store(tmp_path)
        writer = await store.create(ID)
        await writer.write(b"x" * 2_000_000)
        with pytest.raises(MissingArtifactError):
            await store.open(ID)
        await writer.abort()
        await writer.abort()
        assert _names(tmp_path) == []

    asyncio.run(scenario())


def test_abort_after_commit_keeps_the_artifact(tmp_path: Path) -> None:
    """A clean-up that comes late does not take a committed artifact away."""

    async def scenario() -> None:
        store = Store(tmp_path)
        writer = await store.create(ID)
        await writer.write(b"kept")
        await writer.commit()
        await writer.abort()
        assert (tmp_path / ID).read_bytes() == b"kept"

    asyncio.run(scenario())


def test_ranges(tmp_path: Path) -> None:
    """A reader gives any range, and nothing past the end."""

    async def scenario() -> None:
        store = Store(tmp_path)
        await _stored(store, b"0123456789")
        reader = await store.open(ID)
        assert reader.bytes == 10
        assert await reader.read(2, 3) == b"234"
        assert await reader.read(8, 100) == b"89"
        assert await reader.read(10, 1) == b""
        reader.close()
        reader.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "bad",
    ["", "..", "art_../../etc/passwd", "/etc/passwd", ID + "\n", ID + ".part", "art_0198C0FFEE", "art_00000000/x", "art_00000000\x00"],
)
def test_ids_cannot_leave_the_directory(tmp_path: Path, bad: str) -> None:
    """Only `art_` and lower-case hex digits name a file; anything else is missing, whatever is asked."""

    async def scenario() -> None:
        store = Store(tmp_path)
        for ask in (store.create, store.open, store.remove):
            with pytest.raises(MissingArtifactError):
                await ask(bad)

    asyncio.run(scenario())


def test_a_link_in_place_of_an_artifact_is_not_followed(tmp_path: Path) -> None:
    """A symbolic link under an artifact's name opens nothing."""
    outside = tmp_path / "outside"
    outside.write_bytes(b"secret")
    store = Store(tmp_path / "room")
    (tmp_path / "room" / ID).symlink_to(outside)
    with pytest.raises(OSError, match=r"."):
        asyncio.run(store.open(ID))


def test_the_same_id_is_written_once(tmp_path: Path) -> None:
    """A second writer of one id is refused, before and after the commit: a stored result is never replaced."""

    async def scenario() -> None:
        store = Store(tmp_path)
        writer = await store.create(ID)
        with pytest.raises(StoreError):
            await store.create(ID)
        await writer.write(b"first")
        await writer.commit()
        with pytest.raises(StoreError):
            await store.create(ID)
        assert (tmp_path / ID).read_bytes() == b"first"

    asyncio.run(scenario())


def test_disk_full_is_said_and_healed(tmp_path: Path) -> None:
    """A write past the limit raises StoreFullError, abort removes the part, and later writes work again (B165)."""

    async def scenario() -> None:
        store = Store(tmp_path)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_500_000, hard))
        try:
            writer = await store.create(ID)
            await writer.write(b"x" * 600_000)
            with pytest.raises(StoreFullError):
                await writer.write(b"x" * 1_200_000)
            await writer.abort()
            assert _names(tmp_path) == []
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        await _stored(store, b"x" * 2_000_000)

    asyncio.run(scenario())


def test_sweep_removes_only_old_parts(tmp_path: Path) -> None:
    """What a crash left is removed by age; stored artifacts and young parts stay."""

    async def scenario() -> None:
        store = Store(tmp_path)
        await _stored(store, b"kept")
        await store.create("art_00000000000000000000000000000002")  # left behind as by a crash
        assert store.sweep(older_than=0) == 0
        assert store.sweep(older_than=FAR_FUTURE) == 1
        assert _names(tmp_path) == [ID]

    asyncio.run(scenario())


def test_a_cancelled_write_finishes_before_the_file_is_closed(tmp_path: Path) -> None:
    """Cancelling a transfer in mid-write leaves no thread that writes to a closed descriptor, and abort leaves no file."""

    async def scenario() -> None:
        store = Store(tmp_path)
        writer = await store.create(ID)
        task = asyncio.create_task(writer.write(b"x" * 8_000_000))
        await asyncio.sleep(0)  # the write is in its thread
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await writer.abort()
        assert _names(tmp_path) == []

    asyncio.run(scenario())


def test_unusable_directory_is_said_at_start(tmp_path: Path) -> None:
    """A path that is a file is refused when the store is made, not at the first result."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError):
        Store(tmp_path / "file")


def test_remove(tmp_path: Path) -> None:
    """Removing answers whether something was there."""

    async def scenario() -> None:
        store = Store(tmp_path)
        await _stored(store, b"x")
        assert await store.remove(ID)
        assert not await store.remove(ID)

    asyncio.run(scenario())
