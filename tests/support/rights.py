"""The rights that Kafka asks for, and a judge of the rights that a broker asks for.

The broker's authorizer is replaced by one that allows what a test names.
"""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest.mock import patch

from barnabas.broker.routes import API_TABLE, ApiRow
from barnabas.broker.security.authorizer import Action, Authorizer
from barnabas.protocol.errors import ErrorCode, codes_of
from barnabas.protocol.messages import delete_topics
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.records.record import Record, build_batch
from barnabas.protocol.schema import Message, fields_of
from barnabas.protocol.types import ZERO_UUID
from barnabas.security.acl.rules import AclOperation, ResourceType
from tests.support.data_path import Client
from tests.support.fuzz_targets import filled
from tests.support.in_cluster import BROKERS, CLIENTS, connected_to, member, shared_metadata

NAME: Final = "s"
"""The name of every resource in a request of `filled`."""
REFUSALS: Final = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def action(text: str) -> Action:
    """Return the action of a text such as `READ TOPIC`, on the resource of a request."""
    operation, kind = text.split()
    any_name = kind.endswith("*")
    kind = kind.removesuffix("*")
    name = "kafka-cluster" if kind == "CLUSTER" else "*" if any_name else NAME
    return Action(AclOperation[operation], ResourceType[kind], name)


class Asked(NamedTuple):
    """A request of an API, and what it needs: of each group of alternatives one."""

    api: str
    versions: range
    needs: tuple[tuple[str, ...], ...]
    change: Mapping[str, Any] = {}
    """Fields that `filled` would make invalid."""
    also: tuple[str, ...] = ()
    """Rights that change the answer, and whose lack is no refusal."""


def ask(
    api: str, *needs: str, versions: range | None = None, also: str = "", **change: Any
) -> Asked:
    row = ROWS[api]
    alternatives = tuple(tuple(map(str.strip, need.split("|"))) for need in needs)
    more = tuple(filter(None, map(str.strip, also.split("|"))))
    return Asked(api, versions or row.versions, alternatives, change, more)


ROWS: Final[dict[str, ApiRow]] = {row.api.name: row for row in API_TABLE}
ACT, ALTER, DESCRIBE = "CLUSTER_ACTION CLUSTER", "ALTER CLUSTER", "DESCRIBE CLUSTER"
WRITE_ID, READ_GROUP = "WRITE TRANSACTIONAL_ID", "READ GROUP"


def transactional() -> bytes:
    return build_batch(
        [Record(0, 1, b"k", b"v", ())],
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )


def _records(records: bytes) -> Any:
    """Return a change of the records of a Produce request."""

    def change(request: Any) -> None:
        request.topic_data[0].partition_data[0].records = records

    return change


def _without_ids(request: Any) -> None:
    for topic in request.topics:
        topic.topic_id = ZERO_UUID


def _without_names(request: Any) -> None:
    for topic in request.topics:
        topic.name = None


def _as_replica(broker_id: int) -> Any:
    """Return a change of the sender of a Fetch request; -1 is a consumer."""

    def change(request: Any) -> None:
        request.replica_state.replica_id = broker_id
        request.session_id, request.session_epoch = 0, -1

    return change


