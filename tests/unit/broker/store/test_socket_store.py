"""A store behind a Unix socket passes the tests of all stores, and those of its sessions."""

import asyncio
import errno
import os
import socket
import stat
import struct
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import settings

from barnabas.broker.loop.offload import InlineOffload
from barnabas.broker.store.embedded import EmbeddedStore, open_store
from barnabas.broker.store.metadata_store import (
    MetadataStore,
    SessionExpired,
    StoreError,
    StoreUnavailable,
)
from barnabas.broker.store.socket_client import RemoteStore, connect_store
from barnabas.broker.store.socket_server import StoreServer
from tests.support.mem_files import Fault, MemFiles
from tests.support.store_machine import Harness, StoreMachine

DIRECTORY = "/data/metadata"
LONG = 30.0
"""Seconds: the timeout of a session that no test waits for."""
SHORT = 0.2


class ServedStore:
    """A store on a disk in memory, its server, and its sessions."""

    root = "/machine"

    def __init__(self, directory: Path) -> None:
        self.path = str(directory / "store")
        self.files = MemFiles()
        self.crashes = 0
        self.sessions: list[RemoteStore] = []
        self.store: EmbeddedStore
        self.server: StoreServer

    async def start(self) -> "ServedStore":
        self.store = await open_store(self.files, DIRECTORY, InlineOffload())
        self.server = StoreServer(self.store)
        await self.server.serve(self.path)
        return self

    async def session(self, timeout: float = LONG) -> RemoteStore:
        session = await connect_store(self.path, timeout)
        self.sessions.append(session)
        return session

    async def expire(self, session: MetadataStore) -> None:
        await self.server.expire(session.session_id)

    async def restart(self) -> bool:
        for session in self.sessions:
            await session.close()
        self.sessions.clear()
        await self.server.close()
        self.crashes += 1
        self.files.crash(self.crashes)
        await self.start()
        return True

    async def settle(self) -> None:
        """Wait until earlier messages of the server have arrived: responses come after them."""
        for session in self.sessions:
            with suppress(StoreError):
                await session.exists("/")
        await asyncio.sleep(0)

    async def close(self) -> None:
        for session in self.sessions:
            await session.close()
        await self.server.close()
        await self.store.close()


class RemoteMachine(StoreMachine):
    harness: Any

    async def start(self) -> Harness:
        served = await ServedStore(Path(tempfile.mkdtemp(prefix="barnabas-"))).start()
        await (await served.session()).create(ServedStore.root)
        return served

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "harness"):
            os.rmdir(os.path.dirname(self.harness.path))


TestRemoteStore = RemoteMachine.TestCase
TestRemoteStore.settings = settings(max_examples=15, stateful_step_count=40)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[ServedStore]:
    served = await ServedStore(tmp_path).start()
    yield served
    await served.close()


async def until_gone(served: ServedStore, path: str) -> float:
    """Return the seconds until a node is deleted."""
    loop = asyncio.get_running_loop()
    began, gone = loop.time(), asyncio.Event()
    session = served.store.session()
    watch = session.watch_data(path, lambda _: gone.set())
    async with asyncio.timeout(10):
        while await session.exists(path) is not None:
            await gone.wait()
            gone.clear()
    watch.cancel()
    return loop.time() - began


def cut(session: RemoteStore) -> None:
    """Break the connection, as the death of a process does."""
    assert session._connection is not None
    session._connection.abort()


@pytest.mark.parametrize("platform", ["linux", "darwin"])
async def test_socket_is_for_its_user_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, platform: str
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    if platform != "linux":
        monkeypatch.setattr(os, "fchmod", Mock(side_effect=OSError(errno.EINVAL, "a socket")))
    served = await ServedStore(tmp_path).start()
    assert stat.S_IMODE(os.stat(served.path).st_mode) == 0o600
    await served.close()
    # Other files get the permissions that they got before.
    mask = os.umask(0o022)
    os.umask(mask)
    (tmp_path / "file").touch()
    assert stat.S_IMODE(os.stat(tmp_path / "file").st_mode) == 0o666 & ~mask


@pytest.mark.parametrize("platform", ["linux", "darwin"])
async def test_path_may_be_longer_than_a_socket_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, platform: str
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    directory = tmp_path / ("d" * 120)
    directory.mkdir()
    served = await ServedStore(directory).start()
    assert await (await served.session()).children("/") == []
    await served.close()
    assert list(directory.iterdir()) == []


async def test_socket_of_a_dead_server_is_replaced(tmp_path: Path) -> None:
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(tmp_path / "store"))
    dead.close()
    served = await ServedStore(tmp_path).start()
    assert await (await served.session()).children("/") == []
    await served.close()


async def test_socket_of_a_live_server_and_other_files_are_not_replaced(
    served: ServedStore,
) -> None:
    with pytest.raises(OSError, match="in use"):
        await StoreServer(served.store).serve(served.path)
    other = Path(served.path).with_name("file")
    other.write_text("mine")
    with pytest.raises(FileExistsError, match="file"):
        await StoreServer(served.store).serve(str(other))
    assert other.read_text() == "mine"


async def test_missing_server_is_an_unavailable_store(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable):
        await connect_store(str(tmp_path / "missing"), LONG)


async def test_session_and_watches_survive_a_lost_connection(served: ServedStore) -> None:
    session, other = await served.session(), await served.session()
    await session.create("/e", ephemeral=True)
    told = asyncio.Event()
    session.watch_data("/n", lambda _: told.set())
    before = session.session_id
    cut(session)
    async with asyncio.timeout(10):
        await told.wait()
    assert session.session_id == before
    assert await session.exists("/e") is not None
    told.clear()
    await other.create("/n")
    async with asyncio.timeout(10):
        await told.wait()


