"""Where the metadata of a broker is kept: the only place that chooses."""

import os
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from barnabas.broker.metadata.embedded import open_store
from barnabas.broker.metadata.membership import EndEarlier, nobodys
from barnabas.broker.metadata.store import MetadataStore
from barnabas.broker.offload import Offload
from barnabas.config.broker import BrokerConfig
from barnabas.storage.files import Files

METADATA_DIRECTORY = "metadata"
"""Of the embedded store, in the first log directory; no partition can have this name."""


class OpenedStore(NamedTuple):
    """A session with the store, and how to take leave of it."""

    session: MetadataStore
    close: Callable[[], Awaitable[None]]
    end_earlier: EndEarlier = nobodys
    """Ends a session that an earlier run of this broker has left behind."""


OpenStore = Callable[[BrokerConfig, str, Files, Offload], Awaitable[OpenedStore]]
"""Opens the metadata of the broker whose first log directory is named."""


async def open_metadata(
    config: BrokerConfig, directory: str, files: Files, offload: Offload
) -> OpenedStore:
    """The store that the configuration names, or else one in the first log directory.

    Raises StoreError where it cannot be reached, and ConfigError.
    """
    if config.zookeeper_connect:
        return await _open_zookeeper(config, directory, files, offload)
    if config.metadata_socket is not None:
        # A broker that is alone starts without it.
        from barnabas.broker.metadata.remote import connect_store

        timeout = config.metadata_session_timeout_ms / 1000
        session = await connect_store(config.metadata_socket, timeout)
        return OpenedStore(session, session.close, session.end_earlier)
    store = await open_store(files, os.path.join(directory, METADATA_DIRECTORY), offload)
    return OpenedStore(store.session(), store.close)


async def _open_zookeeper(
    config: BrokerConfig, directory: str, files: Files, offload: Offload
) -> OpenedStore:
    # Here and not above: a broker without ZooKeeper starts sooner.
    from barnabas.broker.metadata.zookeeper.earlier import EarlierSessions
    from barnabas.broker.metadata.zookeeper.settings import settings_of
    from barnabas.broker.metadata.zookeeper.store import open_zookeeper

    settings = settings_of(config)
    earlier = EarlierSessions(settings, files, directory, offload)
    await earlier.load()
    store = await open_zookeeper(settings, earlier.keep)
    return OpenedStore(store, store.close, earlier.end)
