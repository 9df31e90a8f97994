"""The doors of the house: everything a broker touches that is not itself."""

import os
import random
import socket
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Protocol

from barnabas.broker.clock import Clock, SystemClock
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.metadata.opening import OpenStore, open_metadata
from barnabas.broker.offload import Offload, ThreadOffload
from barnabas.broker.server.dispatch import Route
from barnabas.broker.server.network import Network, TcpNetwork
from barnabas.config.broker import BrokerConfig
from barnabas.storage.cleaner import Worker
from barnabas.storage.cleaner_worker import CleanerProcess
from barnabas.storage.files import Files, OsFiles

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class CleanerDoor(Protocol):
    """Where logs are compacted: another process, which sees the same disk."""

    @property
    def clean(self) -> Worker: ...

    def stop(self) -> None: ...


def unchanged(routes: list[Route], cache: MetadataCache) -> list[Route]:  # noqa: ARG001
    """Requests go straight to their handlers."""
    return routes


@dataclass(frozen=True, slots=True)
class Doors:
    """Disk, time, chance, sockets, threads, the cleaner; a simulation lends its own of each."""

    files: Files
    clock: Clock
    random: Random
    network: Network
    offload: Offload
    cleaner: CleanerDoor
    hostname: str
    """This machine's name, told to clients of a listener that has no host of its own."""
    boot_id: str
    """Changes when the machine has rebooted, and its page cache is gone."""
    working_directory: str
    """Where relative log directories lie."""
    open_store: OpenStore = open_metadata
    transaction_clock: Clock | None = None
    """Time as the timeouts of transactions see it, where a test lets it run ahead."""
    around: Callable[[list[Route], MetadataCache], list[Route]] = unchanged
    """Puts something in front of the handlers: tests hold, delay and refuse requests there."""


def real_doors(config: BrokerConfig) -> Doors:
    """The doors of the machine."""
    return Doors(
        files=OsFiles(),
        clock=SystemClock(),
        random=random.SystemRandom(),
        network=TcpNetwork(
            backlog=config.socket_listen_backlog_size,
            send_buffer=config.socket_send_buffer_bytes,
            receive_buffer=config.socket_receive_buffer_bytes,
        ),
        offload=ThreadOffload(),
        cleaner=CleanerProcess(),
        hostname=socket.gethostname(),
        boot_id=_read_boot_id(),
        working_directory=os.getcwd(),
    )


def _read_boot_id() -> str:
    """The kernel's boot id; where there is none, one that no later start will recognise."""
    if _BOOT_ID.exists():
        return _BOOT_ID.read_text().strip()
    return str(uuid.uuid4())
