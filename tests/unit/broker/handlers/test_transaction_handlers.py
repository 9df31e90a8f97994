"""The transactional APIs over a real broker, request by request."""

from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.app import Broker
from barnabas.broker.handlers import add_partitions_to_txn as handler
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    create_partitions,
    delete_records,
    delete_topics,
    init_producer_id,
)
from tests.support.data_path import Client, connected, running
from tests.support.steps import taken
from tests.unit.broker.transactions.transactor import ONE_PARTITION, Transactor, flat, name

# -- AddPartitionsToTxn between brokers


async def add(
    producer: Transactor, *asked: add_partitions_to_txn.AddPartitionsToTxnTransaction, version: int
) -> list[tuple[str, list[str]]]:
    request = add_partitions_to_txn.AddPartitionsToTxnRequest(transactions=list(asked))
    answer = await producer.ask(add_partitions_to_txn, request, version)
    assert answer.error_code == 0
    return [
        (each.transactional_id, flat(each.topic_results)) for each in answer.results_by_transaction
    ]


@pytest.mark.parametrize("version", [4, 5])
async def test_many_transactions_in_one_request(
    client: Client, producer: Transactor, version: int
) -> None:
    other = await Transactor(client, "y").init()
    stranger = Transactor(client, "unknown")
    assert await add(
        producer,
        producer.asked_by_leader(("t", 0), ("t", 1)),
        other.asked_by_leader(("t", 0)),
        stranger.asked_by_leader(("t", 0)),
        version=version,
    ) == [
        ("x", ["NONE", "NONE"]),
        ("y", ["NONE"]),
        ("unknown", ["INVALID_PRODUCER_ID_MAPPING"]),
    ]
    assert await add(
        producer,
        producer.asked_by_leader(("t", 1), ("t", 2), verify_only=True),
        other.asked_by_leader(("t", 0), verify_only=True),
        version=version,
    ) == [("x", ["NONE", "TRANSACTION_ABORTABLE"]), ("y", ["NONE"])]


@pytest.mark.parametrize("verify_only", [False, True])
async def test_unknown_partition_refuses_only_its_transaction(
    client: Client, producer: Transactor, verify_only: bool
) -> None:
    other = await Transactor(client, "y").init()
    await add(other, other.asked_by_leader(("t", 0)), version=5)
    assert await add(
        producer,
        producer.asked_by_leader(("t", 0), ("t", 9), verify_only=verify_only),
        other.asked_by_leader(("t", 0), verify_only=verify_only),
        version=5,
    ) == [
        ("x", ["OPERATION_NOT_ATTEMPTED", "UNKNOWN_TOPIC_OR_PARTITION"]),
        ("y", ["NONE"]),
    ]
    assert (await producer.state()).transaction_state == "Empty"


async def test_partition_named_twice_is_added_once_and_answered_twice(
    producer: Transactor,
) -> None:
    asked = producer.asked_by_leader(("t", 0), ("t", 0))
    assert await add(producer, asked, version=5) == [("x", ["NONE", "NONE"])]
    (topic,) = (await producer.state()).topics
    assert topic.partitions == [0]
    assert await producer.add(("t", 1), ("t", 1)) == ["NONE", "NONE"]


async def test_transactional_id_may_occur_twice_in_a_request(producer: Transactor) -> None:
    assert await add(
        producer,
        producer.asked_by_leader(("t", 0)),
        producer.asked_by_leader(("t", 1)),
        version=5,
    ) == [("x", ["NONE"]), ("x", ["NONE"])]
    (topic,) = (await producer.state()).topics
    assert topic.partitions == [0, 1]


async def test_request_without_transactions_has_empty_answer(producer: Transactor) -> None:
    assert await add(producer, version=4) == []


@pytest.mark.parametrize(("version", "told"), [(3, "NOT_COORDINATOR"), (5, "NOT_COORDINATOR")])
def test_request_error_is_by_partition_for_clients_and_once_for_brokers(
    version: int, told: str
) -> None:
    topics = [add_partitions_to_txn.AddPartitionsToTxnTopic(name="t", partitions=[0, 1])]
    request = add_partitions_to_txn.AddPartitionsToTxnRequest(v3_and_below_topics=topics)
    answer, _ = taken(handler.error_response(request, ErrorCode.NOT_COORDINATOR, version))
    if version < 4:
        assert flat(answer.results_by_topic_v3_and_below) == [told, told]
    else:
        assert name(answer.error_code) == told


# -- the other questions of producers


async def test_invalid_requests_are_refused(producer: Transactor) -> None:
    assert await producer.end() == "INVALID_TXN_STATE"
    stranger = Transactor(producer.client, "unknown")
    assert await stranger.end() == "INVALID_PRODUCER_ID_MAPPING"
    assert await producer.add(("t", 0), ("nowhere", 0)) == [
        "OPERATION_NOT_ATTEMPTED",
        "UNKNOWN_TOPIC_OR_PARTITION",
    ]
    fenced = Transactor(producer.client)
    fenced.producer_id, fenced.epoch = producer.producer_id, producer.epoch
    await producer.init()
    assert await fenced.add(("t", 0)) == ["PRODUCER_FENCED"]
    answer = await fenced.ask(
        add_offsets_to_txn,
        add_offsets_to_txn.AddOffsetsToTxnRequest(
            transactional_id="x",
            producer_id=fenced.producer_id,
            producer_epoch=fenced.epoch,
            group_id="g",
        ),
        3,
    )
    assert name(answer.error_code) == "PRODUCER_FENCED"


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"transactional_id": ""}, "INVALID_REQUEST"),
        ({"transactional_id": "x", "producer_id": 5}, "INVALID_REQUEST"),
        ({"transactional_id": "x", "producer_epoch": 5}, "INVALID_REQUEST"),
        ({"transactional_id": None, "producer_id": 5}, "INVALID_REQUEST"),
        ({"transactional_id": "x", "transaction_timeout_ms": 0}, "INVALID_TRANSACTION_TIMEOUT"),
        (
            {"transactional_id": "x", "transaction_timeout_ms": 900_001},
            "INVALID_TRANSACTION_TIMEOUT",
        ),
        ({"transactional_id": None, "transaction_timeout_ms": -1}, "NONE"),
    ],
)
async def test_init_needs_both_producer_id_and_epoch_or_neither(
    producer: Transactor, fields: dict[str, Any], told: str
) -> None:
    request = init_producer_id.InitProducerIdRequest(**{"transaction_timeout_ms": 60_000, **fields})
    answer = await producer.ask(init_producer_id, request, 4)
    assert name(answer.error_code) == told


