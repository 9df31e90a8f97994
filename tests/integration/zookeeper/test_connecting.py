"""How a connection to ZooKeeper is come by."""

import asyncio
import socket

from barnabas.broker.metadata.zookeeper.settings import Settings
from barnabas.broker.metadata.zookeeper.store import open_zookeeper
from tests.zookeeper import ZooKeeperServer

SESSION = 6.0
OPENINGS = 6
"""Which server is tried first is drawn: one of these begins with the silent one."""


async def test_a_server_that_takes_a_connection_and_says_nothing_cost_the_whole_session(
    server: ZooKeeperServer, chroot: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        servers = (f"127.0.0.1:{silent.getsockname()[1]}", server.connect)
        settings = Settings(servers, chroot, session_timeout=SESSION, connection_timeout=20.0)

        async def open_one() -> float:
            loop = asyncio.get_running_loop()
            began = loop.time()
            store = await open_zookeeper(settings)
            took = loop.time() - began
            await store.close()
            return took

        assert max(await asyncio.gather(*(open_one() for _ in range(OPENINGS)))) < SESSION
