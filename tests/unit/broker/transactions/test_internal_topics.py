"""No client can bring an internal topic into a transaction: by no API, in no version."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from barnabas.protocol.messages import add_partitions_to_txn, find_coordinator
from tests.support.data_path import connected, running
from tests.unit.broker.transactions.transactor import ONE_PARTITION, Transactor, flat

INTERNAL = ["__transaction_state", "__consumer_offsets"]


@pytest.fixture
async def producer(tmp_path: Path) -> AsyncIterator[Transactor]:
    async with running(tmp_path, **ONE_PARTITION) as broker, connected(broker) as client:
        await client.create("t")
        yield await with_groups(await Transactor(client).init())


async def with_groups(producer: Transactor) -> Transactor:
    """Create the topic of groups, by a request for a group's coordinator."""
    request = find_coordinator.FindCoordinatorRequest(coordinator_keys=["g"], key_type=0)
    await producer.ask(find_coordinator, request)
    return producer


@pytest.mark.parametrize("topic", INTERNAL)
@pytest.mark.parametrize("version", [11, 12])
async def test_refused_write_to_internal_topic_is_not_added_to_transaction(
    producer: Transactor, topic: str, version: int
) -> None:
    """A marker in the topic would count as a damaged log, and its coordinator would stay
    unavailable."""
    assert await producer.produce(topic=topic, version=version) == "INVALID_TOPIC_EXCEPTION"
    state = await producer.state()
    assert (state.transaction_state, state.topics) == ("Empty", [])


async def test_refused_partition_does_not_affect_others_of_request(
    producer: Transactor,
) -> None:
    places = [("t", 0), ("__transaction_state", 0)]
    batches = {place: producer.batch(b"v", topic=place[0]) for place in places}
    assert await producer.produce_many(batches) == {
        ("t", 0): "NONE",
        ("__transaction_state", 0): "INVALID_TOPIC_EXCEPTION",
    }
    assert [topic.topic for topic in (await producer.state()).topics] == ["t"]


@pytest.mark.parametrize("topic", INTERNAL)
async def test_clients_cannot_add_an_internal_topic(producer: Transactor, topic: str) -> None:
    codes = await producer.add(("t", 0), (topic, 0))
    assert codes == ["OPERATION_NOT_ATTEMPTED", "TOPIC_AUTHORIZATION_FAILED"]
    assert (await producer.state()).topics == []


@pytest.mark.parametrize("verify_only", [False, True])
async def test_broker_cannot_add_transaction_log_to_transaction(
    producer: Transactor, verify_only: bool
) -> None:
    asked = producer.asked_by_leader(("__transaction_state", 0), verify_only=verify_only)
    request = add_partitions_to_txn.AddPartitionsToTxnRequest(transactions=[asked])
    answer = await producer.ask(add_partitions_to_txn, request, 5)
    (result,) = answer.results_by_transaction
    assert flat(result.topic_results) == ["TOPIC_AUTHORIZATION_FAILED"]
    assert (await producer.state()).topics == []


async def test_operator_cannot_write_marker_into_transaction_log(
    tmp_path: Path,
) -> None:
    keys = {"transaction_state_log_num_partitions": 1}
    async with running(tmp_path, **keys) as broker, connected(broker) as client:
        producer = await Transactor(client).init()
        assert await producer.mark("__transaction_state") == "TOPIC_AUTHORIZATION_FAILED"
        before = producer.producer_id
    async with running(tmp_path, **keys) as broker, connected(broker) as client:
        again = await Transactor(client).init()
        assert (again.producer_id, again.epoch) == (before, 1)
