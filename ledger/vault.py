"""Sealing of what is stored, and the resolution of secrets' references. The only code that sees the master keys.

A sealed value is `version (1 byte) · key id (4) · nonce (12) · AES-256-GCM ciphertext and tag`; of version 1, which is still
opened, without the key id. Each table has its own key (HKDF-SHA256 of the master key; a key per row would cost 5 µs more),
and the place of the value (table, column, row) is authenticated with it, so that a value moved elsewhere does not open.
Random 96-bit nonces are safe for 2^32 values a key (NIST SP 800-38D, 8.3), far more than a table receives between two rotations.

The key file says which keys are known, the database says by its canary which of them seals: every process follows it within
FOLLOW_SECONDS, so that a rotation needs no restart and several hosts switch together.
"""

import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

import sqlalchemy as sa
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from ledger.errors import ConfigurationError, SecretMissingError, VaultError, WrongKeyError
from ledger.tables import canaries, operations

KEY_BYTES: Final = 32
MAX_SECRET_BYTES: Final = 65_536  # a certificate chain or a key set fits; a wrongly named device or log does not
FOLLOW_SECONDS: Final = 2.0  # after which a process looks again which key seals
MAX_KEYS: Final = 16  # of one file: each rotation adds one, and the former ones are to be forgotten
_FIRST_VERSION: Final = b"\x01"
_VERSION: Final = b"\x02"
_ID_BYTES: Final = 4
_NONCE_BYTES: Final = 12
_NONCES_AT_ONCE: Final = 256
_RELOAD_SECONDS: Final = 1.0  # between two looks at the key file for an unknown key
_TAG_BYTES: Final = 16
_CANARY: Final = "master"
_CANARY_ROW: Final = sa.select(canaries.c.sealed).where(canaries.c.id == _CANARY)


@lru_cache(maxsize=256)
def _place(table: str, column: str) -> bytes:
    # Table and column names are ours and few, so this part of the additional data is made once.
    return b"".join(len(part).to_bytes(4, "big") + part for part in (table.encode(), column.encode()))


class _Key:
    """One master key and the keys of tables that come of it."""

    __slots__ = ("_ciphers", "_master", "head", "id")

    def __init__(self, master: bytes) -> None:
        if len(master) != KEY_BYTES:
            raise ConfigurationError(f"the master key must be {KEY_BYTES} bytes long, and it is {len(master)}")
        self._master = master
        self._ciphers: dict[str, AESGCM] = {}
        digest = hashlib.sha256(b"reconciliation-gateway/1/key-id/" + master).digest()[:_ID_BYTES]
        self.id = digest.hex()
        self.head = _VERSION + digest

    def cipher(self, table: str) -> AESGCM:
        """Return the cipher of a table."""
        cipher = self._ciphers.get(table)
        if cipher is None:
            info = b"reconciliation-gateway/1/table/" + table.encode()
            key = HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=info).derive(self._master)
            cipher = self._ciphers[table] = AESGCM(key)
        return cipher