async def test_idempotent_producer_gets_new_id(producer: Transactor) -> None:
    ids = set()
    for had in (-1, 7):
        request = init_producer_id.InitProducerIdRequest(
            transactional_id=None,
            transaction_timeout_ms=1,
            producer_id=had,
            producer_epoch=min(had, 3),
        )
        answer = await producer.ask(init_producer_id, request, 4)
        assert (answer.error_code, answer.producer_epoch) == (0, 0)
        ids.add(answer.producer_id)
    assert len(ids | {7, producer.producer_id}) == 4


# -- a transaction's own id


async def test_other_transactional_id_cannot_write_into_open_transaction(
    client: Client, producer: Transactor
) -> None:
    assert await producer.produce() == "NONE"
    thief = await Transactor(client, "thief").init()
    thief.producer_id, thief.epoch = producer.producer_id, producer.epoch
    thief.sequences = dict(producer.sequences)
    assert await thief.produce() == "INVALID_PRODUCER_ID_MAPPING"
    assert await producer.produce() == "NONE"


async def test_open_transaction_after_restart_continues_for_its_own_id_only(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, **ONE_PARTITION) as broker, connected(broker) as client:
        await client.create("t")
        before = await Transactor(client).init()
        assert await before.produce() == "NONE"
    async with running(tmp_path, **ONE_PARTITION) as broker, connected(broker) as client:
        thief = await Transactor(client, "thief").init()
        for again, told in ((thief, "INVALID_PRODUCER_ID_MAPPING"), (Transactor(client), "NONE")):
            again.producer_id, again.epoch = before.producer_id, before.epoch
            again.sequences = dict(before.sequences)
            assert await again.produce() == told
        assert await again.end() == "NONE"
        assert await again.settled() == "CompleteCommit"


# -- what happens to partitions meanwhile


@pytest.mark.parametrize("committed", [True, False])
async def test_deleted_topic_does_not_block_its_transactions(
    client: Client, producer: Transactor, committed: bool
) -> None:
    await client.create("gone")
    assert await producer.produce(topic="gone") == "NONE"
    assert await producer.produce() == "NONE"
    request = delete_topics.DeleteTopicsRequest(topic_names=["gone"], timeout_ms=5000)
    answer = await client.connection.request(delete_topics.API, request, version=5)
    assert answer.responses[0].error_code == 0
    assert await producer.end(committed=committed) == "NONE"
    assert await producer.settled() == ("CompleteCommit" if committed else "CompleteAbort")


async def test_topic_recreated_with_fewer_partitions_does_not_block_transactions(
    client: Client, producer: Transactor
) -> None:
    """Regression: the marker of a partition that never returns was sent for ever."""
    await client.create("u", 3)
    assert await producer.produce(topic="u", index=2) == "NONE"
    request = delete_topics.DeleteTopicsRequest(topic_names=["u"], timeout_ms=5000)
    await client.connection.request(delete_topics.API, request, version=5)
    await client.create("u", 1)
    assert await producer.end() == "NONE"
    assert await producer.settled() == "CompleteCommit"


async def test_coordinator_with_failed_directory_is_not_coordinator(
    broker: Broker, producer: Transactor
) -> None:
    await producer.produce()
    partition = broker._replication.replicas.partition("__transaction_state", 0)
    broker._replication.replicas.log_dir_failed(partition.log.log_dir.path)
    assert await producer.add(("t", 0)) == ["NOT_COORDINATOR"]
    assert await producer.end(version=4) == "NOT_COORDINATOR"
    assert name((await producer.state()).error_code) == "NOT_COORDINATOR"


# -- clients cannot change the transaction log


async def test_clients_cannot_change_transaction_log(
    producer: Transactor,
) -> None:
    topic = "__transaction_state"
    grown = await producer.ask(
        create_partitions,
        create_partitions.CreatePartitionsRequest(
            topics=[create_partitions.CreatePartitionsTopic(name=topic, count=9, assignments=None)],
            timeout_ms=5000,
            validate_only=False,
        ),
    )
    assert name(grown.results[0].error_code) == "INVALID_TOPIC_EXCEPTION"
    deleted = await producer.ask(
        delete_topics, delete_topics.DeleteTopicsRequest(topic_names=[topic], timeout_ms=5000), 5
    )
    assert name(deleted.responses[0].error_code) != "NONE"
    cut = await producer.ask(
        delete_records,
        delete_records.DeleteRecordsRequest(
            topics=[
                delete_records.DeleteRecordsTopic(
                    name=topic,
                    partitions=[delete_records.DeleteRecordsPartition(partition_index=0, offset=1)],
                )
            ],
            timeout_ms=5000,
        ),
    )
    assert name(cut.topics[0].partitions[0].error_code) != "NONE"
    assert await producer.produce() == "NONE"
