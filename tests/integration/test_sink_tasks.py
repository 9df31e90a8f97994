"""The tasks of the sink and its questions to the cluster, on a broker."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.connection import BrokerUnreachable, Connection
from barnabas.client.producer import EncodedBatch
from barnabas.client.transaction_admin import NO_TIMEOUT_MS, TransactionAdmin, client_of
from barnabas.client.two_phase import end_transaction, init_producer_id
from barnabas.pipeline.sink.options import SinkOptions, parse_options
from barnabas.pipeline.sink.planning import SinkPlan, make_plan, partitions_of
from barnabas.pipeline.sink.protocol import SinkError, Winner
from barnabas.pipeline.sink.task import RoutedBatch, SinkProcess, TaskLabel, TaskOutput
from barnabas.pipeline.sink.task_ids import TaskIds
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.records.record import Record, build_batch
from barnabas.protocol.schema import Api
from barnabas.testing import Broker
from tests.integration.reading import values
from tests.support.topic_names import topic_name

LABEL = TaskLabel("query", 7, 3, 0)
TWO_PHASE = {"transaction.two.phase.commit.enable": "true", "transaction.max.timeout.ms": "120000"}
NO_QUESTIONS = {"ApiVersions", "Metadata", "FindCoordinator", "Produce"}
"""Requests for connections and places, and the rows."""


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker(TWO_PHASE) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
async def cluster(servers: str) -> AsyncIterator[Cluster]:
    async with Cluster(servers) as cluster, asyncio.timeout(30):
        yield cluster


@pytest.fixture
async def topic(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    name = topic_name(request)
    await Admin(cluster).create_topic(name, partitions=2, configs={"max.message.bytes": "2000"})
    return name


def options_of(servers: str, **options: str) -> SinkOptions:
    given = {"kafka.bootstrap.servers": servers, "sinkId": "sink", **options}
    return parse_options(given, streaming=True)


def plan_of(servers: str, **options: str) -> SinkPlan:
    return SinkPlan(options_of(servers, **options), 60_000, False)


def rows(topic: str, *sent: bytes, partition: int = 0, first_row: int = 0) -> RoutedBatch:
    records = [Record(index, 1000, None, value, ()) for index, value in enumerate(sent)]
    return RoutedBatch(
        topic, partition, EncodedBatch(bytearray(build_batch(records)), len(sent)), first_row
    )


async def written(
    cluster: Cluster, plan: SinkPlan, ids: TaskIds, *batches: RoutedBatch
) -> Winner | None:
    output = TaskOutput(cluster, plan, ids, LABEL)
    if batches:
        await output.send(batches)
    return await output.finish()


async def commit(cluster: Cluster, winner: Winner) -> None:
    kept = await init_producer_id(
        cluster, winner.transactional_id, 60_000, two_phase=True, keep_prepared=True
    )
    await end_transaction(cluster, winner.transactional_id, kept.client, committed=True)


async def test_rows_of_a_task_are_visible_when_the_driver_commits(
    cluster: Cluster, servers: str, topic: str
) -> None:
    ids = TaskIds("sink", topic)
    batches = rows(topic, b"1", b"2", partition=1), rows(topic, b"3", partition=1)
    winner = await written(cluster, plan_of(servers), ids, *batches)
    assert winner is not None
    assert (winner.transactional_id, winner.rows) == (f"sink.{topic}.0", 3)
    assert winner.first is not None
    assert winner.first[:2] == (topic, 1)
    shown = await TransactionAdmin(cluster).describe(winner.transactional_id)
    assert shown.transaction_state == "Ongoing"
    assert winner.ongoing == (shown.producer_id, shown.producer_epoch)
    await commit(cluster, winner)
    assert await values(cluster, topic, 3) == [b"1", b"2", b"3"]


async def test_task_without_rows_has_no_transaction(cluster: Cluster, servers: str) -> None:
    ids = TaskIds("sink", "empty")
    assert await written(cluster, plan_of(servers), ids) is None
    assert ids.take() == "sink.empty.0"


async def test_id_is_used_again_only_after_its_transaction_is_completed(
    cluster: Cluster, servers: str, topic: str
) -> None:
    ids, plan = TaskIds("sink", topic), plan_of(servers)
    first = await written(cluster, plan, ids, rows(topic, b"1"))
    second = await written(cluster, plan, ids, rows(topic, b"2"))
    assert first is not None
    assert second is not None
    assert second.transactional_id != first.transactional_id
    for winner in (first, second):
        await commit(cluster, winner)
    third = await written(cluster, plan, ids, rows(topic, b"3"))
    assert third is not None
    assert third.transactional_id == first.transactional_id
    assert third.ongoing.epoch > first.ongoing.epoch
    await commit(cluster, third)


async def test_id_whose_first_request_was_not_answered_is_left(
    cluster: Cluster, servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request may still be in a queue: it would abort a decided transaction."""
    send = Connection.request
    lost: list[str] = []

    async def lose_first(self: Connection, api: Api, request: object, **keys: Any) -> object:
        answer = await send(self, api, request, **keys)
        if isinstance(request, InitProducerIdRequest) and not lost:
            lost.append(str(request.transactional_id))
            raise BrokerUnreachable("the connection was lost")
        return answer

    monkeypatch.setattr(Connection, "request", lose_first)
    winner = await written(cluster, plan_of(servers), TaskIds("sink", topic), rows(topic, b"1"))
    assert winner is not None
    assert lost == [f"sink.{topic}.0"]
    assert winner.transactional_id == f"sink.{topic}.1"
    await commit(cluster, winner)


