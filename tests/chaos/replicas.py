"""Whether replicas are byte-equal (C14), as their files say."""

from pathlib import Path
from typing import Final

from tests.chaos.cluster import HEALED_WITHIN_S, Trio

_COMPACTED: Final = ("__consumer_offsets", "__transaction_state")
"""Each replica compacts by itself, so that the same records lie in other batches."""


def unequal(trio: Trio) -> list[str]:
    """What differs between replicas, once nobody writes and all are in sync."""
    trio.await_full()
    partitions = [
        f"{topic}-{index}"
        for topic, index in trio.partitions()
        if topic not in _COMPACTED and not topic.endswith("-compacted")
    ]
    try:
        trio.until(lambda: not _differing(trio, partitions), HEALED_WITHIN_S, str)
    except AssertionError:
        return _differing(trio, partitions)
    return []


def _differing(trio: Trio, partitions: list[str]) -> list[str]:
    """Also right after a write, which reaches the followers in a moment."""
    found = []
    for partition in partitions:
        sizes = {node: len(log) for node, log in _logs(trio, partition).items()}
        if len(set(_logs(trio, partition).values())) > 1:
            found.append(f"C14 unequal-replicas: {partition} has {sizes} bytes")
    return found


def _logs(trio: Trio, partition: str) -> dict[int, bytes]:
    """By broker, everything from the first segment that all have."""
    logs: dict[int, dict[str, Path]] = {
        node: {path.name: path for path in sorted((broker.logs / partition).glob("*.log"))}
        for node, broker in trio.brokers.items()
    }
    first = max((min(files, default="") for files in logs.values()), default="")
    return {
        node: b"".join(path.read_bytes() for name, path in files.items() if name >= first)
        for node, files in logs.items()
    }
