"""A client library as a program that carries out commands of
`tests.support.kafka.resident.Resident`.

python -m tests.integration.interop.program confluent|kafka_python|aiokafka
"""

import importlib
import json
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from tests.integration.interop.member import Member
from tests.integration.interop.message import Message


class Commands:
    """The commands that tests can send to a library."""

    def __init__(self, library: ModuleType) -> None:
        self._library = library
        self._members: dict[str, Member] = {}

    def carry_out(self, do: str, **arguments: Any) -> Any:
        """Carry out a command; return its answer as values that JSON can encode."""
        if "name" in arguments and do != "join":
            return self._of_member(do, **arguments)
        own: dict[str, Callable[..., Any]] = {
            "write": self._write,
            "read": self._read,
            "join": self._join,
        }
        return own[do](**arguments) if do in own else self._administrate(do, **arguments)

    def _write(self, messages: list[dict[str, Any]], **arguments: Any) -> Any:
        written = [Message.from_json(each) for each in messages]
        return self._library.write(messages=written, **arguments)

    def _read(self, **arguments: Any) -> Any:
        return [each.to_json() for each in self._library.read(**arguments)]

    def _join(self, name: str, **arguments: Any) -> None:
        self._members[name] = Member(lambda: self._library.Consumer(**arguments))

    def _of_member(self, do: str, name: str) -> Any:
        member = self._members.pop(name) if do == "leave" else self._members[name]
        return getattr(member, do)()

    def _administrate(self, do: str, servers: str, **arguments: Any) -> Any:
        administrator = self._library.Administrator(servers)
        try:
            return getattr(administrator, do)(**arguments)
        finally:
            administrator.close()


def main() -> None:
    commands = Commands(importlib.import_module(f"tests.integration.interop.with_{sys.argv[1]}"))
    for line in sys.stdin:
        try:
            answer = {"value": commands.carry_out(**json.loads(line))}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


main()
