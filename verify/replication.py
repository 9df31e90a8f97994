"""What several brokers owe at the end of a run: everybody is there again, and all have the same."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Collection
from typing import Final

from barnabas.client.cluster import Cluster
from barnabas.client.connection import BrokerUnreachable
from barnabas.protocol.errors import KafkaError
from barnabas.verify.context import Context
from barnabas.verify.history import INFO, OK, Place
from barnabas.verify.wire.inspection import Ends
from barnabas.verify.wire.replicas import (
    Replicas,
    batches_of,
    described,
    serves_followers,
)

CATCH_UP: Final = 30.0
"""How long a replica that is in sync may take to learn the last high watermark, in s."""
_LOOK: Final = 0.1


async def wait_until_whole(context: Context, cluster: Cluster, topics: Collection[str]) -> None:
    """Until each broker says of every partition of `topics` and of the internal ones that it has a
    leader, and all its replicas in sync; the history says what was lacking at the deadline."""
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
) -> list[tuple[Place | None, int, list[int], list[int]]]:
    """Of each partition that some broker does not call whole: place, leader, in sync, replicas;
    without a place for a broker that says nothing or not of every topic."""
    try:
        views = await described(cluster, topics)
    except (KafkaError, BrokerUnreachable, TimeoutError):
        return [(None, -1, [], [])]
    found: dict[Place | None, Replicas] = {}
    for node, view in views.items():
        if view is None or not {at[0] for at in view}.issuperset(topics):
            found[None] = Replicas(node, (), ())
            continue
        found |= {at: each for at, each in view.items() if not each.is_whole}
    return [
        (at, each.leader, list(each.in_sync), list(each.replicas)) for at, each in found.items()
    ]


async def read_replicas(context: Context, cluster: Cluster, limits: dict[Place, Ends]) -> None:
    """Writes down the batches of every replica in sync, up to the high watermark.

    Whoever leads is read like the others. A replica that has not come to the end by the deadline is
    left where it is.
    """
    if not await serves_followers(cluster):
        return
    views = await described(cluster, {at[0] for at in limits})
    holders: dict[int, list[Place]] = defaultdict(list)
    for view in views.values():
        for at, each in (view or {}).items():
            for node in each.in_sync if at in limits and len(each.in_sync) > 1 else ():
                if at not in holders[node]:
                    holders[node].append(at)
    for node, places in sorted(holders.items()):
        await _read_replica(context, cluster, node, {at: limits[at] for at in places})


async def _read_replica(
    context: Context, cluster: Cluster, node: int, limits: dict[Place, Ends]
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
            # It may not have been told of its leader yet; what it was told of is asked anew.
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
