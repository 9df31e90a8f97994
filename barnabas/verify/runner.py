"""The runner: it creates topics, runs the load, and collects the final state for the checks."""

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
from barnabas.client.producer import ProducerSettings
from barnabas.client.transactional_producer import TransactionalProducer
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.verify.context import Context
from barnabas.verify.history import INFO, Counts, History, Partition
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
from barnabas.verify.wire.recorder import OperationFailed
from barnabas.verify.workloads.churn import churn
from barnabas.verify.workloads.compacted import CompactedTopic
from barnabas.verify.workloads.hijack import Hijack
from barnabas.verify.workloads.idempotent import IdempotentProducers
from barnabas.verify.workloads.money import Money
from barnabas.verify.workloads.observers import read_followers, watch_topics
from barnabas.verify.workloads.pipeline import ConsumerMembers, Members, Pipeline
from barnabas.verify.workloads.queue import Queue
from barnabas.verify.workloads.workload import Workload

WORKLOADS: Final[dict[str, Callable[[], Workload]]] = {
    "queue": Queue,
    "pipeline": Pipeline,
    "members": Members,
    "consumer-members": ConsumerMembers,
    "money": Money,
    "idempotent": IdempotentProducers,
    "compacted": CompactedTopic,
    "hijack": Hijack,
}

STOP_PATIENCE: Final = 90.0
"""Seconds until the parts of the run must have stopped; each operation has retries."""
USABLE: Final = 6.0
"""Seconds in which a transaction must commit for a cluster to be used."""
_DELETE: Final = 2.0
SWEEP: Final = 20.0
"""Seconds after its timeout until a transaction must be aborted: brokers check every 10 s."""
QUIET: Final = 3.0
"""Seconds without an open transaction at any coordinator; then an LSO that stays behind hangs."""
_LOOK: Final = 0.1
_LOOKS: Final = 1.0
"""Seconds between two looks at the events so far."""
_OPEN: Final = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")


async def require_usable(options: Options) -> None:
    """Commit one transaction in a separate topic; raises the error of a cluster that cannot."""
    name = f"verify-{time.time_ns() // 1_000_000:x}-usable"
    async with Cluster(
        options.bootstrap,
        client_id=options.client_id,
        # Before the whole time is over, so that the error of the broker is reported.
        timeout=USABLE - 1,
        connect=options.connect,
    ) as cluster:
        admin = Admin(cluster)
        try:
            async with asyncio.timeout(USABLE):
                await admin.create_topic(
                    name,
                    partitions=1,
                    replication_factor=options.replication_factor,
                    configs=_durability(options),
                )
                settings = ProducerSettings(delivery_timeout=USABLE - 1)
                async with TransactionalProducer(cluster, name, settings) as producer:
                    await producer.init_transactions()
                    await producer.begin_transaction()
                    await (await producer.send(name, b"usable"))
                    await producer.commit_transaction()
        except TimeoutError:
            raise TimeoutError(f"no transaction was committed in {USABLE:g} s") from None
        finally:
            if not options.keep:
                with contextlib.suppress(KafkaError, BrokerUnreachable, TimeoutError):
                    async with asyncio.timeout(_DELETE):
                        await admin.delete_topic(name)


async def run(
    options: Options,
    file: IO[str],
    progress: Callable[[str], None] = lambda _: None,
    enough: asyncio.Event | None = None,
    look: Callable[[Counts], None] | None = None,
) -> Counter[str]:
    """Run a workload and write the history to `file`; return the problems with their counts.

    The load ends after its duration, or when `enough` is set; each second of it `look` is given the
    events so far. Raises KafkaError and
    BrokerUnreachable if the cluster cannot be used at all.
    """
    workload = WORKLOADS[options.workload]()
    history = History(file, time.monotonic)
    async with Cluster(
        options.bootstrap, client_id=options.client_id, connect=options.connect
    ) as cluster:
        name = f"verify-{time.time_ns() // 1_000_000:x}"
        version = await transaction_version(cluster)
        context = Context(options, history, name, version)
        try:
            await _prepare(context, cluster, workload, version)
            progress(f"{options.workload} for {options.duration:g} s")
            await _load(context, workload, enough or asyncio.Event(), look)
            await _finish(context, cluster, workload, progress)
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
            # The response to an earlier attempt was lost: the name is unique to this run.
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


async def _load(
    context: Context,
    workload: Workload,
    enough: asyncio.Event,
    look: Callable[[Counts], None] | None,
) -> None:
    watched = [context.topic(topic.name) for topic in workload.topics]
    partitions = [at for topic in workload.topics for at in context.partitions(topic.name)]
    work: list[Callable[[], Awaitable[None]]] = [
        partial(watch_topics, context, watched),
        partial(read_followers, context, partitions),
        *workload.parts(context),
    ]
    if context.options.churn:
        work.append(partial(churn, context, partitions))
    if look is not None:
        work.append(partial(_look_on, context, look))
    async with asyncio.TaskGroup() as tasks:
        parts = [tasks.create_task(_run_part(part)) for part in work]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(context.options.duration):
                await enough.wait()
        context.stopping.set()
        _, late = await asyncio.wait(parts, timeout=STOP_PATIENCE)
        for part in late:
            part.cancel()
            context.problem("a part of the run did not stop")


async def _look_on(context: Context, look: Callable[[Counts], None]) -> None:
    while not context.stopping.is_set():
        look(context.history.counts)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOOKS):
                await context.stopping.wait()


async def _run_part(part: Callable[[], Awaitable[None]]) -> None:
    await part()


async def _finish(
    context: Context, cluster: Cluster, workload: Workload, progress: Callable[[str], None]
) -> None:
    """Collect the final state; without it no record can be reported as lost."""
    try:
        progress("reading the final state")
        names = [context.topic(topic.name) for topic in workload.topics]
        await wait_until_whole(context, cluster, names)
        await workload.finish(context)
        partitions = [at for topic in workload.topics for at in context.partitions(topic.name)]
        limits = await _wait_for_transactions(context, cluster, partitions)
        for stage in workload.stages:
            for at in context.partitions(stage.source):
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
                "states": known if at == partitions[0] else {},
            }
            context.history.note("run", "final", INFO, value)
    except (OperationFailed, KafkaError, BrokerUnreachable, TimeoutError) as error:
        context.problem(f"reading the final state: {error}")


async def _wait_for_transactions(
    context: Context, cluster: Cluster, partitions: list[Partition]
) -> dict[Partition, Ends]:
    """Wait until every transaction is over, or certainly never will be; return the offsets."""
    deadline = time.monotonic() + context.options.transaction_timeout + SWEEP
    quiet_since = None
    while True:
        limits = await ends(cluster, partitions)
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
    context: Context, cluster: Cluster, limits: dict[Partition, Ends], *, committed: bool
) -> None:
    """Read all records from the beginning with a new reader."""
    name = "final-committed" if committed else "final-uncommitted"
    reader = Reader(context.history, cluster, name, committed=committed, final=True)
    reader.assign({at: limit.start for at, limit in limits.items()})
    deadline = time.monotonic() + STOP_PATIENCE
    while any(
        reader.positions[at] < (limit.last_stable_offset if committed else limit.high_watermark)
        for at, limit in limits.items()
    ):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{name} did not reach the end")
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
