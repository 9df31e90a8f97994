"""Requests of as many elements as a broker accepts, and of more, do not hold its event loop.

`python -m benchmarks.hold` has the figures; the bound here leaves room for a busy machine.
"""

import asyncio
import gc
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.routes import API_TABLE
from barnabas.protocol.codec import encode
from barnabas.protocol.messages.alter_configs import AlterConfigsRequest
from barnabas.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from barnabas.protocol.messages.produce import ProduceRequest
from barnabas.protocol.schema import MAX_REQUEST_ELEMENTS, Api
from tests.support import raw
from tests.support.data_path import running
from tests.support.large_messages import Path as ArrayPath
from tests.support.large_messages import around, arrays, large_message

LONGEST_S = 0.1
"""The bound, in CPU time of the loop's thread. The handlers in one step take 0.1 to 0.9 s."""
ATTEMPTS = 3
"""A step that is too long is so each time; a busy machine is not."""
TOO_MANY = 400_000
PARTS = 6
"""The cases are in several tests, which can run beside each other."""
NUMBER = 1_234_567
"""The number of the first element, found in its bytes and replaced."""
ANSWERED_WITHIN_S = 60


class Probe:
    """The longest CPU time of the loop's thread between two ticks of a timer."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._longest, self._seen = 0.0, time.thread_time()
        self._tick()

    def _see(self) -> None:
        now = time.thread_time()
        self._longest = max(self._longest, now - self._seen)
        self._seen = now

    def _tick(self) -> None:
        self._see()
        self._timer = self._loop.call_later(0.001, self._tick)

    def longest(self) -> float:
        """Return the longest time since the last call."""
        self._see()
        longest, self._longest = self._longest, 0.0
        return longest

    def stop(self) -> None:
        self._timer.cancel()


@contextmanager
def without_collector() -> Iterator[None]:
    """Keep the collector away: it would walk over the objects of the clients too."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


Cases = Iterable[tuple[Api, int, ArrayPath]]


def newest() -> Cases:
    """Yield the first and the innermost array of the newest version of each API."""
    return _cases(-1)


def oldest() -> Cases:
    """Yield the first and the innermost array of the oldest version of each API."""
    return _cases(0)


def _cases(which: int) -> Cases:
    for row in API_TABLE:
        version = row.versions[which]
        paths = list(arrays(row.api.request, version)) if row.clients else []
        for path in dict.fromkeys([*paths[:1], *sorted(paths, key=len)[-1:]]):
            yield row.api, version, path


def small_body(api: Api, version: int, path: ArrayPath, elements: int) -> bytes:
    request: Any = large_message(
        api.request, version, path, elements, distinct=True, first_number=NUMBER
    )
    if isinstance(request, ProduceRequest):
        request.acks = 1
    if isinstance(request, AlterConfigsRequest | IncrementalAlterConfigsRequest):
        for resource in request.resources:
            # To judge the configurations of 100,000 topics takes long.
            resource.resource_type = 0
    return bytes(encode(request, version))


def body(api: Api, version: int, path: ArrayPath, elements: int, *, distinct: bool) -> bytes:
    """Return a request of many elements; to encode it in the usual way takes a second."""
    one, two = small_body(api, version, path, 1), small_body(api, version, path, 2)
    at = next(place for place, (a, b) in enumerate(zip(one, two, strict=False)) if a != b)
    end = at + 1 + len(two) - len(one)
    count = elements - around(path)
    if api.is_flexible(version):
        start, length = at, uvarint(count + 1)
    else:
        start, length = at - 3, count.to_bytes(4)
    element = one[at + 1 : end]
    parts = [element] * count
    if distinct:
        text, number = str(NUMBER).encode(), NUMBER.to_bytes(4)
        parts = [
            element.replace(text, b"%d" % each).replace(number, each.to_bytes(4))
            for each in range(NUMBER, NUMBER + count)
        ]
    return b"".join([one[:start], length, *parts, one[end:]])


def uvarint(number: int) -> bytes:
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*data, number])


def ask(port: int, api: Api, version: int, request: bytes) -> bool:
    """Send a request; return whether it is answered. Otherwise the connection is closed."""
    with raw.Connection("127.0.0.1", port, "hold", ANSWERED_WITHIN_S) as connection:
        try:
            connection.post_bytes(api, version, request)
            connection.take()
        except (raw.Closed, ConnectionError):
            return False
        return True


async def longest_holds(
    directory: Path, cases: Cases, elements: int, *, distinct: bool
) -> dict[str, float]:
    """Send each case to a broker; return the longest time, where it is over the bound."""
    held: dict[str, float] = {}
    async with running(directory) as broker:
        with without_collector():
            probe = Probe()
            for api, version, path in cases:
                request = body(api, version, path, elements, distinct=distinct)
                longest = []
                while len(longest) < ATTEMPTS:
                    probe.longest()
                    await asyncio.to_thread(ask, broker.port, api, version, request)
                    longest.append(probe.longest())
                    if longest[-1] <= LONGEST_S:
                        break
                else:
                    name = f"{api.name} v{version} {'.'.join(each.name for each in path)}"
                    held[name] = min(longest)
            probe.stop()
    return held


@pytest.mark.parametrize("part", range(PARTS))
async def test_most_elements_do_not_hold_the_loop(part: int, tmp_path: Path) -> None:
    cases = islice(newest(), part, None, PARTS)
    assert not await longest_holds(tmp_path, cases, MAX_REQUEST_ELEMENTS, distinct=True)


@pytest.mark.parametrize("part", range(PARTS))
async def test_equal_elements_in_old_versions_do_not_hold_the_loop(
    part: int, tmp_path: Path
) -> None:
    cases = islice(oldest(), part, None, PARTS)
    assert not await longest_holds(tmp_path, cases, MAX_REQUEST_ELEMENTS, distinct=False)


@pytest.mark.parametrize("cases", [newest, oldest])
async def test_too_many_elements_do_not_hold_the_loop(
    cases: Callable[[], Cases], tmp_path: Path
) -> None:
    assert not await longest_holds(tmp_path, cases(), TOO_MANY, distinct=False)
