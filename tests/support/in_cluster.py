"""Brokers of a cluster in the test's own loop, with listeners for clients and for brokers, and with
shared metadata in memory."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from barnabas.broker.app import Broker
from barnabas.broker.loop.offload import Offload, ThreadOffload
from barnabas.broker.platform import system_platform
from barnabas.broker.store.embedded import EmbeddedStore, open_store
from barnabas.broker.store.opening import OpenedStore
from barnabas.client.connection import Connection
from barnabas.config.broker import BrokerConfig
from barnabas.storage.files.files import Files, OsFiles
from tests.support.data_path import Client

CLIENTS, BROKERS = "CLIENTS", "BROKERS"


@asynccontextmanager
async def shared_metadata(directory: Path) -> AsyncIterator[EmbeddedStore]:
    """Run a metadata store that outlives the brokers."""
    offload = ThreadOffload()
    store = await open_store(OsFiles(), str(directory), offload)
    try:
        yield store
    finally:
        await store.close()
        offload.close()


@asynccontextmanager
async def member(
    store: EmbeddedStore,
    directory: Path,
    broker_id: int = 0,
    *,
    files: Files | None = None,
    **keys: object,
) -> AsyncIterator[Broker]:
    """Run a broker on the store; `files` is its disk if not the machine's."""
    properties = {
        "broker.id": str(broker_id),
        "log.dirs": str(directory / str(broker_id)),
        "metadata.socket": "the store is in this process",
        "listeners": f"{CLIENTS}://127.0.0.1:0,{BROKERS}://127.0.0.1:0",
        "listener.security.protocol.map": f"{CLIENTS}:PLAINTEXT,{BROKERS}:PLAINTEXT",
        "inter.broker.listener.name": BROKERS,
        **{key.replace("_", "."): str(value) for key, value in keys.items()},
    }
    config = BrokerConfig.from_properties(properties)

    async def join(_config: BrokerConfig, _path: str, _files: Files, _: Offload) -> OpenedStore:
        session = store.session()
        return OpenedStore(session, session.close)

    platform = replace(system_platform(config), open_store=join)
    broker = Broker(config, platform=platform if files is None else replace(platform, files=files))
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


@asynccontextmanager
async def connected_to(
    broker: Broker, listener: str, client_id: str = "test"
) -> AsyncIterator[Client]:
    connection = await Connection.open(
        "127.0.0.1", broker.ports[listener], client_id=client_id, timeout=5
    )
    try:
        yield Client(connection)
    finally:
        await connection.close()
