"""A load generator: signed Stripe-shaped deliveries over keep-alive connections, as fast as they are answered.

    python bench/load.py --port 8080 --path /webhooks/stripe --seconds 8 --connections 64

One process, uvloop, raw protocol; prints one JSON object: requests per second, latencies in milliseconds, statuses.
A fifth of the requests repeats an event that was answered before, as providers do. Loopback only, bounded by --seconds.
"""

import argparse
import asyncio
import collections
import hmac
import json
import random
import time
from typing import Any, cast

try:
    import uvloop
except ImportError:  # no wheel for this platform
    uvloop = None  # type: ignore[assignment]

SECRET = b"whsec_test_0123456789abcdef0123456789abcdef"
DUPLICATES = 0.2
BODY = (
    '{"id":"%s","object":"event","created":1700000000,"data":{"object":{"id":"%s","object":"payment_intent","status":"succeeded",'
    '"amount":1999,"currency":"eur","description":"' + "0123456789abcdef" * 80 + '"}},"type":"payment_intent.succeeded"}'
)


class Sender(asyncio.Protocol):
    """One connection: send, wait for the whole answer, send the next."""

    def __init__(self, run: "Run") -> None:
        self.run = run
        self.buffer = b""
        self.started = 0.0
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is one by behaviour, not by class
        self.next()

    def next(self) -> None:
        assert self.transport is not None
        if time.perf_counter() >= self.run.end:
            self.transport.close()
            self.run.leave()
            return
        self.started = time.perf_counter()
        self.transport.write(self.run.request())

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head = self.buffer.find(b"\r\n\r\n")
        if head < 0:
            return
        lower = self.buffer[:head].lower()
        at = lower.find(b"content-length:")
        length = int(lower[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
        if len(self.buffer) < head + 4 + length:
            return
        self.run.statuses[self.buffer[9:12].decode()] += 1
        self.run.latencies.append(time.perf_counter() - self.started)
        self.buffer = b""
        self.next()

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            self.run.statuses["lost"] += 1
            self.run.leave()


class Run:
    """The shared state of one run."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.end = time.perf_counter() + options.seconds
        self.statuses: collections.Counter[str] = collections.Counter()
        self.latencies: list[float] = []
        self.number = 0
        self.chance = random.Random(options.seed)
        self.left = options.connections
        self.done = asyncio.Event()
        self.tag = f"{options.seed}_{int(time.time())}"

    def leave(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.done.set()

    def request(self) -> bytes:
        if self.number > 500 and self.chance.random() < DUPLICATES:
            number = self.number - self.chance.randint(100, 450)
        else:
            self.number += 1
            number = self.number
        stamp = int(time.time())
        body = (BODY % (f"evt_{self.tag}_{number}", f"pi_{number % 20_000}")).encode()
        signature = hmac.digest(SECRET, b"%d." % stamp + body, "sha256").hex()
        head = (
            f"POST {self.options.path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Stripe-Signature: t={stamp},v1={signature}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


def quantile(values: list[float], share: float) -> float:
    """Return a quantile in milliseconds."""
    return round(sorted(values)[min(len(values) - 1, int(len(values) * share))] * 1000, 2) if values else 0.0


async def load(options: argparse.Namespace) -> dict[str, Any]:
    run = Run(options)
    loop = asyncio.get_running_loop()
    began = time.perf_counter()
    for _ in range(options.connections):
        await loop.create_connection(lambda: Sender(run), "127.0.0.1", options.port)
    await asyncio.wait_for(run.done.wait(), options.seconds + 30)
    took = time.perf_counter() - began
    return {
        "per_second": round(len(run.latencies) / took),
        "p50_ms": quantile(run.latencies, 0.5),
        "p99_ms": quantile(run.latencies, 0.99),
        "statuses": dict(run.statuses),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--path", default="/webhooks/stripe")
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop if uvloop is not None else None) as runner:
        print(json.dumps(runner.run(load(options))))


if __name__ == "__main__":
    main()
