"""The four client libraries, each in its own process that carries out commands."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.integration.interop.message import Message
from tests.support.kafka import jvm
from tests.support.kafka.resident import Resident

KINDS = ("confluent", "kafka_python", "aiokafka", "java")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

CONSUMERS = "org.apache.kafka.clients.consumer"
JAVA_ASSIGNORS = {
    "range": f"{CONSUMERS}.RangeAssignor",
    "roundrobin": f"{CONSUMERS}.RoundRobinAssignor",
    "cooperative-sticky": f"{CONSUMERS}.CooperativeStickyAssignor",
}


def start(kind: str, directory: Path) -> Resident:
    """Start a process with a client library; its log goes to a file in the directory."""
    errors = directory / f"{kind}.errors"
    if kind == "java":
        return jvm.start(errors)
    program = "tests.integration.interop.program"
    return Resident([sys.executable, "-m", program, kind], errors)


class Client:
    """A client library, and the broker that it uses."""

    def __init__(self, kind: str, process: Resident, servers: str) -> None:
        self.kind = kind
        self._process = process
        self._servers = servers

    def at(self, servers: str) -> "Client":
        """Return the same library for another broker."""
        return Client(self.kind, self._process, servers)

    def __call__(self, do: str, **arguments: Any) -> Any:
        """Send a command that uses the broker."""
        return self._process.call(do, servers=self._servers, **arguments)

    def write(
        self, topic: str, messages: Sequence[Message], codec: str = "none", **options: Any
    ) -> Any:
        """Produce to partition 0 and return the offsets; options have `_` for Kafka's dots."""
        sent = [each.to_json() for each in messages]
        return self("write", topic=topic, codec=codec, messages=sent, options=_dotted(options))

    def read(
        self, topic: str, count: int, since: int | None = None, **options: Any
    ) -> list[Message]:
        """Return the first messages of partition 0, or the first since a timestamp in ms."""
        read = self("read", topic=topic, count=count, since=since, options=_dotted(options))
        return [Message.from_json(each) for each in read]

    def join(
        self, name: str, topic: str, group: str, strategy: str = "range", **options: Any
    ) -> "Member":
        """Start a new member of a group; options have `_` for Kafka's dots."""
        assignor = JAVA_ASSIGNORS[strategy] if self.kind == "java" else strategy
        config = {
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "partition.assignment.strategy": assignor,
            **_dotted(options),
        }
        self("join", name=name, topic=topic, options=config)
        return Member(name, self._process)


class Member:
    """A consumer in a group, polled continuously by the process of its library."""

    def __init__(self, name: str, process: Resident) -> None:
        self._name = name
        self._process = process
        self._left = False

    def _call(self, do: str) -> Any:
        return self._process.call(do, name=self._name)

    @property
    def owned(self) -> set[int]:
        return set(self._call("state")["owned"])

    @property
    def read(self) -> list[str]:
        read: list[str] = self._call("state")["read"]
        return read

    @property
    def revoked(self) -> int:
        return int(self._call("state")["revoked"])

    @property
    def lag(self) -> int:
        return int(self._call("lag"))

    def commit(self) -> None:
        self._call("commit")

    def leave(self) -> None:
        """Close the consumer; a second call does nothing."""
        if not self._left:
            self._left = True
            self._call("leave")


def _dotted(options: dict[str, Any]) -> dict[str, Any]:
    return {key.replace("_", "."): value for key, value in options.items()}
