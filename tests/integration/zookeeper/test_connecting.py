"""Connecting to ZooKeeper."""

import asyncio
from contextlib import suppress

from barnabas.broker.store.zookeeper.settings import Settings
from barnabas.broker.store.zookeeper.store import open_zookeeper
from tests.support.zookeeper import ZooKeeperServer

SESSION = 9.0


async def test_connecting_gives_up_a_silent_server_before_the_session_expires(
    server: ZooKeeperServer, chroot: str
) -> None:
    taken = 0

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal taken
        taken += 1
        with suppress(OSError):
            if taken > 1:
                near, far = await asyncio.open_connection("127.0.0.1", server.port)
                await asyncio.gather(_relay(reader, far), _relay(near, writer))
            else:
                await reader.read()
        writer.close()

    async with await asyncio.start_server(take, "127.0.0.1") as front:
        port = front.sockets[0].getsockname()[1]
        loop = asyncio.get_running_loop()
        began = loop.time()
        store = await open_zookeeper(
            Settings((f"127.0.0.1:{port}",), chroot, SESSION, connection_timeout=30.0)
        )
        assert taken > 1
        assert loop.time() - began < SESSION
        await store.close()


async def _relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
    writer.close()
