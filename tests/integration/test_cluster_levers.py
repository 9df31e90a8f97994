"""The faults that a test sets on requests, connections and clocks of a cluster, as clients see
them."""

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import confluent_kafka
import pytest

from barnabas.client.admin import Admin
from barnabas.client.cluster import TRANSACTION, check
from barnabas.client.cluster import Cluster as ClientCluster
from barnabas.client.connection import BrokerUnreachable, Connection
from barnabas.client.consumer import Consumer, FetchSettings
from barnabas.client.group import GroupMember
from barnabas.client.offsets import EARLIEST
from barnabas.client.producer import Producer
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages import create_topics, describe_cluster, init_producer_id
from barnabas.testing import Cluster
from tests.integration.one_request import code_of
from tests.support.waiting import eventually

DEADLINE = 20.0
QUIET = 0.1
"""Seconds in which a response would have arrived if it were sent."""


@pytest.fixture(scope="module", params=[False, True], ids=["thread", "process"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """One broker: the faults act on it as on each of three."""
    with Cluster(brokers=1, processes=request.param) as cluster:
        yield cluster


@pytest.fixture
async def connection(cluster: Cluster) -> AsyncIterator[Connection]:
    connection = await connect(cluster)
    yield connection
    await connection.close()


async def connect(cluster: Cluster, client_id: str = "test") -> Connection:
    host, _, port = cluster.bootstrap_servers.rpartition(":")
    return await Connection.open(host, int(port), client_id=client_id, timeout=DEADLINE)


async def ask(connection: Connection) -> int:
    """Return the error code of a DescribeCluster response."""
    request = describe_cluster.DescribeClusterRequest(include_cluster_authorized_operations=False)
    answer = await connection.request(describe_cluster.API, request, timeout=DEADLINE)
    return int(answer.error_code)


async def waits(task: "asyncio.Task[int]") -> bool:
    done, _ = await asyncio.wait([task], timeout=QUIET)
    return not done


async def test_hold_of_the_nth_request_lasts_until_it_is_released(
    cluster: Cluster, connection: Connection
) -> None:
    held = cluster.hold("DescribeCluster", 2)
    assert await ask(connection) == 0
    second = asyncio.create_task(ask(connection))
    await held.arrived(DEADLINE)
    assert await waits(second)
    other = await connect(cluster)
    assert await ask(other) == 0
    await other.close()
    assert held.touched == 1
    held.release()
    held.release()
    assert await second == 0


async def test_held_request_is_carried_out_after_its_client_has_disconnected(
    cluster: Cluster,
) -> None:
    held = cluster.hold("CreateTopics", client_id="goes")
    goes = await connect(cluster, "goes")
    request = create_topics.CreateTopicsRequest(
        topics=[
            create_topics.CreatableTopic(
                name="late", num_partitions=1, replication_factor=1, assignments=[], configs=[]
            )
        ],
        timeout_ms=10_000,
        validate_only=False,
    )
    asked = asyncio.create_task(goes.request(create_topics.API, request))
    await held.arrived(DEADLINE)
    goes.abort()
    with pytest.raises(BrokerUnreachable):
        await asked
    held.release()

    def created() -> bool:
        with suppress(ValueError):
            return bool(cluster.in_sync_of("late"))
        return False

    await eventually(created)


async def test_held_produce_appends_the_bytes_that_were_sent(cluster: Cluster) -> None:
    async with ClientCluster(cluster.bootstrap_servers) as client:
        await Admin(client).create_topic("held", partitions=1)
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0, "acks": 1}
    producer = confluent_kafka.Producer(settings)
    with cluster.hold("Produce", topic="held") as held:
        producer.produce("held", b"x" * 10_000, partition=0)
        await held.arrived(DEADLINE)
        # The connection receives the next bytes into the buffer that held the request.
        producer.produce("held", b"y" * 30_000, partition=0)
        assert await asyncio.to_thread(producer.flush, QUIET) == 2
    assert await asyncio.to_thread(producer.flush, DEADLINE) == 0
    async with ClientCluster(cluster.bootstrap_servers) as client:
        consumer = Consumer(client, FetchSettings(max_wait=0.1))
        consumer.assign({("held", 0): EARLIEST})
        values: list[bytes | None] = []
        while len(values) < 2:
            values += [message.value for message in await consumer.poll()]
    assert values == [b"x" * 10_000, b"y" * 30_000]


async def test_levers_reach_members_of_consumer_groups(cluster: Cluster) -> None:
    api, group = "ConsumerGroupHeartbeat", "levers"
    await cluster.aio.create_topic("read", partitions=1)

    def member(client: ClientCluster) -> GroupMember:
        return GroupMember(client, Consumer(client), group, ["read"], protocol="consumer")

    async with (
        ClientCluster(cluster.bootstrap_servers, client_id="held") as one,
        ClientCluster(cluster.bootstrap_servers, client_id="refused") as two,
        member(one) as held,
        member(two) as refused,
    ):
        with cluster.hold(api, client_id="held") as lever:
            joining = asyncio.create_task(held.ensure_joined())
            await lever.arrived(DEADLINE)
            with cluster.error(api, "COORDINATOR_LOAD_IN_PROGRESS", client_id="refused", times=2):
                await asyncio.wait_for(refused.ensure_joined(), DEADLINE)
            await cluster.aio.wait_for_group(group, members=1)
            assert not joining.done()
        await asyncio.wait_for(joining, DEADLINE)
        await cluster.aio.wait_for_group(group, members=2)


async def test_error_applies_to_matching_requests_as_often_as_given(
    cluster: Cluster, connection: Connection
) -> None:
    with cluster.error("DescribeCluster", "REQUEST_TIMED_OUT", times=2, client_id="test") as lever:
        other = await connect(cluster, "other")
        assert await ask(other) == 0
        answers = [await ask(connection) for _ in range(3)]
        assert answers == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT, 0]
        assert lever.touched == 2
        await other.close()
    assert await ask(connection) == 0


