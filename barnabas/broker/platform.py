"""The platform: the parts of the operating system that a broker uses, replaceable in tests."""

import os
import random
import socket
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Protocol

from barnabas.broker.cluster.cache import MetadataCache
from barnabas.broker.loop.clock import SystemClock
from barnabas.broker.loop.offload import Offload, ThreadOffload
from barnabas.broker.observability.events import EventLog
from barnabas.broker.server.dispatch import Route
from barnabas.broker.server.network import Network, TcpNetwork
from barnabas.broker.store.opening import OpenStore, open_metadata
from barnabas.config.broker import BrokerConfig
from barnabas.coordinator.ports import Clock
from barnabas.storage.cleaning.cleaner import Worker
from barnabas.storage.cleaning.cleaner_worker import CleanerProcess
from barnabas.storage.files.files import SPARE_DESCRIPTORS, Files, OsFiles

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class CleanerBackend(Protocol):
    """The place where logs are compacted: another process with access to the same disk."""

    @property
    def clean(self) -> Worker: ...

    def stop(self) -> None: ...


def nothing_around(cache: MetadataCache) -> Callable[[Route], Route]:  # noqa: ARG001
    """Return the function that leaves a route as it is."""
    return lambda route: route


@dataclass(frozen=True, slots=True)
class Platform:
    """The file system, clock, random numbers, network, threads, and cleaner of a broker.

    A simulation has its own implementation of each.
    """

    files: Files
    clock: Clock
    random: Random
    network: Network
    offload: Offload
    cleaner: CleanerBackend
    hostname: str
    """The name of this machine, advertised by listeners that have no host."""
    boot_id: str
    """An id that changes when the machine reboots, because a reboot loses the page cache."""
    working_directory: str
    """The base of relative log directories."""
    open_store: OpenStore = open_metadata
    transaction_clock: Clock | None = None
    """The clock for transaction timeouts, if a test needs a separate one."""
    around: Callable[[MetadataCache], Callable[[Route], Route]] = nothing_around
    """A wrapper around each request handler: tests use it to hold, delay and refuse requests."""
    events: EventLog | None = None
    """The log of events, if a test adds some of its own."""


def system_platform(config: BrokerConfig) -> Platform:
    """Return the platform of this machine."""
    return Platform(
        files=OsFiles(SPARE_DESCRIPTORS),
        clock=SystemClock(),
        random=random.SystemRandom(),
        network=TcpNetwork(
            backlog=config.socket_listen_backlog_size,
            send_buffer=config.socket_send_buffer_bytes,
            receive_buffer=config.socket_receive_buffer_bytes,
            local=None if (path := config.metadata_socket) is None else os.path.dirname(path),
        ),
        offload=ThreadOffload(),
        cleaner=CleanerProcess(),
        hostname=socket.gethostname(),
        boot_id=_read_boot_id(),
        working_directory=os.getcwd(),
    )


def _read_boot_id() -> str:
    """Return the kernel's boot id; without one, a random id, which differs at each start."""
    if _BOOT_ID.exists():
        return _BOOT_ID.read_text().strip()
    return str(uuid.uuid4())
