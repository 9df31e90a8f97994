"""Members of one group in the consumer protocol (KIP-848), each a process of a client library."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

from tests.integration.interop import franz_go
from tests.support import node_programs
from tests.support.client_program import Program
from tests.support.kafka import jvm

_VERIFIABLE_CONSUMER = "org.apache.kafka.tools.VerifiableConsumer"
_NODE = Path(__file__).parent / "node"


def confluent(*place: str) -> list[str]:
    return [sys.executable, "-m", "tests.integration.interop.member_program", *place]


def franz(*place: str) -> list[str]:
    return [str(franz_go.program()), "member", *place]


def platformatic(*place: str) -> list[str]:
    return ["node", str(node_programs.installed(_NODE) / "member.js"), *place]


def java(servers: str, topic: str, group: str) -> list[str]:
    place = ("--bootstrap-server", servers, "--topic", topic, "--group-id", group)
    how = ("--group-protocol", "consumer", "--reset-policy", "earliest", "--verbose")
    return [*jvm.program(_VERIFIABLE_CONSUMER), *place, *how]


COMMANDS: dict[str, Callable[..., list[str]]] = {
    each.__name__: each for each in (confluent, java, franz, platformatic)
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
