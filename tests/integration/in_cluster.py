"""Brokers of a cluster in the test's own loop: a listener for clients, another for brokers, and
metadata that they share in memory."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from barnabas.broker.app import Broker
from barnabas.broker.doors import real_doors
from barnabas.broker.metadata.embedded import EmbeddedStore, open_store
from barnabas.broker.metadata.opening import OpenedStore
from barnabas.broker.offload import Offload, ThreadOffload
from barnabas.client.connection import Connection
from barnabas.config.broker import BrokerConfig
from barnabas.storage.files import Files, OsFiles
from tests.integration.data_path import Client

CLIENTS, BROKERS = "CLIENTS", "BROKERS"


@asynccontextmanager
async def shared_metadata(directory: Path) -> AsyncIterator[EmbeddedStore]:
    """A store that outlives every broker on it."""
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
    """A running broker on the store; `files` are its disk where it is not the machine's."""
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

    doors = replace(real_doors(config), open_store=join)
    broker = Broker(config, doors=doors if files is None else replace(doors, files=files))
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


@asynccontextmanager
async def connected_to(broker: Broker, listener: str) -> AsyncIterator[Client]:
    connection = await Connection.open("127.0.0.1", broker.ports[listener], timeout=5)
    try:
        yield Client(connection)
    finally:
        await connection.close()
