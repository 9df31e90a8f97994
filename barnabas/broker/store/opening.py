"""The choice of the metadata store of a broker."""

import os
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from barnabas.broker.loop.offload import Offload
from barnabas.broker.store.embedded import open_store
from barnabas.broker.store.metadata_store import (
    EndEarlierSession,
    MetadataStore,
    no_earlier_session,
)
from barnabas.config.broker import BrokerConfig
from barnabas.storage.files.files import Files

METADATA_DIRECTORY = "metadata"
"""Directory of the embedded store in the first log directory; no partition can have this name."""


async def _no_open_nodes() -> list[str]:
    """Return nothing: only brokers reach this store, or its configuration leaves it open."""
    return []


class OpenedStore(NamedTuple):
    """A session with the store, and the function that closes both."""

    session: MetadataStore
    close: Callable[[], Awaitable[None]]
    end_earlier: EndEarlierSession = no_earlier_session
    """Ends a session that an earlier run of this broker has left."""
    open_nodes: Callable[[], Awaitable[list[str]]] = _no_open_nodes
    """Returns the nodes that other hosts may read or change against the configuration."""


OpenStore = Callable[[BrokerConfig, str, Files, Offload], Awaitable[OpenedStore]]
"""Opens the metadata store of a broker, with its first log directory."""


async def open_metadata(
    config: BrokerConfig, directory: str, files: Files, offload: Offload
) -> OpenedStore:
    """Open the configured store, or the embedded one in the first log directory.

    Raises StoreError if it is unavailable, and ConfigError.
    """
    if config.zookeeper_connect:
        return await _open_zookeeper(config, directory, files, offload)
    if config.metadata_socket is not None:
        # Imported here: a single broker starts faster without it.
        from barnabas.broker.store.socket_client import connect_store

        timeout = config.metadata_session_timeout_ms / 1000
        session = await connect_store(config.metadata_socket, timeout)
        return OpenedStore(session, session.close, session.end_earlier)
    store = await open_store(files, os.path.join(directory, METADATA_DIRECTORY), offload)
    return OpenedStore(store.session(), store.close)


async def _open_zookeeper(
    config: BrokerConfig, directory: str, files: Files, offload: Offload
) -> OpenedStore:
    # Imported here: a broker without ZooKeeper starts faster.
    from barnabas.broker.store.zookeeper.earlier_sessions import EarlierSessions
    from barnabas.broker.store.zookeeper.settings import settings_of
    from barnabas.broker.store.zookeeper.store import open_zookeeper

    settings = settings_of(config)
    earlier = EarlierSessions(settings, files, directory, offload)
    await earlier.load()
    store = await open_zookeeper(settings, earlier.keep)
    open_nodes = store.open_nodes if config.zookeeper_set_acl else _no_open_nodes
    return OpenedStore(store, store.close, earlier.end, open_nodes)
