"""Replica placement of new partitions; pure.

Brokers are ordered so that racks alternate. The first replica of partition i is the i-th broker
from a random start. Its other replicas follow at a distance that grows each time the list is used
up. No rack gets another replica while a rack with fewer replicas has a broker left. Brokers without
a rack form one rack, as in Kafka since 3.0; before, a mix of brokers with and without racks was an
error.
"""

from collections import Counter
from collections.abc import Mapping
from itertools import zip_longest
from random import Random

from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.steps import Steps


def place(
    racks: Mapping[int, str | None],
    partitions: int,
    replication_factor: int,
    random: Random,
    *,
    first: int = 0,
) -> Steps[dict[int, tuple[int, ...]]]:
    """Return broker ids by partition for `partitions` new partitions, numbered from `first`.

    `racks` has every broker that can take replicas. Raises INVALID_REPLICATION_FACTOR if there are
    too few.
    """
    if replication_factor > len(racks):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): The target "
            f"replication factor of {replication_factor} cannot be reached because only "
            f"{len(racks)} broker(s) are registered.",
        )
    order = _alternate_racks(racks)
    start = random.randrange(len(order))
    shift = random.randrange(len(order))
    placed = {}
    for count in range(partitions):
        lead = start + first + count
        replicas = _pick(order, racks, lead, shift + (first + count) // len(order))
        placed[first + count] = tuple(replicas[:replication_factor])
        yield None
    return placed


def _alternate_racks(racks: Mapping[int, str | None]) -> list[int]:
    by_rack: dict[str | None, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker], []).append(broker)
    rounds = zip_longest(*(by_rack[rack] for rack in sorted(by_rack, key=str)))
    return [broker for each in rounds for broker in each if broker is not None]


def _pick(order: list[int], racks: Mapping[int, str | None], lead: int, shift: int) -> list[int]:
    """Return all brokers in the order in which one partition would use them."""
    size = len(order)
    leader = order[lead % size]
    others = [order[(lead + 1 + (shift + step) % (size - 1)) % size] for step in range(size - 1)]
    seen = Counter([racks[leader]])
    turns = []
    for broker in others:
        turns.append(seen[racks[broker]])
        seen[racks[broker]] += 1
    in_turn = sorted(zip(turns, others, strict=True), key=lambda each: each[0])
    return [leader, *(broker for _, broker in in_turn)]
