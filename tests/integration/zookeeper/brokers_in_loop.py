"""Three brokers on ZooKeeper in the test's event loop."""

import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from barnabas.broker.app import Broker
from barnabas.config.broker import BrokerConfig
from tests.support.zookeeper import ZooKeeperServer


def properties(server: ZooKeeperServer, chroot: str, broker_id: int, data: Path) -> dict[str, str]:
    return {
        "broker.id": str(broker_id),
        "broker.rack": f"r{broker_id}",
        "zookeeper.connect": server.connect + chroot,
        "listeners": "PLAINTEXT://127.0.0.1:0,BROKERS://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:PLAINTEXT",
        "inter.broker.listener.name": "BROKERS",
        "log.dirs": str(data),
        "zookeeper.session.timeout.ms": "6000",
    }


@contextlib.asynccontextmanager
async def cluster(
    server: ZooKeeperServer, chroot: str, directory: Path, **more: str
) -> AsyncIterator[list[Broker]]:
    """Start three brokers in this process."""
    async with contextlib.AsyncExitStack() as exits:
        brokers = []
        for broker_id in (1, 2, 3):
            given = properties(server, chroot, broker_id, directory / str(broker_id))
            given |= {key.replace("_", "."): value for key, value in more.items()}
            broker = Broker(BrokerConfig.from_properties(given))
            await broker.start()
            exits.push_async_callback(broker.stop)
            brokers.append(broker)
        yield brokers


def servers(brokers: Sequence[Broker]) -> str:
    return ",".join(broker.bootstrap_servers for broker in brokers)
