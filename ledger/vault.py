"""Sealing of what is stored, and the resolution of secrets' references. The only code that sees the master key.

A sealed value is `version (1 byte) · nonce (12) · AES-256-GCM ciphertext and tag`. Each table has its own key
(HKDF-SHA256 of the master key; a key per row would cost 5 µs more), and the place of the value (table, column, row) is
authenticated with it, so that a value moved elsewhere does not open. Random 96-bit nonces are safe for 2^32 values a
key (NIST SP 800-38D, 8.3), which is far more than a table receives between two rotations.
"""

import contextlib
import os
import secrets
import stat
from functools import lru_cache
from pathlib import Path
from typing import Final

import sqlalchemy as sa
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from ledger.errors import ConfigurationError, SecretMissingError, VaultError, WrongKeyError
from ledger.tables import canaries

KEY_BYTES: Final = 32
MAX_SECRET_BYTES: Final = 65_536  # a certificate chain or a key set fits; a wrongly named device or log does not
_VERSION: Final = b"\x01"
_NONCE_BYTES: Final = 12
_NONCES_AT_ONCE: Final = 256
_HEAD_BYTES: Final = 1 + _NONCE_BYTES
_TAG_BYTES: Final = 16
_CANARY: Final = "master"


@lru_cache(maxsize=256)
def _place(table: str, column: str) -> bytes:
    # Table and column names are ours and few, so this part of the additional data is made once.
    return b"".join(len(part).to_bytes(4, "big") + part for part in (table.encode(), column.encode()))


class Vault:
    """Seals and unseals with keys derived from one 32-byte master key. Safe to share between threads."""

    __slots__ = ("_ciphers", "_master", "_nonces")

    def __init__(self, master: bytes) -> None:
        if len(master) != KEY_BYTES:
            raise ConfigurationError(f"the master key must be {KEY_BYTES} bytes long, and it is {len(master)}")
        self._master = master
        self._ciphers: dict[str, AESGCM] = {}
        # Nonces are taken from the system many at a time (see cli/world.py); a forked child must not use them again.
        self._nonces: list[bytes] = []
        os.register_at_fork(after_in_child=self._nonces.clear)

    def __repr__(self) -> str:
        return "Vault(…)"

    def seal(self, table: str, column: str, row: str, plain: bytes) -> bytes:
        """Return the sealed form of `plain` for this place. `row` is the row's id, or its key's parts joined by `:`."""
        nonce = self._nonce()
        return _VERSION + nonce + self._cipher(table).encrypt(nonce, plain, _aad(table, column, row))

    def unseal(self, table: str, column: str, row: str, sealed: bytes) -> bytes:
        """Return what was sealed for exactly this place. Raises VaultError for anything else."""
        if len(sealed) < _HEAD_BYTES + _TAG_BYTES or sealed[:1] != _VERSION:
            raise VaultError(f"{table}.{column} of {row} is not a sealed value")
        try:
            return self._cipher(table).decrypt(sealed[1:_HEAD_BYTES], sealed[_HEAD_BYTES:], _aad(table, column, row))
        except InvalidTag:
            raise VaultError(f"{table}.{column} of {row} does not open: altered, moved, or sealed with another key") from None

    def prove(self, connection: sa.Connection) -> None:
        """Check the sealed canary row of this database, or write it if there is none. Raises WrongKeyError.

        Needs an open write transaction. Of two processes that start at once on an empty database one writes it.
        """
        query = sa.select(canaries.c.sealed).where(canaries.c.id == _CANARY)
        stored = connection.execute(query).scalar_one_or_none()
        if stored is None:
            sealed = self.seal("canaries", "sealed", _CANARY, b"canary")
            insert = sa.text("INSERT INTO canaries (id, sealed) VALUES (:id, :sealed) ON CONFLICT DO NOTHING")
            connection.execute(insert, {"id": _CANARY, "sealed": sealed})
            stored = connection.execute(query).scalar_one()
        try:
            self.unseal("canaries", "sealed", _CANARY, stored)
        except VaultError:
            raise WrongKeyError(
                "the master key is not the one that this database was sealed with;"
                " point key_file at the original key, or database_url at another database"
            ) from None

    def _nonce(self) -> bytes:
        try:
            return self._nonces.pop()
        except IndexError:
            fresh = os.urandom(_NONCE_BYTES * _NONCES_AT_ONCE)
            self._nonces.extend(fresh[start : start + _NONCE_BYTES] for start in range(_NONCE_BYTES, len(fresh), _NONCE_BYTES))
            return fresh[:_NONCE_BYTES]

    def _cipher(self, table: str) -> AESGCM:
        cipher = self._ciphers.get(table)
        if cipher is None:
            info = b"reconciliation-gateway/1/table/" + table.encode()
            key = HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=info).derive(self._master)
            cipher = self._ciphers[table] = AESGCM(key)
        return cipher


