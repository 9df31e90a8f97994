"""Where the metadata of a broker is kept: the only place that chooses."""

import os
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from barnabas.broker.metadata.embedded import open_store
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


OpenStore = Callable[[BrokerConfig, str, Files, Offload], Awaitable[OpenedStore]]
"""Opens the metadata of the broker whose first log directory is named."""


async def open_metadata(
    config: BrokerConfig, directory: str, files: Files, offload: Offload
) -> OpenedStore:
    """The store that the configuration names, or else one in the first log directory."""
    if config.metadata_socket is not None:
        # A broker that is alone starts without it.
        from barnabas.broker.metadata.remote import connect_store

        timeout = config.metadata_session_timeout_ms / 1000
        session = await connect_store(config.metadata_socket, timeout)
        return OpenedStore(session, session.close)
    store = await open_store(files, os.path.join(directory, METADATA_DIRECTORY), offload)
    return OpenedStore(store.session(), store.close)
