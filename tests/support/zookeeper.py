"""A real ZooKeeper server, started by the tests.

Its jars come with Debian's packages `zookeeper` and `libzookeeper-java`; `tests/run` installs them.
One server serves a whole process of the test run; each test has a chroot of its own.
"""

import atexit
import contextlib
import functools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from kazoo.client import KazooClient

from tests.support.ports import free_port

JARS = Path("/usr/share/java")
_CLASS_PATH = tuple(
    f"{name}.jar"
    for name in (
        *("zookeeper", "zookeeper-jute", "slf4j-api", "slf4j-simple", "snappy-java"),
        *("metrics-core", "netty-handler", "netty-transport", "netty-buffer", "netty-common"),
        *("netty-codec", "netty-resolver", "netty-transport-native-unix-common"),
        *("netty-transport-native-epoll", "netty-tcnative"),
    )
)
TICK_MS = 200
"""Sessions are granted between 2 and 200 of these."""
_START_SECONDS = 30.0


class ZooKeeperServer:
    """One standalone server process, which can be killed, paused and restarted.

    A context manager, which starts and kills it.
    """

    def __init__(self, directory: Path, *, properties: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self.port = free_port()
        self._properties = dict(properties or {})
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def connect(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start the server, and return when sessions can begin."""
        self.launch()
        self.await_sessions()

    def launch(self) -> None:
        """Start the process."""
        self.directory.mkdir(parents=True, exist_ok=True)
        settings = {
            "tickTime": TICK_MS,
            "maxSessionTimeout": 200 * TICK_MS,
            "dataDir": self.directory / "data",
            "clientPort": self.port,
            "clientPortAddress": "127.0.0.1",
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "isro, cons, srvr",
            # Data of tests need not survive a power loss.
            "forceSync": "no",
            **self._properties,
        }
        config = self.directory / "zoo.cfg"
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        jars = ":".join(str(JARS / jar) for jar in _CLASS_PATH if (JARS / jar).exists())
        with open(self.directory / "log", "ab") as log:
            self._process = subprocess.Popen(
                [
                    *("java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
                    *("-Xshare:auto", "-Dzookeeper.forceSync=no"),
                    *("-cp", jars, "org.apache.zookeeper.server.quorum.QuorumPeerMain"),
                    str(config),
                ],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )

    def kill(self) -> None:
        """Send SIGKILL; data of requests that were answered is in files."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Send SIGSTOP, and return when every thread has stopped."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        threads = list(Path(f"/proc/{self._process.pid}/task").iterdir())
        while any(
            (each / "stat").read_text().rpartition(")")[2].split()[0] != "T" for each in threads
        ):
            time.sleep(0.001)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def restart(self) -> None:
        """Kill and start again, with the same data and port: sessions survive."""
        self.kill()
        self.start()

    def sessions(self) -> int:
        """Return the number of connections of clients, without this one."""
        return self.ask("cons").count("sid=")

    def ask(self, command: str) -> str:
        """Return the answer to a four-letter command; empty if the server does not answer."""
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self.port), 5) as asking,
        ):
            asking.sendall(command.encode())
            with asking.makefile("rb") as answer:
                return answer.read().decode()
        return ""

    def expire(self, session_id: int, password: bytes) -> None:
        """End a session at once, as if its owner had been silent: another connection takes it over
        and closes it."""
        thief = KazooClient(self.connect, client_id=(session_id, password), timeout=5)
        thief.start(10)
        thief.stop()
        thief.close()

    def client(self, chroot: str = "", **options: Any) -> KazooClient:
        """Return a plain client of ZooKeeper; the caller stops and closes it."""
        client = KazooClient(self.connect + chroot, timeout=10, **options)
        client.start(10)
        return client

    @contextlib.contextmanager
    def looking(self, chroot: str = "", **options: Any) -> Iterator[KazooClient]:
        client = self.client(chroot, **options)
        try:
            yield client
        finally:
            client.stop()
            client.close()

    def await_sessions(self) -> None:
        """Start the server, and return when sessions can begin."""
        give_up = time.monotonic() + _START_SECONDS
        while time.monotonic() < give_up:
            assert self._process is not None
            if self._process.poll() is not None:
                break
            # "null" until sessions can begin.
            if self.ask("isro") == "rw":
                return
            time.sleep(0.02)
        log = (self.directory / "log").read_text(errors="replace")
        raise RuntimeError(f"ZooKeeper does not start:\n{log[-3000:]}")


class ZooKeeperEnsemble:
    """Three servers, of which any two form a quorum."""

    def __init__(self, directory: Path) -> None:
        members = {
            f"server.{number}": f"127.0.0.1:{free_port()}:{free_port()}" for number in (1, 2, 3)
        }
        common = {"initLimit": "10", "syncLimit": "5", "electionAlg": "3"}
        self.servers = []
        for number in (1, 2, 3):
            home = directory / str(number)
            (home / "data").mkdir(parents=True)
            (home / "data" / "myid").write_text(str(number))
            self.servers.append(ZooKeeperServer(home, properties=members | common))

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(server.connect for server in self.servers)

    def start(self) -> None:
        for server in self.servers:
            server.launch()
        for server in self.servers:
            server.await_sessions()

    def leader(self) -> ZooKeeperServer:
        return next(each for each in self.servers if "leader" in each.ask("srvr"))

    def kill(self) -> None:
        for server in self.servers:
            server.kill()


def every_path(client: KazooClient, path: str = "/") -> Iterator[str]:
    """Yield the paths of a node and of all nodes below it."""
    yield path
    for child in client.get_children(path):
        yield from every_path(client, f"{path.rstrip('/')}/{child}")


def installed() -> bool:
    return (JARS / "zookeeper.jar").exists() and shutil.which("java") is not None


@functools.cache
def shared_server() -> ZooKeeperServer:
    """Return the server that this process shares; it stops when the process ends."""
    if not installed():
        raise RuntimeError("ZooKeeper is missing: apt-get install zookeeper libzookeeper-java")
    directory = Path(tempfile.mkdtemp(prefix="zookeeper-"))
    server = ZooKeeperServer(directory)
    owner = os.getpid()

    def stop() -> None:
        if os.getpid() == owner:
            server.kill()
            shutil.rmtree(directory, ignore_errors=True)

    atexit.register(stop)
    server.start()
    return server


def chroot_of(name: str) -> str:
    """Return a path for one test, by the test's name."""
    return f"/{zlib.crc32(name.encode()):08x}-{os.urandom(4).hex()}"