def _aad(table: str, column: str, row: str) -> bytes:
    name = row.encode()
    return _place(table, column) + len(name).to_bytes(4, "big") + name


def load_or_create_key(path: str | Path) -> bytes:
    """Return the master key in `path` (64 hex digits), making a new one (0600) where there is no file.

    Of several processes that start at once exactly one makes it. Raises ConfigurationError when the file may be read by
    others or is not a key.
    """
    place = Path(path)
    if not place.exists():
        _create_key(place)
    try:
        with place.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            content = file.read(1024).strip()
    except OSError as error:
        raise ConfigurationError(f"the key file {place} cannot be read: {error.strerror}") from None
    if mode & 0o077:
        raise ConfigurationError(f"the key file {place} may be used by others (mode {mode:04o}); run: chmod 600 {place}")
    try:
        key = bytes.fromhex(content.decode("ascii"))
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise ConfigurationError(
            f"the key file {place} does not hold a key of {2 * KEY_BYTES} hex digits; restore it from your backup"
            " (a new one is made where there is no file, and opens nothing that was sealed before)"
        )
    return key


def _create_key(place: Path) -> None:
    # Written whole beside the place and then linked to it: nobody ever reads half a key, and link() never overwrites.
    draft = place.with_name(f".{place.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(secrets.token_hex(KEY_BYTES).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
            with contextlib.suppress(FileExistsError):
                os.link(draft, place)
        finally:
            draft.unlink()
        folder = os.open(place.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # the name must survive a power loss before anything is sealed with the key
        finally:
            os.close(folder)
    except OSError as error:
        raise ConfigurationError(f"the key file {place} cannot be made: {error.strerror}") from None


def resolve(reference: str) -> bytes:
    """Return the secret behind `env:NAME` or `file:PATH`, without surrounding white space.

    Raises SecretMissingError where there is none (or only white space) and for other forms. No message repeats a value,
    nor a reference of unknown form: it may be a secret that was pasted where its reference belongs.
    """
    scheme, _, name = reference.partition(":")
    if scheme == "vault" and name:
        raise SecretMissingError(f"{reference}: the encrypted store is not asked here; use env:NAME or file:PATH")
    if scheme not in {"env", "file"} or not name:
        raise SecretMissingError("a secret is given as env:NAME or file:PATH, never as itself")
    value = _environment(name) if scheme == "env" else _file(name)
    if not value:
        raise SecretMissingError(f"{reference} is empty; put the secret there")
    return value


def _environment(name: str) -> bytes:
    value = os.environ.get(name)
    if value is None:
        raise SecretMissingError(f"env:{name} is not set; export {name} in the environment of this process")
    return value.encode("utf-8", "surrogateescape").strip()


def _file(name: str) -> bytes:
    try:
        with Path(name).open("rb") as file:
            value = file.read(MAX_SECRET_BYTES + 1)
    except OSError as error:
        raise SecretMissingError(f"file:{name} cannot be read ({error.strerror}); create it, readable by this process") from None
    except ValueError:
        raise SecretMissingError("a file: reference with a NUL in its name") from None
    if len(value) > MAX_SECRET_BYTES:
        raise SecretMissingError(f"file:{name} is larger than {MAX_SECRET_BYTES} bytes and surely not a secret")
    return value.strip()
