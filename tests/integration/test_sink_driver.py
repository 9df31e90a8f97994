"""Drivers of a sink on a broker: commit, abort, recovery by command, last epochs, many tasks."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence

import pytest

from barnabas.client.admin import SAFE_DOWNGRADE, Admin, update_feature
from barnabas.client.batches import FetchSettings, fetch_batches
from barnabas.client.cluster import Cluster
from barnabas.client.producing.partition_queue import ProducerIdAndEpoch
from barnabas.client.transaction_admin import TransactionAdmin, client_of
from barnabas.client.transactional_producer import TransactionalProducer
from barnabas.client.two_phase import end_transaction, init_producer_id, keep_transaction
from barnabas.coordinator.transaction import ending, metadata, producers
from barnabas.operations.sinks.decisions import decode
from barnabas.pipeline.sink.cluster_port import ClusterPort
from barnabas.pipeline.sink.options import parse_options
from barnabas.pipeline.sink.planning import make_plan
from barnabas.pipeline.sink.port import Fate, FirstRecord, Identity, Place
from barnabas.pipeline.sink.protocol import (
    Batch,
    Commit,
    SinkError,
    SinkSettings,
    Winner,
    abort,
    check_owner,
    commit,
)
from barnabas.pipeline.sink.recover import recover
from barnabas.protocol.backoff import Backoff
from barnabas.protocol.config_resources import ConfigResourceType
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.testing import Broker
from barnabas.testing import Cluster as Brokers
from tests.support.answers import holds
from tests.support.command_line import Cli
from tests.support.waiting import eventually

PARTITIONS = 4
TIMEOUT_MS = 60_000
TWO_PHASE = {"transaction.two.phase.commit.enable": "true"}


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker({**TWO_PHASE, "transaction.state.log.num.partitions": "4"}) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
async def cluster(servers: str) -> AsyncIterator[Cluster]:
    async with Cluster(servers) as cluster:
        yield cluster


class Sink:
    """A sink with an output topic of its own."""

    def __init__(self, cluster: Cluster, name: str = "") -> None:
        self.cluster = cluster
        self.name = name or f"sink-{uuid.uuid4().hex[:8]}"
        self.output = f"{self.name}-out"
        self.settings = SinkSettings(self.name, TIMEOUT_MS)

    async def create(self) -> "Sink":
        await Admin(self.cluster).create_topic(self.output, partitions=PARTITIONS)
        return self

    def port(self) -> ClusterPort:
        return ClusterPort(self.cluster, self.name, like=self.output)

    async def task(self, number: int, value: bytes = b"row") -> Winner:
        """Write a row in a transaction of its own, as an executor does."""
        producer = TransactionalProducer(self.cluster, f"{self.name}.process.{number}")
        await producer.init_transactions()
        await producer.begin_transaction()
        delivered = await producer.send(self.output, value, partition=number % PARTITIONS)
        await producer.flush()
        place = Place(*delivered.result())
        identity = Identity(*producer.identity)
        await producer.abandon()
        return Winner(f"{self.name}.process.{number}", identity, 1, place)

    async def tasks(self, count: int, first: int = 0) -> list[Winner]:
        return await asyncio.gather(*(self.task(first + each) for each in range(count)))

    async def commit(self, number: int, winners: Sequence[Winner], query: str = "q") -> None:
        await commit(self.port(), self.settings, Batch(query, number, "d"), winners)

    async def _nothing_open(self) -> bool:
        return not await TransactionAdmin(self.cluster).open_under(f"{self.name}.")

    async def visible(self) -> int:
        """Return how many rows a read_committed reader sees, when no transaction is open."""
        await eventually(self._nothing_open)
        count = 0
        for partition in range(PARTITIONS):
            offset, end = 0, -1
            while offset != end:
                end = offset
                where = TopicPartition(self.output, partition)
                found = await fetch_batches(self.cluster, where, offset, FetchSettings(max_wait=0))
                count += sum(header.record_count for _, header in found.visible)
                offset = found.next_offset
                if found.last_stable_offset < found.high_watermark:
                    end = -1
        return count


@pytest.fixture
async def sink(cluster: Cluster) -> Sink:
    return await Sink(cluster).create()


async def test_committed_batch_is_visible_and_leaves_nothing_open(sink: Sink) -> None:
    winners = await sink.tasks(3)
    await sink.task(7)  # a losing attempt
    await sink.commit(0, winners)
    assert await sink.visible() == 3
    stored = await sink.port().last_decision(None)
    assert stored is not None
    decision = decode(stored.value)
    assert [each.ongoing for each in decision.winners] == [each.ongoing for each in winners]
    assert all(each.client.epoch == each.ongoing.epoch + 1 for each in decision.winners)


async def test_aborted_batch_is_invisible_and_leaves_nothing_open(sink: Sink) -> None:
    winners = await sink.tasks(3)
    await abort(sink.port(), sink.settings, Batch("q", 0, None), [*winners, None])
    assert await sink.visible() == 0


async def test_repeated_batch_is_visible_once(sink: Sink) -> None:
    await sink.commit(0, await sink.tasks(3))
    await sink.commit(0, await sink.tasks(3, first=3))
    assert await sink.visible() == 3


async def test_other_query_is_refused_until_it_takes_over(sink: Sink) -> None:
    await sink.commit(5, await sink.tasks(2))
    with pytest.raises(SinkError, match="takeOverFrom=q"):
        await check_owner(sink.port(), sink.settings, "other")
    winners = await sink.tasks(2, first=2)
    with pytest.raises(SinkError, match="takeOverFrom=q"):
        await sink.commit(0, winners, query="other")
    sink.settings = sink.settings._replace(take_over_from="q")
    await sink.commit(0, await sink.tasks(2, first=4), query="other")
    await sink.commit(1, await sink.tasks(2, first=6), query="other")
    assert await sink.visible() == 6


async def test_batch_before_the_last_is_refused(sink: Sink) -> None:
    await sink.commit(5, await sink.tasks(2))
    with pytest.raises(SinkError, match="old copy"):
        await sink.commit(4, await sink.tasks(2, first=2))
    assert await sink.visible() == 2


async def test_batch_with_other_offsets_is_refused(sink: Sink) -> None:
    await sink.commit(5, await sink.tasks(2))
    with pytest.raises(SinkError, match="other offsets"):
        await commit(sink.port(), sink.settings, Batch("q", 5, "e"), await sink.tasks(2, first=2))
    assert await sink.visible() == 2


async def test_winner_that_has_ended_fails_the_batch_with_its_age(sink: Sink) -> None:
    winners = await sink.tasks(2)
    port = sink.port()
    winners[1] = winners[1]._replace(began_ms=port.now_ms() - 5_000)
    ended = winners[1]
    await end_transaction(
        sink.cluster, ended.transactional_id, ProducerIdAndEpoch(*ended.ongoing), committed=False
    )
    with pytest.raises(SinkError, match=r"process\.1 \(1 rows\) were ended .* after 5 s"):
        await sink.commit(0, winners)
    assert await sink.visible() == 0


async def test_fates_are_told_by_the_log(sink: Sink) -> None:
    port = sink.port()
    first, second, third = await sink.tasks(3)
    for each, committed in ((first, True), (second, False)):
        identity = ProducerIdAndEpoch(*each.ongoing)
        await end_transaction(sink.cluster, each.transactional_id, identity, committed=committed)

    async def fate(winner: Winner, identity: Identity | None = None) -> Fate:
        assert winner.first is not None
        return (await port.fates([FirstRecord(winner.first, identity or winner.ongoing)]))[0]

    async def are_ended() -> bool:
        return Fate.OPEN not in (await fate(first), await fate(second))

    await eventually(are_ended)
    assert await fate(first) is Fate.COMMITTED
    assert await fate(second) is Fate.ABORTED
    assert await fate(third) is Fate.OPEN
    assert await fate(first, Identity(12345, 0)) is Fate.GONE
    await abort(port, sink.settings, Batch("q", 0, None), [third])


async def test_fates_are_told_while_an_earlier_transaction_of_another_is_open(sink: Sink) -> None:
    other = TransactionalProducer(sink.cluster, f"{sink.name}-other")
    await other.init_transactions()
    async with other.transaction():
        for partition in range(PARTITIONS):
            await other.send(sink.output, b"earlier", partition=partition)
        await other.flush()
        winners = await sink.tasks(3)
        for each, committed in zip(winners, (True, False), strict=False):
            identity = ProducerIdAndEpoch(*each.ongoing)
            await end_transaction(
                sink.cluster, each.transactional_id, identity, committed=committed
            )
        records = [FirstRecord(each.first, each.ongoing) for each in winners if each.first]

        async def are_told() -> bool:
            return await sink.port().fates(records) == [Fate.COMMITTED, Fate.ABORTED, Fate.OPEN]

        await eventually(are_told)
    await abort(sink.port(), sink.settings, Batch("q", 0, None), winners[2:])


@pytest.fixture
def few_epochs(monkeypatch: pytest.MonkeyPatch) -> int:
    """Let a producer id have ten epochs; return the last."""
    for module in (metadata, producers, ending):
        monkeypatch.setattr(module, "LAST_CLIENT_EPOCH", 9)
    return 9


@pytest.mark.parametrize("left", range(4))
@pytest.mark.parametrize("identity", ["ongoing", "client"])
async def test_epochs_end_in_the_middle_of_a_batch(
    sink: Sink, few_epochs: int, left: int, identity: str
) -> None:
    """So many epochs are left to the task, or to the first driver that pins after others."""
    name = f"{sink.name}.process.0"
    if identity == "ongoing":
        for _ in range(few_epochs - left):
            await init_producer_id(sink.cluster, name, TIMEOUT_MS)
    winner = await sink.task(0)
    client = Identity(*winner.ongoing)
    while identity == "client" and client.epoch < few_epochs - left:
        kept = await keep_transaction(sink.cluster, name, TIMEOUT_MS)
        assert kept.ongoing == winner.ongoing
        client = Identity(*kept.client)
    await sink.commit(0, [winner])
    for number in range(1, 6):
        await sink.commit(number, [await sink.task(0)])
    assert await sink.visible() == 6


async def config_of(cluster: Cluster, topic: str, key: str) -> str | None:
    rows = await Admin(cluster).describe_configs(ConfigResourceType.TOPIC, topic)
    return {row.name: row.value for row in rows}[key]


async def test_decisions_topic_is_compacted_and_has_one_partition(sink: Sink) -> None:
    await sink.commit(0, await sink.tasks(1))
    topic = f"{sink.name}.decisions"
    assert await config_of(sink.cluster, topic, "cleanup.policy") == "compact"
    assert len((await sink.cluster.topic(topic)).leaders) == 1


async def test_start_of_a_new_sink_waits_for_no_topic(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The coordinator of transactions is there after the first of them.
    await sink.task(0)
    waits: list[float] = []
    monkeypatch.setattr(Backoff, "failed", lambda self: waits.append(self.wait) or 0.0)
    new = Sink(sink.cluster)
    options = {
        "kafka.bootstrap.servers": "unused:1",
        "topic": sink.output,
        "sinkId": new.name,
        "checkpointLocation": "unused",
    }
    await make_plan(sink.cluster, parse_options(options, streaming=True))
    await check_owner(new.port(), new.settings, "q")
    assert waits == []


async def test_decisions_topic_is_replicated_like_the_output() -> None:
    """Without an output the defaults of the brokers apply."""
    defaults = {"default.replication.factor": "3", "min.insync.replicas": "1"}
    async with Brokers({**TWO_PHASE, **defaults}) as brokers:
        async with Cluster(brokers.bootstrap_servers) as cluster:
            sink = Sink(cluster)
            await Admin(cluster).create_topic(
                sink.output,
                partitions=1,
                replication_factor=2,
                configs={"min.insync.replicas": "2"},
            )

            async def replication_of(port: ClusterPort, sink_id: str) -> tuple[int, str | None]:
                await port.fence()
                topic = f"{sink_id}.decisions"
                (row,) = (await cluster.topic(topic)).description.partitions
                least = await config_of(cluster, topic, "min.insync.replicas")
                return len(row.replica_nodes), least

            assert await replication_of(sink.port(), sink.name) == (2, "2")
            assert await replication_of(ClusterPort(cluster, "columns"), "columns") == (3, "1")


async def test_last_decision_is_found_behind_many_dropped_ones(sink: Sink) -> None:
    await sink.commit(0, await sink.tasks(1))
    for each in range(20):
        await abort(sink.port(), sink.settings, Batch("q", 1, None), [await sink.task(1 + each)])
    with pytest.raises(SinkError, match="belongs to query q"):
        await sink.commit(0, await sink.tasks(1, first=40), query="other")


async def test_last_decision_survives_compaction_behind_dropped_ones() -> None:
    """Dropped decisions have the key of the last committed one, and stand behind it."""
    async with Broker({"log.cleaner.backoff.ms": "50", **TWO_PHASE}) as broker:
        async with Cluster(broker.bootstrap_servers) as cluster:
            sink = await Sink(cluster).create()
            topic = f"{sink.name}.decisions"
            tight = {"segment.ms": "1", "min.cleanable.dirty.ratio": "0.0"}
            await Admin(cluster).create_topic(
                topic, partitions=1, configs={"cleanup.policy": "compact", **tight}
            )
            for number in range(3):
                await sink.commit(number, await sink.tasks(1))
            for each in range(8):
                dropped = [await sink.task(1 + each)]
                await abort(sink.port(), sink.settings, Batch("q", 3, None), dropped)

            async def is_compacted() -> bool:
                where = TopicPartition(topic, 0)
                found = await fetch_batches(cluster, where, 0, FetchSettings(max_wait=0))
                return not found.visible or found.visible[0][1].base_offset >= 4

            await eventually(is_compacted)
            stored = await sink.port().last_decision(None)
            assert stored is not None
            assert decode(stored.value).number == 2
            with pytest.raises(SinkError, match="old copy"):
                await sink.commit(1, await sink.tasks(1, first=20))
            await sink.commit(3, await sink.tasks(1, first=21))
            assert await sink.visible() == 4


async def test_batch_of_1000_tasks_is_committed(sink: Sink) -> None:
    winners: list[Winner] = []
    for first in range(0, 1000, 200):
        winners += await sink.tasks(200, first=first)
    await sink.commit(0, winners)
    assert await sink.visible() == 1000


async def test_batch_is_committed_among_10_000_ids(sink: Sink) -> None:
    """Processes that are gone leave their ids behind, until these expire."""
    for first in range(0, 10_000, 500):
        ids = (f"{sink.name}.gone.{first + each}" for each in range(500))
        await asyncio.gather(*(init_producer_id(sink.cluster, each, TIMEOUT_MS) for each in ids))
    winners = await sink.tasks(3)
    losers = await sink.tasks(2, first=3)
    assert len(await sink.port().list_open()) == len(winners) + len(losers)
    await sink.commit(0, winners)
    assert await sink.visible() == 3


async def test_bounded_delivery_works_with_the_older_protocol() -> None:
    """All transactions of a producer have one epoch, and partitions are added by the client."""
    async with Broker() as broker:
        async with Cluster(broker.bootstrap_servers) as cluster:
            await update_feature(cluster, "transaction.version", 1, change=SAFE_DOWNGRADE)
            sink = await Sink(cluster).create()
            sink.settings = sink.settings._replace(bounded=True)
            await sink.commit(0, await sink.tasks(3))
            await sink.commit(0, await sink.tasks(3, first=3))
            dropped = await sink.tasks(2)
            await abort(sink.port(), sink.settings, Batch("q", 1, None), dropped)
            await decide_and_die(sink, await sink.tasks(2, first=6), number=1)
            await sink.commit(1, await sink.tasks(2, first=8))
            await sink.commit(2, await sink.tasks(1))
            assert await sink.visible() == 3 + 2 + 1
            exactly = sink.settings._replace(bounded=False)
            winners = await sink.tasks(1)
            with pytest.raises(SinkError, match=r"transaction\.two\.phase\.commit\.enable=true"):
                await commit(sink.port(), exactly, Batch("q", 3, None), winners)
            assert await sink.visible() == 6


async def decide_and_die(sink: Sink, winners: Sequence[Winner], number: int = 0) -> None:
    """Go up to step 6."""
    batch = Batch("q", number, "d")
    await Commit(sink.port(), sink.settings, batch, winners).reach_decision()


@pytest.mark.parametrize("loss", ["the topic is deleted", "retention has deleted the rows"])
async def test_recovery_goes_on_without_rows_that_are_gone(sink: Sink, loss: str) -> None:
    """It ended with UNKNOWN_TOPIC_OR_PARTITION, with --accept too, if the output was deleted."""
    winners = await sink.tasks(2)
    await sink.commit(0, winners)
    assert await sink.visible() == 2
    # The ids are used again: their coordinators no longer tell how the batch has ended.
    await sink.tasks(2)
    admin = Admin(sink.cluster)
    if loss == "the topic is deleted":
        await admin.delete_topic(sink.output)
    else:
        await abort(sink.port(), sink.settings, Batch("q", 1, None), [])
        await eventually(sink._nothing_open)
        rows = [TopicPartition(sink.output, each) for each in range(PARTITIONS)]
        await admin.delete_records(dict.fromkeys(rows, -1))
    seen = await recover(sink.port(), sink.name, dry_run=True)
    assert sorted(each.first.topic for each in seen.unknown) == [sink.output] * 2
    found = await recover(sink.port(), sink.name)
    assert not found.is_whole
    gone = [line for line in found.lines if line.startswith("unknown: ")]
    assert len(gone) == 2
    assert all(f"1 rows, the first at {sink.output}-" in line for line in gone)
    assert (await recover(sink.port(), sink.name, accept=True)).written is not None
    assert (await recover(sink.port(), sink.name)).is_whole


def test_recovery_by_command_carries_out_the_last_decision(servers: str, cli: Cli) -> None:
    async def die() -> str:
        async with Cluster(servers) as cluster:
            sink = await Sink(cluster).create()
            winners = await sink.tasks(2)
            await sink.task(8)
            await decide_and_die(sink, winners)
            return sink.name

    name = asyncio.run(die())
    dry = holds(servers, "pipeline", "recover", name, "--dry-run")
    assert [len(dry["committed"]), len(dry["aborted"])] == [2, 1]
    told = cli("pipeline", "recover", name, "-b", servers).decode()
    assert "2 of its transactions were committed" in told
    assert "1 other transactions were aborted" in told
    again = holds(servers, "pipeline", "recover", name)
    assert [again["committed"], again["aborted"], again["is_whole"]] == [[], [], True]


@pytest.mark.parametrize(
    ("way", "told", "rows"),
    [
        ("--accept", "the loss was accepted: the job goes on with the next batch", 1),
        ("--rewrite", "the decision was taken back: the job writes the batch again", 1 + 2),
    ],
)
def test_loss_is_answered_by_command(
    servers: str, cli: Cli, way: str, told: str, rows: int
) -> None:
    """`rows` are visible when the job has repeated the batch of two tasks, one of them lost."""

    async def lose_one() -> str:
        async with Cluster(servers) as cluster:
            sink = await Sink(cluster).create()
            await decide_and_die(sink, await sink.tasks(2))
            lost = (await TransactionAdmin(cluster).open_under(f"{sink.name}."))[0]
            await end_transaction(cluster, lost.transactional_id, client_of(lost), committed=False)
            return sink.name

    async def repeat(name: str) -> int:
        async with Cluster(servers) as cluster:
            sink = Sink(cluster, name)
            await sink.commit(0, await sink.tasks(2, first=2))
            return await sink.visible()

    name = asyncio.run(lose_one())
    command = ("pipeline", "recover", name, "-b", servers)
    code, text, _ = cli.run(*command)
    assert (code, b"lost: " in text, b"--accept, or write" in text) == (3, True, True)
    found = holds(servers, "pipeline", "recover", name, "--dry-run", code=3)
    (lost,) = found["lost"]
    assert (lost["rows"], lost["transactional_id"] in text.decode()) == (1, True)
    assert told in cli(*command, way).decode().splitlines()
    assert holds(servers, "pipeline", "recover", name)["is_whole"]
    assert asyncio.run(repeat(name)) == rows


def test_loss_is_not_answered_both_ways(servers: str, cli: Cli) -> None:
    code, _, errors = cli.run("pipeline", "recover", "s", "-b", servers, "--accept", "--rewrite")
    assert (code, b"give --accept or --rewrite, not both" in errors) == (2, True)


def test_recovery_of_an_unknown_sink_is_one_line(servers: str, cli: Cli) -> None:
    code, _, errors = cli.run("pipeline", "recover", "no-such-sink", "-b", servers)
    assert code == 1
    assert errors.decode().count("\n") == 1
    assert "check its name" in errors.decode()