async def test_fault_matches_a_topic_by_name_and_by_id(cluster: Cluster) -> None:
    async with ClientCluster(cluster.bootstrap_servers) as client, Producer(client) as producer:
        for name in ("refused", "taken"):
            await Admin(client).create_topic(name, partitions=1)
        with cluster.error("Produce", "INVALID_TOPIC_EXCEPTION", topic="refused"):
            refused = await producer.send("refused", b"1")
            await producer.flush()
            taken = await producer.send("taken", b"1")
            await producer.flush()
        assert taken.result().offset == 0
        with pytest.raises(KafkaError) as error:
            refused.result()
        assert error.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_a_transactional_id_is_refused_and_no_other(cluster: Cluster) -> None:
    async with ClientCluster(cluster.bootstrap_servers) as client:

        async def begin(transactional_id: str) -> None:
            request = init_producer_id.InitProducerIdRequest(
                transactional_id=transactional_id, transaction_timeout_ms=60_000
            )

            async def attempt() -> None:
                answer = await client.ask_coordinator(
                    init_producer_id.API, request, transactional_id, TRANSACTION
                )
                check(answer.error_code)

            await client.retrying(attempt)

        with cluster.error("InitProducerId", "INVALID_PRODUCER_EPOCH", transactional_id="a"):
            with pytest.raises(KafkaError, match="INVALID_PRODUCER_EPOCH"):
                await begin("a")
            await begin("b")
        await begin("a")


async def test_delay_lasts_as_long_as_given(cluster: Cluster, connection: Connection) -> None:
    loop = asyncio.get_running_loop()
    with cluster.delay("DescribeCluster", 0.25, times=1) as delay:
        began = loop.time()
        assert await ask(connection) == 0
        # The event loop of the brokers counts in milliseconds.
        assert loop.time() - began > 0.24
        assert await ask(connection) == 0
        assert delay.touched == 1


def test_an_api_that_does_not_exist_cannot_be_held(cluster: Cluster) -> None:
    with pytest.raises((ValueError, RuntimeError), match="there is no API Nonsense"):
        cluster.hold("Nonsense")