ASKED: Final = (
    ask("ApiVersions"),
    ask("SaslHandshake"),
    ask("SaslAuthenticate"),
    ask("Produce", "WRITE TOPIC"),
    ask("Produce", WRITE_ID, "WRITE TOPIC", then=_records(transactional())),
    ask(
        "Fetch", "READ TOPIC", versions=range(4, 15), replica_id=-1, session_id=0, session_epoch=-1
    ),
    ask("Fetch", ACT, versions=range(4, 15), session_id=0, session_epoch=-1),
    ask("Fetch", "READ TOPIC", versions=range(15, 19), then=_as_replica(-1)),
    ask("Fetch", ACT, versions=range(15, 19), then=_as_replica(1)),
    ask("ListOffsets", "DESCRIBE TOPIC"),
    ask("DeleteRecords", "DELETE TOPIC"),
    ask("OffsetForLeaderEpoch", f"{ACT} | DESCRIBE TOPIC"),
    ask("DescribeLogDirs", DESCRIBE, versions=range(3, 6)),
    ask("AlterReplicaLogDirs", ALTER),
    ask("Metadata", "DESCRIBE TOPIC", also=DESCRIBE, then=_without_ids),
    ask("Metadata", "DESCRIBE TOPIC", also=DESCRIBE, versions=range(12, 14)),
    ask("CreateTopics", "CREATE CLUSTER | CREATE TOPIC", also="DESCRIBE_CONFIGS TOPIC"),
    ask("CreatePartitions", "ALTER TOPIC"),
    ask("DescribeCluster", also=DESCRIBE),
    ask("DescribeTopicPartitions", "DESCRIBE TOPIC"),
    ask("ElectLeaders", ALTER),
    ask("AlterPartitionReassignments", ALTER),
    ask("ListPartitionReassignments", DESCRIBE),
    *(
        ask(
            api,
            f"{operation} {resource}",
            then=lambda request, kind=kind: setattr(request.resources[0], "resource_type", kind),
        )
        for api, operation in (
            ("DescribeConfigs", "DESCRIBE_CONFIGS"),
            ("AlterConfigs", "ALTER_CONFIGS"),
            ("IncrementalAlterConfigs", "ALTER_CONFIGS"),
        )
        for resource, kind in (
            ("TOPIC", 2),
            ("CLUSTER", 4),
            ("CLUSTER", 8),
            ("CLUSTER", 16),
            ("GROUP", 32),
        )
    ),
    ask("ListConfigResources", "DESCRIBE_CONFIGS CLUSTER"),
    ask("UpdateFeatures", ALTER),
    ask("DescribeClientQuotas", "DESCRIBE_CONFIGS CLUSTER"),
    ask("AlterClientQuotas", "ALTER_CONFIGS CLUSTER"),
    ask("DescribeUserScramCredentials", DESCRIBE),
    ask("AlterUserScramCredentials", ALTER),
    # Tokens are refused on a listener without authentication, whatever rights there are.
    ask("CreateDelegationToken"),
    ask("RenewDelegationToken"),
    ask("ExpireDelegationToken"),
    ask("DescribeDelegationToken"),
    ask("DescribeAcls", DESCRIBE),
    ask("CreateAcls", ALTER),
    ask("DeleteAcls", ALTER),
    ask("FindCoordinator", "DESCRIBE GROUP", key_type=0),
    ask("FindCoordinator", "DESCRIBE TRANSACTIONAL_ID", versions=range(1, 7)),
    ask("JoinGroup", READ_GROUP),
    ask("SyncGroup", READ_GROUP),
    ask("Heartbeat", READ_GROUP),
    ask("LeaveGroup", READ_GROUP),
    ask("OffsetCommit", READ_GROUP, "READ TOPIC"),
    ask("OffsetFetch", "DESCRIBE GROUP", "DESCRIBE TOPIC"),
    ask("OffsetDelete", "DELETE GROUP", "READ TOPIC"),
    ask("DescribeGroups", "DESCRIBE GROUP"),
    ask("ConsumerGroupHeartbeat", READ_GROUP, "DESCRIBE TOPIC"),
    ask("ConsumerGroupDescribe", "DESCRIBE GROUP"),
    ask("ListGroups", also=f"{DESCRIBE} | DESCRIBE GROUP"),
    ask("DeleteGroups", "DELETE GROUP"),
    ask("InitProducerId", WRITE_ID, versions=range(6)),
    ask("InitProducerId", WRITE_ID, "TWO_PHASE_COMMIT TRANSACTIONAL_ID", versions=range(6, 7)),
    ask("InitProducerId", "IDEMPOTENT_WRITE CLUSTER | WRITE TOPIC*", transactional_id=None),
    ask("AddPartitionsToTxn", WRITE_ID, "WRITE TOPIC", versions=range(4)),
    ask("AddPartitionsToTxn", ACT, versions=range(4, 6)),
    ask("AddOffsetsToTxn", WRITE_ID, READ_GROUP),
    ask("TxnOffsetCommit", WRITE_ID, READ_GROUP, "READ TOPIC"),
    ask("EndTxn", WRITE_ID),
    ask("WriteTxnMarkers", f"{ALTER} | {ACT}"),
    ask("DescribeTransactions", "DESCRIBE TRANSACTIONAL_ID", also=f"DESCRIBE TOPIC | {DESCRIBE}"),
    ask("ListTransactions", also="DESCRIBE TRANSACTIONAL_ID"),
    ask("DescribeProducers", "READ TOPIC"),
    *(
        ask(api, ACT)
        for api in (
            "LeaderAndIsr",
            "StopReplica",
            "UpdateMetadata",
            "ControlledShutdown",
            "AlterPartition",
            "AllocateProducerIds",
            "Envelope",
        )
    ),
    ask(
        "DeleteTopics",
        "DELETE CLUSTER | DELETE TOPIC",
        versions=range(6, 7),
        also="DESCRIBE TOPIC",
        then=_without_names,
    ),
    ask(
        "DeleteTopics", "DELETE CLUSTER | DELETE TOPIC", versions=range(1, 6), also="DESCRIBE TOPIC"
    ),
)
"""The rights that Kafka 4.4 asks for, from KafkaApis, ControllerApis and its documents; those of
3.9 for the APIs of a controller on ZooKeeper. Written without a look at the declarations."""


