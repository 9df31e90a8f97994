"""The cluster's topics, as consumer groups see them."""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple, Protocol

from barnabas.protocol.xxh3 import xxh3_64

_INT: Final = Struct("<i")
_ID: Final = Struct(">QQ")
_SWAPPED: Final = Struct("<QQ")
_HASH: Final = Struct("<Q")
_MAGIC: Final = b"\0"
"""The version of the bytes under a topic's hash."""


class Topic(NamedTuple):
    """A topic."""

    name: str
    topic_id: bytes
    partitions: int
    racks: tuple[frozenset[str], ...]
    """The racks of the replicas of each partition."""


class Topics(Protocol):
    """The topics that this broker knows."""

    @property
    def version(self) -> int:
        """A number that grows with every change of topics."""
        ...

    def names(self) -> Iterable[str]:
        """Return the names of all topics."""
        ...

    def find(self, name: str) -> Topic | None:
        """Return a topic by its name."""
        ...

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of a topic."""
        ...


class NoTopics:
    """A cluster without topics."""

    version = 0

    def names(self) -> Iterable[str]:
        return ()

    def find(self, name: str) -> Topic | None:  # noqa: ARG002
        return None

    def name_of(self, topic_id: bytes) -> str | None:  # noqa: ARG002
        return None


def hash_of_topics(topics: Topics, names: Iterable[str]) -> int:
    """Return the hash by which a group notices changes of its topics, as Kafka computes it
    (KIP-1101): a signed number, 0 if none of them exists. It is part of the group's record."""
    hashes = [
        _HASH.pack(_topic_hash(topic))
        for topic in map(topics.find, sorted(names))
        if topic is not None
    ]
    return _signed_hash(b"".join(hashes)) if hashes else 0


@lru_cache(maxsize=4096)
def _topic_hash(topic: Topic) -> int:
    return xxh3_64(b"".join(_parts(topic)))


@lru_cache(maxsize=256)
def _signed_hash(data: bytes) -> int:
    unsigned = xxh3_64(data)
    return unsigned - (unsigned >> 63 << 64)


def _parts(topic: Topic) -> Iterator[bytes]:
    yield _MAGIC
    yield _SWAPPED.pack(*_ID.unpack(topic.topic_id))
    yield _string(topic.name)
    yield _INT.pack(topic.partitions)
    for index in range(topic.partitions):
        yield _INT.pack(index)
        for rack in sorted(topic.racks[index]) if index < len(topic.racks) else ():
            yield _INT.pack(len(rack.encode("utf-16-le")) // 2)
            yield _string(rack)


def _string(text: str) -> bytes:
    """Return the bytes of a text: its UTF-16 units, and then how many there are."""
    units = text.encode("utf-16-le")
    return units + _INT.pack(len(units) // 2)
