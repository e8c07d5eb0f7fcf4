"""Backups: the database's copy, the files of results that it knows, and a manifest; made beside its place, then brought there whole."""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from cli.failure import CommandError
from cli.house import House
from ledger.backup import FILES, backup, restore, want_empty
from ledger.engine import open_engines

MANIFEST: Final = "manifest.json"
ARTIFACTS: Final = "artifacts"
FORM: Final = 1
_CHUNK: Final = 1 << 20
Tell = Callable[[int], None]


def make(house: House, folder: Path, tell: Tell) -> dict[str, Any]:
    """Write a backup to `folder`, which must not exist, and return its manifest. A run that was killed leaves `FOLDER.part` only."""
    draft = folder.with_name(folder.name + ".part")
    if folder.exists():
        raise CommandError(f"{folder} exists; name a new folder for each backup")
    shutil.rmtree(draft, ignore_errors=True)
    try:
        draft.mkdir(mode=0o700, parents=True)
        manifest = _fill(house, draft, tell)
        draft.rename(folder)
    except OSError as error:
        shutil.rmtree(draft, ignore_errors=True)
        cure = "make room or give access there, or name another folder"
        raise CommandError(f"the backup {folder} cannot be written: {error.strerror}; {cure}") from error
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)  # half a copy would fill the disk that may be full already
        raise
    return manifest


def _fill(house: House, draft: Path, tell: Tell) -> dict[str, Any]:
    engines = house.ledger.engines
    at = house.world.now()
    revision = backup(engines, draft, tell)
    (draft / ARTIFACTS).mkdir(mode=0o700)
    missing, copied = [], 0
    for artifact, digest in _listed(draft):
        found = _copied(Path(house.settings.artifact_dir) / artifact, draft / ARTIFACTS / artifact)
        copied += found is not None
        if found != digest:
            missing.append(artifact)
    manifest: dict[str, Any] = {
        "form": FORM,
        "at": at,
        "database": "postgresql" if engines.postgres else "sqlite",
        "schema": revision,
        "key": house.ledger.vault.key_id,
        "artifacts": copied,
        "missing": missing,
        "files": {str(path.relative_to(draft)): _digest(path) for path in sorted(draft.rglob("*")) if _ours(draft, path)},
    }
    (draft / MANIFEST).write_text(json.dumps(manifest, indent=2), encoding="utf-8")
    return manifest


def bring_back(database_url: str, artifact_dir: str, folder: Path, tell: Tell) -> dict[str, Any]:
    """Verify a backup and bring it into an empty database and the artifact folder. Returns its manifest."""
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_bytes())
    except (OSError, ValueError):
        raise CommandError(f"{folder} is not a whole backup: it has no manifest that can be read") from None
    if manifest.get("form") != FORM:
        raise CommandError(f"{folder} is a backup of another form; install the version that made it")
    broken = [name for name, digest in manifest["files"].items() if not (folder / name).is_file() or _digest(folder / name) != digest]
    if broken:
        raise CommandError(f"{folder} is damaged: {', '.join(broken[:5])}")
    kind = "sqlite" if database_url.startswith("sqlite") else "postgresql"
    if kind != manifest["database"]:
        raise CommandError(f"this is a backup of {manifest['database']}; it cannot be brought into {kind}")
    engines = open_engines(database_url)
    try:
        want_empty(engines)
        _results_back(folder, Path(artifact_dir), manifest["missing"])  # before the record: a run that was killed may be run again
        restore(engines, folder, manifest["schema"], tell)
    finally:
        engines.close()
    return manifest


def _results_back(folder: Path, place: Path, missing: list[str]) -> None:
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    for artifact, digest in _listed(folder):
        if artifact not in missing and _copied(folder / ARTIFACTS / artifact, place / artifact) != digest:
            raise CommandError(f"{folder} is damaged: {ARTIFACTS}/{artifact}")


def _ours(draft: Path, path: Path) -> bool:
    """Return whether the manifest carries a file's digest: the list of artifacts has those of the artifacts."""
    return path.is_file() and path.parent != draft / ARTIFACTS


def _listed(folder: Path) -> Iterator[tuple[str, str]]:
    with (folder / FILES).open(encoding="ascii") as lines:
        for line in lines:
            artifact, _, digest = line.strip().partition(" ")
            yield artifact, digest


def _copied(source: Path, target: Path) -> str | None:
    """Copy a file and return its SHA-256; None where there is none (retention took it meanwhile)."""
    digest = hashlib.sha256()
    try:
        with source.open("rb") as read:
            target.touch(mode=0o600)
            with target.open("wb") as written:
                while data := read.read(_CHUNK):
                    digest.update(data)
                    written.write(data)
    except FileNotFoundError:
        return None
    return digest.hexdigest()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