class Vault:
    """Seals and unseals with keys derived from 32-byte master keys, the newest last. Safe to share between threads.

    `reload` reads the key file anew: it is asked when a value names a key that is not at hand.
    """

    __slots__ = ("_current", "_keys", "_nonces", "_reload", "_reloaded_at")

    def __init__(self, *masters: bytes, reload: Callable[[], Sequence[bytes]] | None = None) -> None:
        self._keys = {key.head: key for key in map(_Key, masters)}  # replaced whole
        assert self._keys, "a vault has a key"
        self._current = next(reversed(self._keys.values()))
        self._reload = reload
        self._reloaded_at = float("-inf")
        # Nonces are taken from the system many at a time (see cli/world.py); a forked child must not use them again.
        self._nonces: list[bytes] = []
        os.register_at_fork(after_in_child=self._nonces.clear)

    def __repr__(self) -> str:
        return "Vault(…)"

    @property
    def head(self) -> bytes:
        """Return how every value begins that the current key seals."""
        return self._current.head

    @property
    def key_id(self) -> str:
        """Return the id of the key that seals; it tells nothing of the key."""
        return self._current.id

    def seal(self, table: str, column: str, row: str, plain: bytes) -> bytes:
        """Return the sealed form of `plain` for this place. `row` is the row's id, or its key's parts joined by `:`."""
        nonce, key = self._nonce(), self._current
        return key.head + nonce + key.cipher(table).encrypt(nonce, plain, _aad(table, column, row))

    def unseal(self, table: str, column: str, row: str, sealed: bytes) -> bytes:
        """Return what was sealed for exactly this place. Raises VaultError for anything else."""
        version = sealed[:1]
        start = len(self._current.head) if version == _VERSION else 1
        if version not in {_VERSION, _FIRST_VERSION} or len(sealed) < start + _NONCE_BYTES + _TAG_BYTES:
            raise VaultError(f"{table}.{column} of {row} is not a sealed value")
        keys = list(self._keys.values()) if version == _FIRST_VERSION else [self._key(sealed)]
        aad, body = _aad(table, column, row), start + _NONCE_BYTES
        for key in keys:
            if key is None:
                raise VaultError(f"{table}.{column} of {row} is sealed with the key {sealed[1:start].hex()}, which key_file does not hold")
            with contextlib.suppress(InvalidTag):
                return key.cipher(table).decrypt(sealed[start:body], sealed[body:], aad)
        raise VaultError(f"{table}.{column} of {row} does not open: altered, moved, or sealed with another key")

    def _key(self, sealed: bytes) -> _Key | None:
        head = sealed[: len(self._current.head)]
        key = self._keys.get(head)
        now = time.monotonic()
        if key is None and self._reload is not None and now - self._reloaded_at >= _RELOAD_SECONDS:
            self._reloaded_at = now
            with contextlib.suppress(ConfigurationError):  # what is wrong with the file is told at the next start
                self._keys = {**self._keys, **{fresh.head: fresh for fresh in map(_Key, self._reload())}}
            key = self._keys.get(head)
        return key

    def prove(self, connection: sa.Connection) -> None:
        """Check the sealed canary row of this database, or write it if there is none, and follow it. Raises WrongKeyError.

        Needs an open write transaction. Of two processes that start at once on an empty database one writes it.
        """
        if connection.execute(_CANARY_ROW).scalar_one_or_none() is None:
            self._prove_by_what_is_sealed(connection)
            insert = sa.text("INSERT INTO canaries (id, sealed) VALUES (:id, :sealed) ON CONFLICT DO NOTHING")
            connection.execute(insert, {"id": _CANARY, "sealed": self._canary()})
        self.follow(connection)

    def _prove_by_what_is_sealed(self, connection: sa.Connection) -> None:
        """Open one request, where there is any: somebody may have removed the canary of a database that is in use."""
        c = operations.c
        sealed = connection.execute(sa.select(c.id, c.request).where(c.request.is_not(None)).limit(1)).one_or_none()
        if sealed is None:
            return
        try:
            self.unseal("operations", "request", sealed.id, sealed.request)
        except VaultError as error:
            raise WrongKeyError(
                "the database has lost its canary row, and the master key does not open what is sealed in it;"
                " point key_file at the original key, and restore the database from a backup"
            ) from error

    def follow(self, connection: sa.Connection) -> None:
        """Seal from now on with the key that the database's canary names. Raises WrongKeyError where it is not at hand."""
        stored = connection.execute(_CANARY_ROW).scalar_one_or_none()
        if stored is None or stored.startswith(self._current.head):
            if stored is not None:
                self._prove(stored)
            return
        self._prove(stored)
        if stored[:1] == _VERSION:
            self._current = self._keys[stored[: len(self._current.head)]]
            return
        for key in self._keys.values():  # of version 1: whichever opens it
            with contextlib.suppress(InvalidTag):
                key.cipher("canaries").decrypt(
                    stored[1 : 1 + _NONCE_BYTES], stored[1 + _NONCE_BYTES :], _aad("canaries", "sealed", _CANARY)
                )
                self._current = key

    def _prove(self, stored: bytes) -> None:
        try:
            self.unseal("canaries", "sealed", _CANARY, stored)
        except VaultError:
            named = f" (its id is {stored[1 : 1 + _ID_BYTES].hex()})" if stored[:1] == _VERSION else ""
            raise WrongKeyError(
                f"the master key is not the one that this database was sealed with{named};"
                " point key_file at the original key, or database_url at another database"
            ) from None

    def switch(self, connection: sa.Connection) -> str:
        """Make the newest key the one that seals, for every process that follows. Needs an open write transaction. Returns its id."""
        self._current = next(reversed(self._keys.values()))
        connection.execute(sa.update(canaries).where(canaries.c.id == _CANARY).values(sealed=self._canary()))
        return self._current.id

    def _canary(self) -> bytes:
        return self.seal("canaries", "sealed", _CANARY, b"canary")

    def _nonce(self) -> bytes:
        try:
            return self._nonces.pop()
        except IndexError:
            fresh = os.urandom(_NONCE_BYTES * _NONCES_AT_ONCE)
            self._nonces.extend(fresh[start : start + _NONCE_BYTES] for start in range(_NONCE_BYTES, len(fresh), _NONCE_BYTES))
            return fresh[:_NONCE_BYTES]


def _aad(table: str, column: str, row: str) -> bytes:
    name = row.encode()
    return _place(table, column) + len(name).to_bytes(4, "big") + name


def is_sealed(connection: sa.Connection) -> bool:
    """Return whether this database was sealed with some master key before. Needs an open transaction; the schema may be missing."""
    if not sa.inspect(connection).has_table(canaries.name):
        return False
    return connection.execute(sa.select(canaries.c.id).where(canaries.c.id == _CANARY)).first() is not None


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
