"""Java's string hash, which decides the coordinator of a group or a transactional id."""

from functools import lru_cache
from struct import unpack
from typing import Final

_SHORT: Final = 64
"""The letters of the longest id whose hash is remembered: clients choose ids."""
_REMEMBERED: Final = 32_768
"""The ids whose hashes are remembered, in 15 MB at most. If more of them take turns, none is found
again."""


def java_hash(text: str) -> int:
    """Return Java's `String.hashCode`: 32 bits, signed, over UTF-16 code units."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for unit in unpack(f">{len(units) // 2}H", units):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


remembered_hash = lru_cache(_REMEMBERED)(java_hash)
"""The same, for short ids: each heartbeat and each step of a transaction asks."""


def partition_for(key: str, partitions: int) -> int:
    """Return the partition of a coordinator's topic that `key` belongs to.

    The most negative hash counts as 0, as in Kafka.
    """
    value = remembered_hash(key) if len(key) <= _SHORT else java_hash(key)
    return 0 if value == -(1 << 31) else abs(value) % partitions