class Authority:
    """An authorizer that allows what a test names, and remembers what the client asked for."""

    def __init__(self) -> None:
        self.allowed: set[Action] = set()
        self.asked: set[Action] = set()

    def allows(
        self, _who: Any, _host: str, _api: str, wanted: Action, *, log_denied: bool = True
    ) -> bool:
        if log_denied:
            self.asked.add(wanted)
        return wanted in self.allowed

    def allows_any(
        self, who: Any, host: str, api: str, operation: AclOperation, kind: ResourceType
    ) -> bool:
        return self.allows(who, host, api, Action(operation, kind, "*"))


class Judged:
    """A broker whose only topic has the name and the id of the requests' topics."""

    def __init__(self, client: Client, peer: Client, authority: Authority) -> None:
        self.authority = authority
        self._peer = peer
        self._client = client
        self._topic_id = ZERO_UUID

    async def codes(self, asked: Asked, version: int, allowed: Iterable[str]) -> set[int]:
        """Send the request with these rights; return the error codes of its answer."""
        answer = await self.answer(asked, version, allowed)
        return set(codes_of(ROWS[asked.api].api.response)(answer)) - {0}

    async def answer(self, asked: Asked, version: int, allowed: Iterable[str]) -> Any:
        """Send the request with these rights; return its answer."""
        if asked.api == "DeleteTopics" or self._topic_id == ZERO_UUID:
            await self._create()
        self.authority.allowed = {action(each) for each in allowed}
        self.authority.asked = set()
        row = ROWS[asked.api]
        sender = self._client if version in row.clients else self._peer
        request = self._request(asked, version)
        return await sender.connection.request(row.api, request, version=version, timeout=10)

    async def faults(self, asked: Asked, version: int) -> AsyncIterator[str]:
        """Yield what differs from Kafka."""
        for chosen in product(*asked.needs):
            about = f"{asked.api} v{version} with {', '.join(chosen) or 'no right'}"
            refused = await self.codes(asked, version, (*chosen, *asked.also)) & REFUSALS
            if refused:
                yield f"{about} is refused: {refused}"
            known = {action(each) for group in asked.needs for each in group}
            if more := self.authority.asked - known - {action(each) for each in asked.also}:
                yield f"{about} asks for {more}"
            for missing in chosen:
                others = [each for each in chosen if each != missing]
                if not await self.codes(asked, version, (*others, *asked.also)) & REFUSALS:
                    yield f"{about} but {missing} is allowed"

    async def _create(self) -> None:
        self.authority.allowed = {
            action(f"{operation} {kind}")
            for operation in ("DELETE", "CREATE", "DESCRIBE_CONFIGS")
            for kind in ("CLUSTER", "TOPIC")
        }
        request = DeleteTopicsRequest(topic_names=[NAME], timeout_ms=10_000)
        await self._client.connection.request(delete_topics.API, request, version=3)
        self._topic_id = await self._client.create(NAME)

    def _request(self, asked: Asked, version: int) -> Any:
        request = filled(ROWS[asked.api].api.request, version)
        for name, value in {"timeout_ms": 10_000, **asked.change}.items():
            if name == "then":
                value(request)
            elif any(
                each.name == name and each.exists(version) for each in fields_of(type(request))
            ):
                setattr(request, name, value)
        for message in _messages(request):
            if getattr(message, "topic_id", None) == bytes(range(16)):
                message.topic_id = self._topic_id
        return request


def _messages(message: Any) -> Iterator[Any]:
    yield message
    for each in fields_of(type(message)):
        value = getattr(message, each.name)
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, Message):
                yield from _messages(item)


@asynccontextmanager
async def judged(directory: Path) -> AsyncIterator[Judged]:
    """Run a broker with the authorizer of a test."""
    authority = Authority()
    with (
        patch.object(Authorizer, "decided", lambda *_: {}),
        patch.object(Authorizer, "allows", lambda _, *args, **kw: authority.allows(*args, **kw)),
        patch.object(Authorizer, "allows_any", lambda _, *args: authority.allows_any(*args)),
    ):
        async with (
            shared_metadata(directory / "metadata") as store,
            member(
                store,
                directory,
                default_replication_factor=1,
                **{"authorizer.class.name": AUTHORIZER, "super.users": "User:root"},
                **{
                    "offsets.topic.num.partitions": 1,
                    "offsets.topic.replication.factor": 1,
                    "transaction.state.log.num.partitions": 1,
                    "transaction.state.log.replication.factor": 1,
                    "transaction.two.phase.commit.enable": "true",
                },
            ) as broker,
            connected_to(broker, CLIENTS) as client,
            connected_to(broker, BROKERS) as peer,
        ):
            yield Judged(client, peer, authority)
