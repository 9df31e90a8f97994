"""Client programs beside a broker that is killed: they are started, read and stopped."""

import sys
from pathlib import Path

from tests.integration.interop import franz_go
from tests.support.client_program import Program
from tests.support.kafka import jvm


def transform(
    kind: str,
    servers: str,
    records: int,
    directory: Path,
    route: str = "",
    *member: str,
) -> Program:
    """Start a client library that copies the input of a route to its output, alone or as a member
    of its group with a name and a protocol."""
    output = directory / f"transform-{kind}"
    return _start("transform", kind, servers, records, output, route, *member)


def read(
    kind: str, servers: str, partitions: int, directory: Path, name: str, route: str = ""
) -> Program:
    """Start a client library that reads the committed records of the output."""
    return _start("read", kind, servers, partitions, directory / f"read-{name}-{kind}", route)


def _start(what: str, kind: str, servers: str, number: int, output: Path, *route: str) -> Program:
    if kind == "java":
        command = jvm.program("Transformer")
    elif kind == "franz":
        command = [str(franz_go.program()), what]
    else:
        command = [sys.executable, "-m", "tests.integration.transactions.program", what, kind]
    return Program([*command, servers, str(number), *route], output)
