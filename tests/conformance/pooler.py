"""A pooler before PostgreSQL that lends a server connection for one transaction only, as pgbouncer's transaction mode does.

It lends them in turn, so that every transaction of a client meets another server connection than the one before it. Protocol:
PostgreSQL's manual, "Frontend/Backend Protocol", version 3.0. `lose_commit` makes it commit and cut the client's line instead of
handing the answer on: nobody knows then what became of the transaction.
"""

import contextlib
import queue
import socket
import struct
import threading
from types import TracebackType
from typing import Final, Self

_SSL, _GSS, _CANCEL, _VERSION_3 = 80877103, 80877104, 80877102, 196608
SERVERS: Final = 3  # connections for each database: more than one, so that no client gets the same twice in a row


class Pooler:
    """Listens on a port of its own. `strict` refuses startup options, as pgbouncer does unless it is told to ignore them."""

    def __init__(self, server: str, *, strict: bool = True) -> None:
        self._server = server  # path of the server's socket
        self._strict = strict
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._idle: dict[str, queue.Queue[socket.socket]] = {}
        self._lock = threading.Lock()
        self._hello = b""  # what the server says of itself at the start
        self._open: set[socket.socket] = set()
        self.lose_commit = threading.Event()
        self.transactions = 0

    def url(self, database: str) -> str:
        """Return the address of a database behind it."""
        return f"postgresql://postgres@127.0.0.1:{self._listener.getsockname()[1]}/{database}"

    def __enter__(self) -> Self:
        """Listen."""
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        """Cut everything."""
        for each in (self._listener, *list(self._open)):
            _cut(each)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._open.add(client)
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            database = self._greet(client)
            while database and self._transaction(client, self._idle[database]):
                pass
        _cut(client)

    def _greet(self, client: socket.socket) -> str:
        """Do the startup; return the database, or the empty text when there is nothing to serve."""
        while True:
            (length,) = struct.unpack("!i", _exactly(client, 4))
            asked = _exactly(client, length - 4)
            (code,) = struct.unpack("!i", asked[:4])
            if code in {_SSL, _GSS}:
                client.sendall(b"N")
                continue
            if code == _CANCEL:
                return ""
            words = asked[4:].split(b"\0")
            given = dict(zip(words[::2], words[1::2], strict=False))
            if self._strict and b"options" in given:
                client.sendall(_message(b"E", b"SFATAL\0C08P01\0Munsupported startup parameter in options: statement_timeout\0\0"))
                return ""
            database = given[b"database"].decode()
            with self._lock:
                if database not in self._idle:
                    self._idle[database] = queue.Queue()
                    for _ in range(SERVERS):
                        self._idle[database].put(self._dial(database))
            client.sendall(self._hello)
            return database

    def _dial(self, database: str) -> socket.socket:
        server = socket.socket(socket.AF_UNIX)
        server.connect(self._server)
        start = struct.pack("!i", _VERSION_3) + b"user\0postgres\0database\0" + database.encode() + b"\0client_encoding\0UTF8\0\0"
        server.sendall(struct.pack("!i", len(start) + 4) + start)
        said, kind = b"", b""
        while kind != b"Z":
            kind, payload = _read(server)
            assert kind != b"E", payload
            said += _message(kind, payload)
        self._hello = said
        self._open.add(server)
        return server

    def _transaction(self, client: socket.socket, idle: "queue.Queue[socket.socket]") -> bool:
        """Relay until the server is idle again; False when the client is gone. One in mid-transaction takes its server with it."""
        kind, payload = _read(client)
        if kind == b"X":
            return False
        server = idle.get(timeout=60)
        try:
            while True:
                server.sendall(_message(kind, payload))
                if kind in {b"Q", b"S"}:
                    lose = self.lose_commit.is_set() and payload.startswith(b"COMMIT")
                    status = self._answer(server, None if lose else client)
                    if status == b"I":
                        self.transactions += 1
                        idle.put(server)
                        if lose:
                            self.lose_commit.clear()
                        return not lose
                kind, payload = _read(client)
        except OSError:
            _cut(server)  # the server rolls back
            raise

    def _answer(self, server: socket.socket, client: socket.socket | None) -> bytes:
        while True:
            kind, payload = _read(server)
            if client is not None:
                client.sendall(_message(kind, payload))
            if kind == b"Z":
                return payload


def _exactly(source: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        more = source.recv(count - len(found))
        if not more:
            raise ConnectionResetError
        found += more
    return found


def _read(source: socket.socket) -> tuple[bytes, bytes]:
    kind = _exactly(source, 1)
    (length,) = struct.unpack("!i", _exactly(source, 4))
    return kind, _exactly(source, length - 4)


def _message(kind: bytes, payload: bytes) -> bytes:
    return kind + struct.pack("!i", len(payload) + 4) + payload


def _cut(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
