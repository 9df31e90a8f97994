"""Where the replicas of new partitions go; pure.

Brokers are put in a line that alternates racks. Partition i's first replica goes to the i-th broker
of the line from a random start, its further replicas to the brokers behind at a distance that grows
with every round of the line; no rack gets another replica while one has fewer and a broker left.
Brokers that name no rack are one rack, as for Kafka since 3.0: before, one such broker among others
was an error.
"""

from collections import Counter
from collections.abc import Mapping
from itertools import zip_longest
from random import Random

from barnabas.protocol.errors import ErrorCode, KafkaError


def place(
    racks: Mapping[int, str | None],
    partitions: int,
    replication_factor: int,
    random: Random,
    *,
    first: int = 0,
) -> dict[int, tuple[int, ...]]:
    """Broker ids by partition, for `partitions` new ones from number `first` on.

    `racks` has every broker that can take replicas. Raises INVALID_REPLICATION_FACTOR where they
    are too few.
    """
    if replication_factor > len(racks):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): The target "
            f"replication factor of {replication_factor} cannot be reached because only "
            f"{len(racks)} broker(s) are registered.",
        )
    line = _alternate(racks)
    start = random.randrange(len(line))
    shift = random.randrange(len(line))
    placed = {}
    for count in range(partitions):
        lead = start + first + count
        replicas = _pick(line, racks, lead, shift + (first + count) // len(line))
        placed[first + count] = tuple(replicas[:replication_factor])
    return placed


def _alternate(racks: Mapping[int, str | None]) -> list[int]:
    by_rack: dict[str | None, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker], []).append(broker)
    rounds = zip_longest(*(by_rack[rack] for rack in sorted(by_rack, key=str)))
    return [broker for each in rounds for broker in each if broker is not None]


def _pick(line: list[int], racks: Mapping[int, str | None], lead: int, shift: int) -> list[int]:
    """All brokers in the order in which one partition would use them."""
    size = len(line)
    leader = line[lead % size]
    others = [line[(lead + 1 + (shift + step) % (size - 1)) % size] for step in range(size - 1)]
    seen = Counter([racks[leader]])
    turns = []
    for broker in others:
        turns.append(seen[racks[broker]])
        seen[racks[broker]] += 1
    in_turn = sorted(zip(turns, others, strict=True), key=lambda each: each[0])
    return [leader, *(broker for _, broker in in_turn)]