async def test_requests_in_flight_fail_with_their_connection(served: ServedStore) -> None:
    session = await served.session()
    asked = asyncio.ensure_future(session.exists("/"))
    await asyncio.sleep(0)
    cut(session)
    with pytest.raises(StoreUnavailable):
        await asked


async def test_session_of_a_dead_process_ends_at_once(served: ServedStore) -> None:
    session = await served.session(LONG)
    await session.create("/e", ephemeral=True)
    assert session._keeper is not None
    session._keeper.cancel()
    cut(session)
    assert await until_gone(served, "/e") < 5


async def test_restarted_client_can_end_its_earlier_session(served: ServedStore) -> None:
    session, again = await served.session(LONG), await served.session(LONG)
    await session.create("/e", ephemeral=True)
    assert not await again.end_earlier(session.session_id)
    assert await again.exists("/e") is not None
    assert session._keeper is not None
    session._keeper.cancel()
    cut(session)
    # The server has seen the end of the connection before it gets the next request.
    while not await again.end_earlier(session.session_id):
        await again.exists("/")
    assert await again.exists("/e") is None


async def test_silent_session_ends_with_its_timeout(served: ServedStore) -> None:
    session, expired = await served.session(SHORT), asyncio.Event()
    session.on_expired(expired.set)
    await session.create("/e", ephemeral=True)
    # A stopped process would neither send nor read.
    assert session._keeper is not None
    session._keeper.cancel()
    assert await until_gone(served, "/e") >= SHORT / 2
    async with asyncio.timeout(10):
        await expired.wait()
    with pytest.raises(SessionExpired):
        await session.exists("/e")
    with pytest.raises(SessionExpired):
        await session.create("/late")


async def test_idle_session_stays_alive(served: ServedStore) -> None:
    session = await served.session(SHORT)
    await session.create("/e", ephemeral=True)
    began = asyncio.get_running_loop().time()
    while asyncio.get_running_loop().time() - began < 4 * SHORT:
        await asyncio.sleep(SHORT / 10)
        assert session.silent_for() < SHORT
    assert await session.exists("/e") is not None


async def test_late_reconnect_finds_the_session_expired(served: ServedStore) -> None:
    session, expired = await served.session(LONG), asyncio.Event()
    session.on_expired(expired.set)
    old = session.session_id
    server, served.server = served.server, StoreServer(served.store)
    await server.close()
    await served.server.serve(served.path)
    async with asyncio.timeout(10):
        await expired.wait()
    await session.renew()
    assert session.session_id != old
    await session.create("/e", ephemeral=True)


async def test_calls_fail_and_silence_grows_without_a_server(served: ServedStore) -> None:
    session = await served.session(LONG)
    await served.server.close()
    with pytest.raises(StoreUnavailable):
        await session.exists("/")
    silent = session.silent_for()
    await asyncio.sleep(0.01)
    assert session.silent_for() > silent


@pytest.mark.parametrize(
    "sent",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", 2) + b"[]",
        struct.pack(">i", 3) + b"\xff{}",
        struct.pack(">i", 2) + b"{}",
        struct.pack(">i", 28) + b'{"id":1,"do":"get","path":1}',
        struct.pack(">i", 33) + b'{"id":1,"do":"multi","ops":[[""]]}'[:33],
    ],
)
async def test_invalid_message_closes_only_its_connection(served: ServedStore, sent: bytes) -> None:
    session = await served.session()
    reader, writer = await asyncio.open_unix_connection(served.path)
    writer.write(sent)
    async with asyncio.timeout(10):
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
    writer.close()
    assert await session.children("/") == []


async def test_failed_store_is_unavailable_to_all(served: ServedStore) -> None:
    session = await served.session()
    served.files.faults.append(Fault("sync"))
    assert not served.server.failed.is_set()
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            await session.create("/never")
    assert served.server.failed.is_set()
    assert await session.children("/") == []


async def test_invalid_path_is_refused(served: ServedStore) -> None:
    session = await served.session()
    with pytest.raises(ValueError, match="not a path"):
        await session.create("relative")


async def test_data_may_be_any_bytes(served: ServedStore) -> None:
    session = await served.session()
    data = bytes(range(256))
    await session.create("/n", data)
    assert (await session.get("/n"))[0] == data


async def test_cancelled_watch_leaves_the_others_of_its_node(served: ServedStore) -> None:
    session, told = await served.session(), list[str]()
    first = session.watch_data("/n", lambda _: told.append("first"))
    session.watch_data("/n", lambda _: told.append("second"))
    first.cancel()
    first.cancel()
    await session.create("/n")
    await served.settle()
    assert told == ["second"]


def test_loop_that_stops_while_a_session_closes_leaves_no_coroutine_behind(tmp_path: Path) -> None:
    """The request of `close` was given to a task of its own, which a stopped loop never began."""
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        served = runner.run(ServedStore(tmp_path).start())
        session = runner.run(served.session())
        closing = loop.create_task(session.close())
        loop.call_soon(loop.stop)
        loop.run_forever()
        tasks = {task.get_coro().__qualname__ for task in asyncio.all_tasks(loop)}
        assert "RemoteStore.close" in tasks
        assert "RemoteStore._ask" not in tasks
        loop.run_until_complete(closing)
        runner.run(served.close())
