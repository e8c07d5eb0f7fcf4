"""A line between the house and a provider: a relay that can keep connections waiting, and that can be slow."""

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

_CHUNK = 16_384
_LONG_ANSWER = 65_536  # only what a connection brings beyond this is slowed: results, not status answers


class Line:
    """Relays to `target`. `closed`: newcomers hang in the middle of their connect until `open`.

    `rate` bytes a second bound what a connection brings that begins from now on; None: no bound. Answers wait while `passing`
    is cleared; `held` says that one does.
    """

    def __init__(self, target: str, *, closed: bool = False, rate: float | None = None) -> None:
        self._target = ("127.0.0.1", int(urlsplit(target).port or 0))
        self.rate = rate
        self.passing = threading.Event()
        self.passing.set()
        self.held = threading.Event()
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        # The kernel answers as many newcomers as the backlog holds; with one waiting and a backlog of 0 it answers nobody.
        self._listener.listen(0 if closed else 64)
        self._closed = closed
        self._fillers: list[socket.socket] = []
        self._stop = threading.Event()
        self._sockets: set[socket.socket] = set()

    @property
    def base_url(self) -> str:
        """Return its origin."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        """Listen."""
        if self._closed:
            while self._fill():
                pass
        else:
            threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        """Cut everything."""
        self._stop.set()
        self.passing.set()
        for each in (self._listener, *self._fillers, *list(self._sockets)):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def open(self) -> None:
        """Let the newcomers in, those too that have been waiting."""
        for filler in self._fillers:
            filler.close()
        self._listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def _fill(self) -> bool:
        """Take one place in the backlog; False when there was none left."""
        filler = socket.socket()
        filler.settimeout(0.3)
        self._fillers.append(filler)
        try:
            filler.connect(self._listener.getsockname())
        except TimeoutError:
            return False
        return len(self._fillers) < 16

    def _accept(self) -> None:
        while not self._stop.is_set():
            try:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._target)
            except OSError:
                return
            self._sockets |= {near, far}
            threading.Thread(target=self._ask, args=(near, far), daemon=True).start()
            threading.Thread(target=self._answer, args=(far, near, self.rate), daemon=True).start()

    def _ask(self, near: socket.socket, far: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := near.recv(_CHUNK):
                far.sendall(data)
        _end(near, far)

    def _answer(self, far: socket.socket, near: socket.socket, rate: float | None) -> None:
        brought = 0
        with contextlib.suppress(OSError):
            while data := far.recv(_CHUNK):
                if not self.passing.is_set():
                    self.held.set()
                    self.passing.wait()
                near.sendall(data)
                brought += len(data)
                if rate is not None and brought > _LONG_ANSWER:
                    self._stop.wait(len(data) / rate)
        _end(near, far)


def _end(*sockets: socket.socket) -> None:
    for each in sockets:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
