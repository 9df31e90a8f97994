"""A producer made of single requests: a test can leave out, repeat or delay each step."""

from typing import Any

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    find_coordinator,
    init_producer_id,
    produce,
    write_txn_markers,
)
from barnabas.protocol.records.record import Record, build_batch
from tests.support.data_path import NOW_MS, Client
from tests.support.waiting import eventually

FIRST_TV2_PRODUCE = 12
ONE_PARTITION = {"transaction_state_log_num_partitions": 1, "offsets_topic_num_partitions": 1}
"""The configuration of internal topics with one partition each: coordinators load quickly."""


def name(code: int) -> str:
    return ErrorCode.of(code).name


class Transactor:
    """The producer of one transactional id on one connection."""

    def __init__(
        self, client: Client, transactional_id: str = "x", *, timeout_ms: int = 60_000
    ) -> None:
        self.client = client
        self.timeout_ms = timeout_ms
        self.id = transactional_id
        self.producer_id = -1
        self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}

    async def ask(self, module: Any, request: Any, version: int | None = None) -> Any:
        return await self.client.connection.request(module.API, request, version=version)

    async def init(self) -> "Transactor":
        request = find_coordinator.FindCoordinatorRequest(coordinator_keys=[self.id], key_type=1)
        await self.ask(find_coordinator, request)

        async def given() -> bool:
            answer = await self.ask(
                init_producer_id,
                init_producer_id.InitProducerIdRequest(
                    transactional_id=self.id, transaction_timeout_ms=self.timeout_ms
                ),
                4,
            )
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            return int(answer.error_code) == 0

        await eventually(given)
        self.sequences.clear()
        return self

    def batch(self, *values: bytes, topic: str = "t", index: int = 0, **changes: Any) -> bytes:
        """Return the next batch for a partition."""
        sequence = self.sequences.get((topic, index), 0)
        fields = {
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "base_sequence": sequence,
            "transactional": True,
            **changes,
        }
        if "base_sequence" not in changes:
            self.sequences[topic, index] = sequence + len(values)
        records = [Record(at, NOW_MS, b"k", value) for at, value in enumerate(values)]
        return build_batch(records, **fields)

    async def produce(
        self,
        records: bytes | None = None,
        *,
        topic: str = "t",
        index: int = 0,
        version: int = FIRST_TV2_PRODUCE,
        acks: int = -1,
    ) -> str:
        """Produce one batch, and return its error."""
        if records is None:
            records = self.batch(b"v", topic=topic, index=index)
        answer = await self.produce_many({(topic, index): records}, version=version, acks=acks)
        return answer[topic, index]

    async def produce_many(
        self,
        batches: dict[tuple[str, int], bytes],
        *,
        version: int = FIRST_TV2_PRODUCE,
        acks: int = -1,
    ) -> dict[tuple[str, int], str]:
        """Produce batches in one request, and return their errors."""
        answer = await self.ask(produce, self.request(batches, acks), version)
        return {
            (topic.name, each.index): name(each.error_code)
            for topic in answer.responses
            for each in topic.partition_responses
        }

    def request(self, batches: dict[tuple[str, int], bytes], acks: int = -1) -> Any:
        topics: dict[str, list[produce.PartitionProduceData]] = {}
        for (topic, index), records in batches.items():
            data = produce.PartitionProduceData(index=index, records=records)
            topics.setdefault(topic, []).append(data)
        return produce.ProduceRequest(
            transactional_id=self.id,
            acks=acks,
            timeout_ms=5000,
            topic_data=[
                produce.TopicProduceData(name=topic, partition_data=data)
                for topic, data in topics.items()
            ],
        )

    async def add(self, *partitions: tuple[str, int]) -> list[str]:
        """Send AddPartitionsToTxn of the older protocol."""
        answer = await self.ask(
            add_partitions_to_txn,
            add_partitions_to_txn.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.id,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[
                    add_partitions_to_txn.AddPartitionsToTxnTopic(name=topic, partitions=[index])
                    for topic, index in partitions
                ],
            ),
            3,
        )
        return flat(answer.results_by_topic_v3_and_below)

    def asked_by_leader(
        self, *partitions: tuple[str, int], verify_only: bool = False
    ) -> add_partitions_to_txn.AddPartitionsToTxnTransaction:
        return add_partitions_to_txn.AddPartitionsToTxnTransaction(
            transactional_id=self.id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            verify_only=verify_only,
            topics=[
                add_partitions_to_txn.AddPartitionsToTxnTopic(name=topic, partitions=[index])
                for topic, index in partitions
            ],
        )

    async def end(self, *, committed: bool = True, version: int = 5) -> str:
        answer = await self.ask(
            end_txn,
            end_txn.EndTxnRequest(
                transactional_id=self.id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                committed=committed,
            ),
            version,
        )
        if version >= 5 and answer.error_code == 0:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return name(answer.error_code)

    async def state(self) -> Any:
        request = describe_transactions.DescribeTransactionsRequest(transactional_ids=[self.id])
        answer = await self.ask(describe_transactions, request)
        return answer.transaction_states[0]

    async def settled(self) -> str:
        """Return the state once no markers are being written."""
        found = ""

        async def told() -> bool:
            nonlocal found
            found = (await self.state()).transaction_state
            return not found.startswith("Prepare")

        await eventually(told)
        return found

    async def mark(
        self,
        topic: str = "t",
        index: int = 0,
        *,
        committed: bool = False,
        epoch: int | None = None,
        coordinator_epoch: int = 0,
        transaction_version: int = 0,
    ) -> str:
        """Send WriteTxnMarkers, as an operator does."""
        marker = write_txn_markers.WritableTxnMarker(
            producer_id=self.producer_id,
            producer_epoch=self.epoch if epoch is None else epoch,
            transaction_result=committed,
            coordinator_epoch=coordinator_epoch,
            transaction_version=transaction_version,
            topics=[
                write_txn_markers.WritableTxnMarkerTopic(name=topic, partition_indexes=[index])
            ],
        )
        request = write_txn_markers.WriteTxnMarkersRequest(markers=[marker])
        answer = await self.ask(write_txn_markers, request, 2)
        return name(answer.markers[0].topics[0].partitions[0].error_code)


def flat(results: Any) -> list[str]:
    """Return the errors by partition, in the order of an AddPartitionsToTxn answer."""
    return [
        name(each.partition_error_code) for topic in results for each in topic.results_by_partition
    ]
