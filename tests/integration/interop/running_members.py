"""Members of one group, each a process of a client library.

`COMMANDS` has each library's command line, which takes a directory for its files, the servers, the
topic, the group and the group's protocol: "consumer" (KIP-848) or "classic".
"""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.integration.interop import franz_go
from tests.support import node_programs
from tests.support.client_program import Program
from tests.support.group_protocols import settings
from tests.support.kafka import jvm

_VERIFIABLE_CONSUMER = "org.apache.kafka.tools.VerifiableConsumer"
_CONNECT = "org.apache.kafka.connect.cli.ConnectStandalone"
_NODE = Path(__file__).parent / "node"


def confluent(_: Path, *place: str) -> list[str]:
    return [sys.executable, "-m", "tests.integration.interop.member_program", *place]


def franz(_: Path, *place: str) -> list[str]:
    return [str(franz_go.program()), "member", *place]


def platformatic(_: Path, *place: str) -> list[str]:
    return ["node", str(node_programs.installed(_NODE) / "member.js"), *place]


def java(directory: Path, servers: str, topic: str, group: str, protocol: str) -> list[str]:
    config = directory / f"{protocol}.properties"
    config.write_text(_properties(settings(protocol)))
    place = ("--bootstrap-server", servers, "--topic", topic, "--group-id", group)
    how = ("--group-protocol", protocol, "--reset-policy", "earliest", "--verbose")
    return [*jvm.program(_VERIFIABLE_CONSUMER), *place, *how, "--command-config", str(config)]


def connect(directory: Path, servers: str, topic: str, group: str, protocol: str) -> list[str]:
    """Return the command of Kafka Connect with a sink (`PrintingSink.java`).

    It commits when it gives partitions up, and not at the end of an interval: see "Kafka Connect"
    in docs/COMPATIBILITY.md.
    """
    converter = "org.apache.kafka.connect.storage.StringConverter"
    worker = {
        "bootstrap.servers": servers,
        "key.converter": converter,
        "value.converter": converter,
        "offset.storage.file.filename": str(directory / "offsets"),
        "listeners": "HTTP://127.0.0.1:0",
        # Its own classes are in no jar that lists its plugins.
        "plugin.discovery": "only_scan",
    }
    connector = {
        "name": "sink",
        "connector.class": "PrintingSink",
        "topics": topic,
        "consumer.override.group.id": group,
        "consumer.override.group.protocol": protocol,
    }
    files = [directory / "worker.properties", directory / "connector.properties"]
    for file, properties in zip(files, (worker, connector), strict=True):
        file.write_text(_properties(properties))
    return [*jvm.program(_CONNECT), *map(str, files)]


def _properties(values: Mapping[str, object]) -> str:
    return "".join(f"{key}={value}\n" for key, value in values.items())


COMMANDS: dict[str, Callable[..., list[str]]] = {
    each.__name__: each for each in (confluent, java, connect, franz, platformatic)
}


class RunningMember:
    """A member of a group, and what it prints (`member_program.py`)."""

    def __init__(self, kind: str, program: Program) -> None:
        self.kind = kind
        self.program = program

    @property
    def owned(self) -> set[int]:
        """The partitions that it owns."""
        owned: set[int] = set()
        for line in self.program.told():
            word, *rest = line.split()
            if word == "owns":
                owned = set(map(int, rest))
            elif "partitions_" in line:
                told = json.loads(line)
                changed = {each["partition"] for each in told["partitions"]}
                if told["name"] == "partitions_assigned":
                    owned |= changed
                else:
                    owned -= changed
        return owned

    @property
    def read(self) -> list[int]:
        """The numbers that it has read."""
        read = []
        for line in self.program.told():
            if line.startswith("read "):
                read.append(int(line.split()[2]))
            elif '"record_data"' in line:
                read.append(int(json.loads(line)["value"]))
        return read
