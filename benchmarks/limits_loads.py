"""The loads that disturb a broker, each in a process of its own, so that its work does not distort
the latencies that another process measures.

    crowd      COUNT connections that have sent ApiVersions, and are idle
    group      COUNT members of one group over the topic `many`
    slow       COUNT consumers that ask for 50 MB of the topic `large` and read 1 KB a second
    keys       5,000 records a second to COUNT partitions of the topic `keyed`, one after the other
    flushes    one record after the other to partition COUNT of the topic `disks`
    tabs       the first COUNT pages of a console at PORT, live as in a browser
"""

import asyncio
import http
import http.client
import os
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, contextmanager
from functools import cache, partial
from itertools import cycle

import uvloop

from barnabas.client.cluster import Cluster
from barnabas.client.connection import Connection
from barnabas.client.consumer import Consumer
from barnabas.client.group import GroupMember
from barnabas.client.producer import Producer
from barnabas.storage.priority import yield_to_brokers
from benchmarks.child import Child, tell
from benchmarks.raw import connect, fetch_request, keyed_request

KEYED, VALUE = 8, bytes(100)
"""The partitions of the topic `keyed`, and the value of each record."""
ASKED_BYTES = 50 * 1024 * 1024
READ_BYTES, READ_EVERY_S = 1024, 1.0
SETTLED_AFTER_S = 3.0
PACE, PATIENCE_S = 50.0, 300.0
"""The members that come in a second, and the longest wait for an answer: one process has them
all."""
TABS = (
    "/",
    "/brokers",
    "/topics",
    "/topic?name=many-0",
    "/tail?topic=many-0&partition=0",
    "/groups",
    "/group?id=group-0",
    "/transactions",
    "/reassignments",
    "/timeline",
)
"""The pages of the tabs, of which each is another one."""

Ready = Callable[[], None]


async def crowd(port: int, count: int, ready: Ready) -> None:
    async with AsyncExitStack() as exits:
        for _ in range(count):
            connection = await Connection.open("127.0.0.1", port)
            exits.push_async_callback(connection.close)
        ready()
        await asyncio.Event().wait()


async def group(port: int, count: int, ready: Ready) -> None:
    # Members of an earlier run that was killed would delay the rebalance.
    name, joined = f"crowd-{os.getpid()}", 0

    async def member(number: int) -> None:
        nonlocal joined
        await asyncio.sleep(number / PACE)
        async with Cluster(f"127.0.0.1:{port}", timeout=PATIENCE_S) as cluster:
            consumer = Consumer(cluster)
            async with GroupMember(cluster, consumer, name, ["many"]) as each:
                await each.ensure_joined()
                joined += 1
                while True:
                    await each.ensure_joined()
                    await asyncio.sleep(0.5)

    async with asyncio.TaskGroup() as tasks:
        for number in range(count):
            tasks.create_task(member(number))
        while joined < count:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        # The last member to join has made the others join once more.
        await asyncio.sleep(SETTLED_AFTER_S)
        ready()


async def slow(port: int, count: int, ready: Ready) -> None:
    loop, peers = asyncio.get_running_loop(), []
    request = fetch_request("large", offset=0, max_bytes=ASKED_BYTES)
    for _ in range(count):
        peer = socket.socket()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.setblocking(False)
        await loop.sock_connect(peer, ("127.0.0.1", port))
        await loop.sock_sendall(peer, request)
        peers.append(peer)
    ready()
    while True:
        for peer in peers:
            await loop.sock_recv(peer, READ_BYTES)
        await asyncio.sleep(READ_EVERY_S)


async def keys(port: int, count: int, ready: Ready) -> None:
    requests = [keyed_request("keyed", range(100), VALUE, partition=at) for at in range(count)]
    client = connect(port)
    for request in cycle(requests):
        client.exchange(request)
        ready()
        await asyncio.sleep(0.02)


async def flushes(port: int, partition: int, ready: Ready) -> None:
    async with Cluster(f"127.0.0.1:{port}") as cluster, Producer(cluster) as producer:
        while True:
            await (await producer.send("disks", VALUE, partition=partition))
            ready()
            await asyncio.sleep(0.005)


async def tabs(port: int, count: int, ready: Ready) -> None:
    # A browser is on another machine, as a rule.
    yield_to_brokers()
    with ThreadPoolExecutor(count) as pool:
        opened = [LivePage(port, path) for path in TABS[:count]]
        for _ in pool.map(LivePage.show, opened):
            pass
        ready()
        for _ in pool.map(LivePage.follow, opened):
            pass


class LivePage:
    """A live page in a browser: a connection for its ticks, and one for its updates."""

    def __init__(self, port: int, path: str) -> None:
        self._ticks = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._page = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._path = path

    def show(self) -> None:
        """Ask for the page. Raises RuntimeError if it is another one."""
        self._page.request("GET", self._path)
        answer = self._page.getresponse()
        answer.read()
        if answer.status != http.HTTPStatus.OK:
            raise RuntimeError(f"{self._path}: HTTP {answer.status}")

    def follow(self) -> None:
        """Ask for the page at each tick, until the console ends."""
        self._ticks.request("GET", "/live")
        for line in self._ticks.getresponse():
            if line == b"event: tick\n":
                self.show()


LOADS = {each.__name__: each for each in (crowd, group, slow, keys, flushes, tabs)}
READY_WITHIN_S = 60.0


@contextmanager
def load(name: str, port: int, count: int, within_s: float = READY_WITHIN_S) -> Iterator[None]:
    """Apply a load during a block. Raises RuntimeError if it ended before the block did."""
    with Child("limits_loads.apply", name=name, port=port, count=count) as applied:
        applied.hear(within_s)
        yield
        applied.check()


def apply(name: str, port: int, count: int) -> None:
    """Apply a load until the process is killed; say once that it is applied."""
    uvloop.run(LOADS[name](port, count, cache(partial(tell, "ready"))))
