"""Apache Kafka itself as a child process: one node, broker and controller, on a free port.

    with Kafka(tmp_path, heap=SMALL) as kafka:
        kafka.bootstrap_servers

`heap=DEFAULT` starts it exactly as Kafka's own scripts do, for measurements; SMALL starts faster
and takes less memory, for tests.
"""

import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support import class_archive
from tests.support.kafka.jars import CACHE, HERE, POM, directory, require
from tests.support.ports import free_port

DEFAULT = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
"""The options of kafka-run-class.sh and kafka-server-start.sh."""

SMALL = ("-Xmx384M", "-Xms64M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")

FEATURES_OFF = {
    "share.version": 0,
    "streams.version": 0,
    "transaction.version": 0,
    "eligible.leader.replicas.version": 0,
}
"""The feature levels of a cluster whose operator has enabled none of the newer protocols."""

CLUSTER_ID = "BarnabasReferee0000000"
STARTED = b"Kafka Server started"
_ARCHIVED_WITHIN_S = 120


def java(classpath: str, options: Sequence[str] = SMALL, log_level: str = "WARN") -> list[str]:
    """Return the command line up to the main class. A JVM with the options of tests starts with the
    archived classes of the referee's jars, if these are first in its classpath."""
    options = tuple(options)
    if options[: len(SMALL)] == SMALL and classpath.split(":")[0] == f"{directory()}/*":
        options += class_archive.options(archive())
    log4j = [
        f"-Dlog4j2.configurationFile={HERE / 'log4j2.properties'}",
        f"-Dlog4j.configuration=file:{HERE / 'log4j.properties'}",
        f"-Dreferee.log.level={log_level}",
    ]
    return ["java", *options, "-Djava.awt.headless=true", *log4j, "-cp", classpath]


def archive() -> Path:
    """Return the archive of the referee's classes."""
    return CACHE / f"{directory().name}.jsa"


def load_classes(option: str) -> None:
    """Run a node to its end with an option of Java."""
    with tempfile.TemporaryDirectory() as directory:
        node = Kafka(Path(directory), heap=(option, *SMALL))
        node.start()
        node.stop(_ARCHIVED_WITHIN_S)


def _classpath(pom: Path) -> str:
    """Return the jars of a broker. Kafka 3 has no logging among them: it gets the referee's."""
    if pom == POM:
        return require()
    require()
    logging = sorted(directory().glob("log4j-*.jar"))
    return ":".join([require(pom), *map(str, logging)])


class Kafka:
    """One Kafka node with its data under `directory`; a context manager."""

    def __init__(
        self,
        directory: Path,
        *,
        heap: Sequence[str] = SMALL,
        properties: Mapping[str, str] | None = None,
        features: Mapping[str, int] | None = None,
        scram: Sequence[str] = (),
        listeners: Sequence[str] = (),
        pom: Path = POM,
    ) -> None:
        """`scram` has credentials, as `SCRAM-SHA-256=[name=alice,password=secret]`; `listeners`
        are further ones, as `SECURE://127.0.0.1:9094`. `pom` lists the jars of the release."""
        self.directory = directory
        self.port = free_port()
        self.log = directory / "kafka.out"
        self._heap = heap
        self._features = features or {}
        self._scram = scram
        self._properties = self._defaults(listeners) | dict(properties or {})
        self._classpath = _classpath(pom)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def data(self) -> Path:
        """Return the log directory."""
        return self.directory / "data"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
        shutil.rmtree(self.data, ignore_errors=True)

    def start(self, deadline_s: float = 60) -> None:
        """Format the storage if it is new, start the broker, and return when it serves."""
        server_properties = self.directory / "server.properties"
        server_properties.parent.mkdir(parents=True, exist_ok=True)
        server_properties.write_text("".join(f"{k}={v}\n" for k, v in self._properties.items()))
        if not self.data.exists():
            self._format(server_properties)
        with self.log.open("wb") as output:
            self._process = subprocess.Popen(
                [*java(self._classpath, self._heap), "kafka.Kafka", str(server_properties)],
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self._wait_until_started(deadline_s)

    def stop(self, deadline_s: float = 20) -> None:
        """Shut down cleanly; kill a broker that does not end in time."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def kill(self) -> None:
        """Send SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _defaults(self, further: Sequence[str]) -> dict[str, str]:
        controller = free_port()
        own = [f"PLAINTEXT://127.0.0.1:{self.port}", f"CONTROLLER://127.0.0.1:{controller}"]
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join([*own, *further]),
            "log.dirs": str(self.data),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
        }

    def _format(self, server_properties: Path) -> None:
        features = [f"--feature={name}={level}" for name, level in self._features.items()]
        users = [f"--add-scram={each}" for each in self._scram]
        subprocess.run(
            [
                *java(self._classpath, self._heap),
                *("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID),
                *("-c", str(server_properties), *features, *users),
            ],
            check=True,
            capture_output=True,
        )

    def _wait_until_started(self, deadline_s: float) -> None:
        assert self._process is not None
        end = time.monotonic() + deadline_s
        while time.monotonic() < end and self._process.poll() is None:
            if STARTED in self.log.read_bytes():
                return
            time.sleep(0.05)
        self.stop(0)
        raise RuntimeError(f"Kafka did not start: {self.log.read_text()[-3000:]}")