async def test_task_costs_its_coordinator_four_requests_at_most(
    cluster: Cluster, servers: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its id is described if it was used before; two requests are the driver's."""
    send = Connection.request
    asked: list[str] = []

    async def counted(self: Connection, api: Api, request: object, **keys: Any) -> object:
        asked.append(api.name)
        return await send(self, api, request, **keys)

    monkeypatch.setattr(Connection, "request", counted)
    ids, plan = TaskIds("sink", topic), plan_of(servers)
    requests = []
    for value in (b"1", b"2"):
        asked.clear()
        winner = await written(cluster, plan, ids, rows(topic, value))
        assert winner is not None
        await commit(cluster, winner)
        requests.append([name for name in asked if name not in NO_QUESTIONS])
    new = ["InitProducerId", "InitProducerId", "EndTxn"]
    assert requests == [new, ["DescribeTransactions", *new]]


async def test_failed_task_aborts_its_rows(cluster: Cluster, servers: str, topic: str) -> None:
    ids = TaskIds("sink", topic)
    output = TaskOutput(cluster, plan_of(servers), ids, LABEL)
    await output.send([rows(topic, b"dropped")])
    await output.abort()
    shown = await TransactionAdmin(cluster).describe(f"sink.{topic}.0")
    assert shown.transaction_state != "Ongoing"
    winner = await written(cluster, plan_of(servers), ids, rows(topic, b"kept"))
    assert winner is not None
    await commit(cluster, winner)
    assert await values(cluster, topic, 1) == [b"kept"]


async def test_record_that_is_too_large_fails_the_task_with_its_row(
    cluster: Cluster, servers: str, topic: str
) -> None:
    output = TaskOutput(cluster, plan_of(servers), TaskIds("sink", topic), LABEL)
    await output.send([rows(topic, b"x" * 3000, first_row=41)])
    with pytest.raises(
        SinkError, match=r"task 3 .* of batch 7: row 41 was not written .*raise max"
    ):
        await output.finish()
    await output.abort()
    assert await TransactionAdmin(cluster).open_under(f"sink.{topic}.") == []


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
async def test_failure_behind_a_delivered_batch_of_one_request_fails_the_task(
    cluster: Cluster, servers: str, topic: str, delivery: str
) -> None:
    plan = plan_of(servers, delivery=delivery)
    output = TaskOutput(cluster, plan, TaskIds("sink", delivery), LABEL)
    await output.send([rows(topic, b"1"), rows(topic, b"x" * 3000, partition=1, first_row=1)])
    with pytest.raises(SinkError, match="row 1 was not written"):
        await output.finish()
    await output.abort()


async def test_at_least_once_rows_are_visible_without_a_driver(
    cluster: Cluster, servers: str, topic: str
) -> None:
    plan = plan_of(servers, delivery="at-least-once")
    assert await written(cluster, plan, TaskIds("sink", topic), rows(topic, b"1")) is None
    assert await values(cluster, topic, 1) == [b"1"]


def test_process_keeps_its_ids_by_sink(servers: str) -> None:
    process = SinkProcess.current()
    assert process is SinkProcess.current()
    assert "." not in process.name
    assert process.ids(options_of(servers)) is process.ids(options_of(servers))
    assert process.ids(options_of(servers, sinkId="other")) is not process.ids(options_of(servers))


async def test_plan_takes_the_brokers_longest_timeout(
    cluster: Cluster, servers: str, topic: str
) -> None:
    plan = await make_plan(cluster, options_of(servers, topic=topic))
    assert (plan.transaction_timeout_ms, plan.two_phase_tasks) == (120_000, False)
    with pytest.raises(SinkError, match=r"transactionTimeout=121000 ms .* 120000 ms: lower it"):
        await make_plan(cluster, options_of(servers, topic=topic, transactionTimeout="121 s"))


async def test_brokers_with_a_too_short_timeout_are_refused() -> None:
    async with Broker({**TWO_PHASE, "transaction.max.timeout.ms": "59000"}) as broker:
        async with Cluster(broker.bootstrap_servers) as cluster:
            with pytest.raises(
                SinkError, match=r"59000 ms is too short .* set it to 60000 or more"
            ):
                await make_plan(cluster, options_of(broker.bootstrap_servers))


async def test_missing_topic_is_refused_and_not_created(cluster: Cluster, servers: str) -> None:
    with pytest.raises(SinkError, match=r"topic missing cannot be written: .*create it first"):
        await make_plan(cluster, options_of(servers, topic="missing"))
    with pytest.raises(SinkError):
        await partitions_of(cluster, "missing")


async def test_exactly_once_names_the_key_that_the_brokers_lack() -> None:
    async with Broker() as broker:
        async with Cluster(broker.bootstrap_servers) as cluster:
            plan = options_of(broker.bootstrap_servers)
            with pytest.raises(SinkError, match=r"transaction\.two\.phase\.commit\.enable=true"):
                await make_plan(cluster, plan)
            bounded = options_of(broker.bootstrap_servers, delivery="exactly-once-bounded")
            assert not (await make_plan(cluster, bounded)).two_phase_tasks


@pytest.mark.xdist_group("client-on-kafka")
async def test_tasks_on_kafka_that_serves_two_phase_without_keep_never_time_out(
    kafka_for_clients: str, request: pytest.FixtureRequest
) -> None:
    async with Cluster(kafka_for_clients) as cluster, asyncio.timeout(30):
        topic = topic_name(request)
        await Admin(cluster).create_topic(topic, partitions=2)
        exactly = options_of(kafka_for_clients, topic=topic)
        with pytest.raises(SinkError, match="Apache Kafka keeps no transactions"):
            await make_plan(cluster, exactly)
        bounded = options_of(kafka_for_clients, topic=topic, delivery="exactly-once-bounded")
        plan = await make_plan(cluster, bounded)
        assert plan.two_phase_tasks
        winner = await written(cluster, plan, TaskIds("sink", topic), rows(topic, b"1"))
        assert winner is not None
        (row,) = await TransactionAdmin(cluster).open_under(f"sink.{topic}.")
        assert row.transaction_timeout_ms == NO_TIMEOUT_MS
        await end_transaction(cluster, winner.transactional_id, client_of(row), committed=True)
        assert await values(cluster, topic, 1) == [b"1"]


@pytest.mark.parametrize(
    ("partitions", "policy", "reason"),
    [
        (1, "delete", "deletes the last decision: set cleanup.policy=compact"),
        (2, "compact", "has 2 partitions"),
    ],
)
async def test_topic_that_does_not_keep_the_last_decision_is_refused(
    cluster: Cluster, servers: str, partitions: int, policy: str, reason: str
) -> None:
    name = f"keeps-{policy}"
    configs = {"cleanup.policy": policy}
    await Admin(cluster).create_topic(f"{name}.decisions", partitions=partitions, configs=configs)
    with pytest.raises(SinkError, match=reason):
        await make_plan(cluster, options_of(servers, sinkId=name))
