"""Handlers of group APIs over a group coordinator whose log and time the test controls."""

from dataclasses import dataclass
from inspect import isawaitable
from types import ModuleType
from typing import Any

from barnabas.broker.server.context import RequestContext
from barnabas.protocol.codec import decode, encode
from barnabas.security.principal import ANONYMOUS
from tests.support.steps import all_taken


@dataclass
class Topic:
    """The metadata of a topic that the handlers read."""

    name: str
    topic_id: bytes
    partitions: tuple[int, ...] = (0, 1)


def topic_id_of(name: str) -> bytes:
    """Return the id that `Topics` gives to a topic."""
    return (name.encode() * 16)[:16]


class Topics:
    """A metadata cache that has only topics."""

    def __init__(self, *names: str) -> None:
        self._topics = {name: Topic(name, topic_id_of(name)) for name in names}

    def topic(self, name: str) -> Topic | None:
        return self._topics.get(name)

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        return next((each for each in self._topics.values() if each.topic_id == topic_id), None)

    def topic_name(self, topic_id: bytes) -> str | None:
        return next(
            (each.name for each in self._topics.values() if each.topic_id == topic_id), None
        )


def ask(module: ModuleType, collaborators: tuple[Any, ...], request: Any, version: int) -> Any:
    """Send a request through the codec to its handler; return the answer or its future."""
    request = decode(type(request), version, encode(request, version))
    context = RequestContext(
        module.API.key, version, 0, "test", ANONYMOUS, "PLAINTEXT", "127.0.0.1", 1, 0
    )
    answer = all_taken(module.handle(*collaborators, request, context))
    if isawaitable(answer):
        return answer
    return decode(module.API.response, version, encode(answer, version))
