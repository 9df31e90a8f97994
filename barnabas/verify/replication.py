"""The end of a run on several brokers: wait for full ISRs, then read all replicas."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Collection
from typing import Final

from barnabas.client.cluster import Cluster
from barnabas.client.connection import BrokerUnreachable
from barnabas.protocol.errors import KafkaError
from barnabas.verify.context import Context
from barnabas.verify.history import INFO, OK, Partition
from barnabas.verify.wire.inspection import Ends
from barnabas.verify.wire.replicas import (
    Replicas,
    batches_of,
    described,
    serves_followers,
)

CATCH_UP: Final = 30.0
"""Seconds until an in-sync replica must know the last high watermark."""
_LOOK: Final = 0.1


async def wait_until_whole(context: Context, cluster: Cluster, topics: Collection[str]) -> None:
    """Wait until every broker reports a leader and a full ISR for every partition.

    Covers `topics` and the internal topics. The history gets the exceptions at the deadline.
    """
    began = time.monotonic()
    deadline = began + context.options.recovery
    while True:
        seconds = round(time.monotonic() - began, 3)
        lacking = await _lacking(cluster, topics)
        if not lacking or time.monotonic() > deadline:
            break
        await asyncio.sleep(_LOOK)
    value = {"seconds": seconds, "lacking": lacking}
    context.history.note("run", "recovery", INFO, value)


async def _lacking(
    cluster: Cluster, topics: Collection[str]
) -> list[tuple[Partition | None, int, list[int], list[int]]]:
    """Return the partitions that some broker reports without a leader or full ISR.

    A row is partition, leader, ISR and replicas; the partition is None for a broker that does not
    answer or does not know every topic.
    """
    try:
        views = await described(cluster, topics)
    except (KafkaError, BrokerUnreachable, TimeoutError):
        return [(None, -1, [], [])]
    found: dict[Partition | None, Replicas] = {}
    for node, view in views.items():
        if view is None or not {at[0] for at in view}.issuperset(topics):
            found[None] = Replicas(node, (), ())
            continue
        found |= {at: each for at, each in view.items() if not each.is_whole}
    return [
        (at, each.leader, list(each.in_sync), list(each.replicas)) for at, each in found.items()
    ]


async def read_replicas(context: Context, cluster: Cluster, limits: dict[Partition, Ends]) -> None:
    """Write the batches of every in-sync replica up to the high watermark to the history.

    The leader is read like the followers. A replica without all records at the deadline is read as
    far as possible.
    """
    if not await serves_followers(cluster):
        return
    views = await described(cluster, {at[0] for at in limits})
    holders: dict[int, list[Partition]] = defaultdict(list)
    for view in views.values():
        for at, each in (view or {}).items():
            for node in each.in_sync if at in limits and len(each.in_sync) > 1 else ():
                if at not in holders[node]:
                    holders[node].append(at)
    for node, partitions in sorted(holders.items()):
        await _read_replica(context, cluster, node, {at: limits[at] for at in partitions})


async def _read_replica(
    context: Context, cluster: Cluster, node: int, limits: dict[Partition, Ends]
) -> None:
    positions = {at: limit.start for at, limit in limits.items()}
    deadline = time.monotonic() + CATCH_UP
    error = ""
    while left := {
        at: offset for at, offset in positions.items() if offset < limits[at].high_watermark
    }:
        if time.monotonic() > deadline:
            break
        try:
            found = await batches_of(cluster, node, left)
        except (KafkaError, BrokerUnreachable, TimeoutError) as raised:
            # The broker may not know its leader yet. Refresh the metadata and try again.
            error = str(raised)
            cluster.topics.clear()
            await asyncio.sleep(_LOOK)
            continue
        positions |= left
        for at, batches in found.items():
            value = {"at": at, "node": node, "batches": [list(each) for each in batches]}
            context.history.note("run", "replica", OK, value)
    for at, offset in positions.items():
        value = {
            "at": at,
            "node": node,
            "to": offset,
            "wanted": limits[at].high_watermark,
            "error": error if offset < limits[at].high_watermark else "",
        }
        context.history.note("run", "replica-end", INFO, value)
