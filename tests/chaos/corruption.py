"""Files of a killed broker that are not as it left them."""

import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.chaos.cluster import ChaosCluster
from tests.chaos.evidence import Evidence, who
from tests.chaos.process_faults import leads_nothing

_HEADER, _CHECKSUM = 61, 17
"""Bytes of a batch's header, and where in it the checksum is."""
Damage = Callable[[bytes, random.Random], bytes]


def flipped(content: bytes, chance: random.Random) -> bytes:
    """One bit is another."""
    return _flip(content, chance.randrange(len(content)), chance)


def flipped_in_batch(content: bytes, chance: random.Random) -> bytes:
    """One bit of a batch, of those that its checksum covers: Kafka's format has none for its offset
    and its leader epoch."""
    batches = []
    position = 0
    while position + _HEADER <= len(content):
        size = 12 + int.from_bytes(content[position + 8 : position + 12])
        batches.append(range(position + _CHECKSUM, min(position + size, len(content))))
        position += size
    at = chance.choice(chance.choice(batches))
    return _flip(content, at, chance)


def _flip(content: bytes, at: int, chance: random.Random) -> bytes:
    return content[:at] + bytes([content[at] ^ 1 << chance.randrange(8)]) + content[at + 1 :]


def truncated(content: bytes, chance: random.Random) -> bytes:
    """The end is missing."""
    return content[: chance.randrange(len(content))]


def torn(content: bytes, chance: random.Random) -> bytes:
    """The last bytes were never written, though the file is long enough for them."""
    missing = chance.randint(1, min(200, len(content)))
    return content[:-missing] + bytes(missing)


@contextmanager
def damaged(
    cluster: ChaosCluster,
    told: Evidence,
    role: str,
    pattern: str,
    damage: Damage,
    after: signal.Signals,
) -> Iterator[None]:
    """A broker ends, and all its files of a pattern that hold anything are damaged before it
    starts: what a kill left is read again, what was closed cleanly is trusted."""
    node = who(cluster, told, role)
    broker = cluster.brokers[node]
    told.strikes(node)
    broker.signal(after)
    broker.wait_until_ended()
    chance = random.Random(pattern)
    files = [path for path in sorted(cluster.logs_of(node).glob(pattern)) if _holds_something(path)]
    for path in files:
        path.write_bytes(damage(path.read_bytes(), chance))
    told.saw(bool(files), f"{len(files)} files of broker {node} are damaged: {pattern}")
    told.faults = len(files)
    leads_nothing(cluster, node)
    yield
    broker.launch()


def _holds_something(path: Path) -> bool:
    with path.open("rb") as file:
        return bool(file.read(1 << 16).strip(b"\0"))
