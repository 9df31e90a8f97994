"""One broker of the simulated cluster: its disk survives it, its host is new with every start."""

import asyncio
import os
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from barnabas.broker.app import Broker
from barnabas.broker.cluster.cache import MetadataCache
from barnabas.broker.cluster.registration import BrokerIdInUse
from barnabas.broker.loop.offload import InlineOffload
from barnabas.broker.platform import Platform
from barnabas.broker.store.metadata_store import StoreError
from barnabas.config.broker import BrokerConfig
from barnabas.storage.cleaning.cleaner_worker import InlineCleaner
from tests.simulation.cluster.hosts import Host, HostedLoop, HostNetwork
from tests.support.mem_files import Fault, MemFiles

if TYPE_CHECKING:
    from collections.abc import Mapping

BIRTHDAY_MS = 1_700_000_000_000
STORE_PATH = "/store"
_STOP_WITHIN = 40.0


class HostClock:
    """Virtual time; the wall clock may be wrong by `skew` seconds."""

    def __init__(self, loop: HostedLoop) -> None:
        self._loop = loop
        self.skew = 0.0

    def now_ms(self) -> int:
        return BIRTHDAY_MS + int((self._loop.time() + self.skew) * 1000)

    def monotonic(self) -> float:
        return self._loop.time()


@dataclass(slots=True)
class DirectoryFault(Fault):
    """A fault of one of several disks."""

    directory: str = "/"

    def strikes(self, call: str, path: str) -> bool:
        # The class is rebuilt because of its slots, and `super()` would refer to the old one.
        return path.startswith(self.directory) and Fault.strikes(self, call, path)


class Node:
    """A broker by its id."""

    def __init__(
        self, loop: HostedLoop, broker_id: int, seed: int, keys: "Mapping[str, str]"
    ) -> None:
        self.id = broker_id
        self.name = f"n{broker_id}"
        self.address = f"{self.name}:{self._port(0)}"
        self.files = MemFiles()
        self.clock = HostClock(loop)
        self.boots = 0
        self.host: Host | None = None
        self.broker: Broker | None = None
        self.hosts: list[Host] = []
        self._loop = loop
        self._random = Random(seed)
        self._keys = {"log.dirs": "/data", **keys}
        self._life: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()

    def _port(self, listener: int) -> int:
        return 9000 + 100 * self.id + listener

    @property
    def log_dirs(self) -> list[str]:
        return self._keys["log.dirs"].split(",")

    @property
    def ended(self) -> bool:
        """Return whether the broker has ended by itself."""
        return self._life is not None and self._life.done()

    @property
    def running(self) -> bool:
        """Return whether the process exists, paused or not."""
        return self.host is not None and self.host.alive

    @property
    def ready(self) -> bool:
        """Return whether the broker is registered and serves."""
        return self.running and self.broker is not None and not self.broker.not_ready()

    @property
    def cache(self) -> MetadataCache:
        """Return the metadata that the broker sends to its clients."""
        assert self.broker is not None
        return self.broker._core.cache

    @property
    def controls(self) -> bool:
        return self.broker is not None and self.broker._control.controller.active

    @property
    def paused(self) -> bool:
        return self.host is not None and self.host.paused

    def start(self) -> None:
        assert not self.running
        self.broker = None
        self.files.faults.clear()
        host = self.host = Host(self._loop, self.name)
        self.hosts.append(host)
        self._stop = asyncio.Event()
        self._life = host.spawn(self._live(host, self._stop))
        self._loop.note(f"{self.name} starts")

    async def _live(self, host: Host, stop: asyncio.Event) -> None:
        broker = await self._begin(host)
        waits = [asyncio.ensure_future(event.wait()) for event in (stop, broker.failed)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        await broker.stop()
        if broker.failed.is_set() and not self.files.faults:
            raise AssertionError(f"{self.name} has failed")

    async def _begin(self, host: Host) -> Broker:
        """Start the broker; one that cannot start while its store is away is restarted by its
        supervisor."""
        while True:
            broker = self.broker = Broker(self._config(), platform=self._platform(host))
            try:
                await broker.start()
                return broker
            except (StoreError, BrokerIdInUse) as error:
                self._loop.note(f"{self.name} cannot start: {error!r}")
                self.files.kill()
                await asyncio.sleep(1.0)

    async def stop(self) -> None:
        """Send SIGTERM; a process that does not end is killed, as its supervisor would do."""
        assert self.host is not None
        assert self._life is not None
        self._loop.note(f"{self.name} stops")
        self._stop.set()
        done, _ = await asyncio.wait([self._life], timeout=_STOP_WITHIN)
        if done:
            self._life.result()
            self.files.kill()
        else:
            self.kill()
        self.host.alive = False

    def kill(self) -> None:
        """Send SIGKILL: the page cache survives."""
        assert self.host is not None
        self._loop.note(f"{self.name} is killed")
        self.host.kill()
        self.files.kill()

    def lose_power(self) -> None:
        """Kill the broker; its disk may lose data that was not synced."""
        assert self.host is not None
        self._loop.note(f"{self.name} loses power")
        self.host.kill(silently=True)
        self.files.crash(self._random.getrandbits(32))
        self.boots += 1

    def fail_disk(self, fault: Fault) -> None:
        """Let the disk fail until the next start; a broker with a single directory ends by
        itself."""
        self._loop.note(f"{self.name}: {fault}")
        self.files.faults.append(fault)

    def lose_directory(self, path: str) -> None:
        """Replace the failed disk of the machine with an empty one."""
        self.lose_power()
        self.files.faults.clear()
        self.files.remove_tree(path)
        self.files.sync_dir(os.path.dirname(path))

    def lose_disk(self) -> None:
        """Replace the disk of the machine with an empty one."""
        assert self.host is not None
        self._loop.note(f"{self.name} loses its disk")
        self.host.kill(silently=True)
        self.files = MemFiles()
        self.boots += 1

    def failure(self) -> BaseException | None:
        """Return the error of a broker that ended by itself."""
        life = self._life
        if life is None or not life.done() or life.cancelled():
            return None
        return life.exception()

    def _config(self) -> BrokerConfig:
        between = f"BETWEEN://{self.name}:{self._port(1)}"
        properties = {
            "broker.id": str(self.id),
            "listeners": f"PLAINTEXT://{self.address},{between}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BETWEEN:PLAINTEXT",
            "inter.broker.listener.name": "BETWEEN",
            "metadata.socket": STORE_PATH,
            **self._keys,
        }
        return BrokerConfig.from_properties(properties)

    def _platform(self, host: Host) -> Platform:
        return Platform(
            files=self.files,
            clock=self.clock,
            random=Random(self._random.getrandbits(64)),
            network=HostNetwork(self._loop, host),
            offload=InlineOffload(),
            cleaner=InlineCleaner(self.files),
            hostname=self.name,
            boot_id=f"boot-{self.boots}",
            working_directory="/",
        )