WRONG: dict[str, Callable[[Cluster], object]] = {
    "a delay is a number of seconds, not '1s'": lambda c: c.delay("Fetch", "1s"),  # type: ignore[arg-type]
    "a delay is a number of seconds, not True": lambda c: c.delay("Fetch", True),
    "a delay is 0 s or more, not -1": lambda c: c.delay("Fetch", -1),
    "a delay is 0 s or more, not inf": lambda c: c.delay("Fetch", float("inf")),
    "the number of the request is at least 1, not 0": lambda c: c.hold("EndTxn", 0),
    "the number of the request is a whole number, not '2'": lambda c: c.hold("EndTxn", "2"),  # type: ignore[arg-type]
    "times is at least 1, not 0": lambda c: c.delay("Fetch", 1, times=0),
    "times is a whole number, not 1.5": lambda c: c.error("Fetch", 7, times=1.5),  # type: ignore[arg-type]
    "an API is a text, not None": lambda c: c.hold(None),  # type: ignore[arg-type]
    "an error is Kafka's name or code, not None": lambda c: c.error("Fetch", None),  # type: ignore[arg-type]
    "there is no error NONE": lambda c: c.error("Fetch", "NONE"),
    "topic is a text, not 5": lambda c: c.hold("Fetch", topic=5),  # type: ignore[arg-type]
    "client_id is a text, not b'me'": lambda c: c.hold("Fetch", client_id=b"me"),  # type: ignore[arg-type]
    "a jump of the clock is 0 s or more, not -60": lambda c: c.jump_transaction_clock(-60),
    "a jump of the clock is a number of seconds": lambda c: c.jump_transaction_clock("60"),  # type: ignore[arg-type]
    "a partition has two groups of brokers": lambda c: c.partition([1]),
    "each with a broker": lambda c: c.partition([1], []),
    "a broker is in one group of a partition alone": lambda c: c.partition([1], [1]),
    "name the brokers that are cut off": lambda c: c.cut_clients(),
    "there is no broker 2": lambda c: c.isolate(2),
    "members is at least 0, not -1": lambda c: c.wait_for_group("g", members=-1),
    "lag is a whole number, not 'none'": lambda c: c.wait_for_group("g", lag="none"),  # type: ignore[arg-type]
    "the count of records is at least 0": lambda c: c.records("t", -1),
}


@pytest.mark.parametrize("message", WRONG)
def test_argument_without_effect_is_refused_at_the_call(cluster: Cluster, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=re.escape(message)):
        WRONG[message](cluster)


async def test_count_of_touched_requests_outlives_the_lever(
    cluster: Cluster, connection: Connection
) -> None:
    with cluster.delay("DescribeCluster", 0) as counted:
        assert await ask(connection) == 0
    assert counted.touched == 1
    assert await ask(connection) == 0
    counted.remove()
    assert counted.touched == 1


def test_count_of_a_removed_lever_outlives_broker_and_cluster() -> None:
    with Cluster(brokers=1) as cluster:
        with cluster.delay("DescribeCluster", 0) as counted:
            assert code_of(cluster, 1) == 0
        cluster.stop_broker(1)
        cluster.start_broker(1)
        assert counted.touched == 1
    assert counted.touched == 1


def test_count_of_a_lever_removed_while_its_broker_was_paused_is_told_later() -> None:
    with Cluster(brokers=1, processes=True) as cluster:
        with cluster.delay("DescribeCluster", 0) as counted:
            assert code_of(cluster, 1) == 0
            cluster.pause(1)
        with pytest.raises(RuntimeError, match="broker 1 is paused"):
            assert counted.touched
        cluster.resume(1)
        assert [counted.touched, counted.touched] == [1, 1]


async def test_cut_off_clients_get_no_response_until_heal(
    cluster: Cluster, connection: Connection
) -> None:
    cluster.cut_clients(1)
    asked = asyncio.create_task(ask(connection))
    assert await waits(asked)
    cluster.heal()
    assert await asked == 0


async def test_a_broker_that_is_cut_off_from_the_store_serves_on(
    cluster: Cluster, connection: Connection
) -> None:
    cluster.cut_store(1)
    assert await ask(connection) == 0
    cluster.heal()


def test_levers_work_from_any_thread(cluster: Cluster) -> None:
    done = []
    thread = threading.Thread(target=lambda: done.append(cluster.controller))
    thread.start()
    thread.join(DEADLINE)
    assert done == [1]


def test_cluster_stops_with_any_active_fault() -> None:
    with Cluster(brokers=2, processes=True) as cluster:
        cluster.hold("Fetch")
        cluster.isolate(1)
        cluster.pause(2)
    with Cluster(brokers=2) as cluster:
        cluster.hold("Fetch")
        cluster.isolate(1)


def test_stop_reports_a_broker_that_failed(tmp_path: Path) -> None:
    cluster = Cluster(brokers=2, data_dir=tmp_path).start()
    directory = tmp_path / "broker-1"
    directory.rename(tmp_path / "gone")
    directory.write_text("in the way")
    # A write error takes the log directory offline, and the broker has no other directory.
    with suppress(KafkaError, BrokerUnreachable, TimeoutError):
        asyncio.run(create(cluster, "t"))
    with pytest.raises(RuntimeError, match="has failed"):
        cluster.stop()


async def create(cluster: Cluster, topic: str) -> None:
    async with ClientCluster(cluster.bootstrap_servers, timeout=2) as client:
        await Admin(client).create_topic(topic, partitions=4)


def test_faults_that_need_processes_raise_without_them() -> None:
    with Cluster(brokers=1) as cluster:
        for lever in (cluster.kill, cluster.pause, cluster.resume):
            with pytest.raises(RuntimeError, match="processes=True"):
                lever(1)
