"""A run: topics, load, and then every question that can only be asked at the end."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import IO, Final

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.connection import BrokerUnreachable
from barnabas.client.group_admin import GroupAdmin
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.verify.context import Context
from barnabas.verify.history import INFO, History, Place
from barnabas.verify.options import Options
from barnabas.verify.replication import read_replicas, wait_until_whole
from barnabas.verify.wire.inspection import (
    Ends,
    committed_offset,
    ends,
    ids_kept,
    open_transactions,
    states,
    transaction_version,
)
from barnabas.verify.wire.reader import Reader
from barnabas.verify.wire.recorder import NotDone
from barnabas.verify.workloads.churn import churn
from barnabas.verify.workloads.compacted import Compacted
from barnabas.verify.workloads.hijack import Hijack
from barnabas.verify.workloads.idempotent import IdempotentOnly
from barnabas.verify.workloads.money import Money
from barnabas.verify.workloads.pipeline import Members, Pipeline
from barnabas.verify.workloads.queue import Queue
from barnabas.verify.workloads.watching import read_followers, watch_topics
from barnabas.verify.workloads.workload import Workload

WORKLOADS: Final[dict[str, Callable[[], Workload]]] = {
    "queue": Queue,
    "pipeline": Pipeline,
    "members": Members,
    "money": Money,
    "idempotent": IdempotentOnly,
    "compacted": Compacted,
    "hijack": Hijack,
}

STOP_PATIENCE: Final = 90.0
"""How long what runs may take to stop, in s: each operation is tried for a while."""
SWEEP: Final = 20.0
"""How much later than its timeout a transaction may be aborted: brokers look every 10 s."""
QUIET: Final = 3.0
"""A partition that is held back although no coordinator has anything open, for so long, hangs."""
_LOOK: Final = 0.1
_OPEN: Final = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")


async def run(
    options: Options,
    file: IO[str],
    progress: Callable[[str], None] = lambda _: None,
    enough: asyncio.Event | None = None,
) -> Counter[str]:
    """Writes the history to `file`; gives what kept parts of the run from going on, and how often.

    The load ends after its duration, or when `enough` is set. Raises KafkaError and
    BrokerUnreachable where the cluster cannot be used at all.
    """
    workload = WORKLOADS[options.workload]()
    history = History(file, time.monotonic)
    async with Cluster(options.bootstrap, client_id="barnabas-verify") as cluster:
        name = f"verify-{time.time_ns() // 1_000_000:x}"
        version = await transaction_version(cluster)
        context = Context(options, history, name, version)
        try:
            await _prepare(context, cluster, workload, version)
            progress(f"{options.workload} for {options.duration:g} s")
            await _load(context, workload, enough or asyncio.Event())
            await _settle(context, cluster, workload, progress)
        finally:
            await context.close()
            if not options.keep:
                await _clean_up(context, cluster, workload)
    return context.problems


async def _prepare(context: Context, cluster: Cluster, workload: Workload, version: int) -> None:
    options = context.options
    topics = {}
    for topic in workload.topics:
        name = context.topic(topic.name)
        try:
            await Admin(cluster).create_topic(
                name,
                partitions=options.partitions,
                replication_factor=options.replication_factor,
                configs={**topic.configs, **_durability(options)},
            )
        except KafkaError as error:
            # An attempt whose answer was lost: nobody else has names like these.
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        topics[name] = {"partitions": options.partitions, "compacted": topic.is_compacted}
    about = {
        "workload": options.workload,
        "seed": options.seed,
        "protocol": options.protocol,
        "transaction_version": version,
        "timeout": options.transaction_timeout,
        "ids_kept": await ids_kept(cluster),
        "topics": topics,
        "stages": [
            {
                "from": context.topic(stage.source),
                "to": context.topic(stage.target),
                "group": context.topic(stage.group),
            }
            for stage in workload.stages
        ],
    }
    context.history.note("run", "run", INFO, about)


def _durability(options: Options) -> dict[str, str]:
    least = options.min_insync_replicas
    return {} if least is None else {"min.insync.replicas": str(least)}


async def _load(context: Context, workload: Workload, enough: asyncio.Event) -> None:
    watched = [context.topic(topic.name) for topic in workload.topics]
    places = [at for topic in workload.topics for at in context.places(topic.name)]
    work: list[Callable[[], Awaitable[None]]] = [
        partial(watch_topics, context, watched),
        partial(read_followers, context, places),
        *workload.parts(context),
    ]
    if context.options.churn:
        work.append(partial(churn, context, places))
    async with asyncio.TaskGroup() as tasks:
        parts = [tasks.create_task(_whole(part)) for part in work]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(context.options.duration):
                await enough.wait()
        context.stopping.set()
        _, late = await asyncio.wait(parts, timeout=STOP_PATIENCE)
        for part in late:
            part.cancel()
            context.problem("a part of the run did not stop")


async def _whole(part: Callable[[], Awaitable[None]]) -> None:
    await part()


async def _settle(
    context: Context, cluster: Cluster, workload: Workload, progress: Callable[[str], None]
) -> None:
    """The end of a run; without it nothing can be called lost."""
    try:
        progress("the end")
        names = [context.topic(topic.name) for topic in workload.topics]
        await wait_until_whole(context, cluster, names)
        await workload.finish(context)
        places = [at for topic in workload.topics for at in context.places(topic.name)]
        limits = await _nothing_open(context, cluster, places)
        for stage in workload.stages:
            for at in context.places(stage.source):
                group = context.topic(stage.group)
                await committed_offset(context.history, cluster, "final", group, at)
        for committed in (True, False):
            await _read_all(context, cluster, limits, committed=committed)
        await read_replicas(context, cluster, limits)
        known = await states(cluster, context.transactional_ids)
        for at, limit in limits.items():
            value = {
                "at": at,
                "start": limit.start,
                "hw": limit.high_watermark,
                "lso": limit.last_stable_offset,
                "open": await open_transactions(cluster, at),
                "states": known if at == places[0] else {},
            }
            context.history.note("run", "final", INFO, value)
    except (NotDone, KafkaError, BrokerUnreachable, TimeoutError) as error:
        context.problem(f"the end: {error}")


async def _nothing_open(
    context: Context, cluster: Cluster, places: list[Place]
) -> dict[Place, Ends]:
    """Waits until every transaction is over, or surely never will be."""
    deadline = time.monotonic() + context.options.transaction_timeout + SWEEP
    quiet_since = None
    while True:
        limits = await ends(cluster, places)
        held = any(each.last_stable_offset < each.high_watermark for each in limits.values())
        now = time.monotonic()
        if not held or now > deadline:
            return limits
        known = await states(cluster, context.transactional_ids)
        if any(state in _OPEN for state in known.values()):
            quiet_since = None
        else:
            quiet_since = quiet_since or now
            if now - quiet_since > QUIET:
                return limits
        await asyncio.sleep(_LOOK)


async def _read_all(
    context: Context, cluster: Cluster, limits: dict[Place, Ends], *, committed: bool
) -> None:
    """From the beginning, by somebody who was not there before."""
    name = "final-committed" if committed else "final-uncommitted"
    reader = Reader(context.history, cluster, name, committed=committed, final=True)
    reader.assign({at: limit.start for at, limit in limits.items()})
    deadline = time.monotonic() + STOP_PATIENCE
    while any(
        reader.positions[at] < (limit.last_stable_offset if committed else limit.high_watermark)
        for at, limit in limits.items()
    ):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{name} did not come to the end")
        await reader.poll()


async def _clean_up(context: Context, cluster: Cluster, workload: Workload) -> None:
    try:
        for topic in workload.topics:
            await Admin(cluster).delete_topic(context.topic(topic.name))
        for stage in workload.stages:
            await GroupAdmin(cluster).delete(context.topic(stage.group))
    except KafkaError as error:
        if error.code not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.GROUP_ID_NOT_FOUND):
            context.problem(f"cleaning up: {error}")
    except (BrokerUnreachable, TimeoutError) as error:
        context.problem(f"cleaning up: {error}")
