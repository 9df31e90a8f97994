"""Rights: foreign clients on a broker with an authorizer, and a change of rules in a cluster."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import kafka.errors
import pytest
from confluent_kafka.admin import AclBinding, AclBindingFilter, AdminClient
from kafka import KafkaConsumer, KafkaProducer

from barnabas.client.cluster import Cluster
from barnabas.client.security import connect_with
from barnabas.client.transaction_admin import TransactionAdmin
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import list_transactions, metadata
from barnabas.protocol.messages.list_transactions import ListTransactionsRequest
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.security.acl.rules import AclFilter, ResourceType, new_rule
from barnabas.testing import Broker
from tests.support.data_path import Client, batch
from tests.support.in_cluster import CLIENTS, connected_to, member, shared_metadata
from tests.support.waiting import eventually, until

JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    + " ".join(f'user_{name}="{name}-secret"' for name in ("admin", "alice"))
    + ";"
)
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
KEYS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.jaas.config": JAAS,
    "authorizer.class.name": AUTHORIZER,
    "super.users": "User:admin",
}
TOPIC, GROUP, ID, CLUSTER = (
    confluent_kafka.admin.ResourceType.TOPIC,
    confluent_kafka.admin.ResourceType.GROUP,
    confluent_kafka.admin.ResourceType.TRANSACTIONAL_ID,
    confluent_kafka.admin.ResourceType.BROKER,
)
LITERAL = confluent_kafka.admin.ResourcePatternType.LITERAL
PREFIXED = confluent_kafka.admin.ResourcePatternType.PREFIXED
Op = confluent_kafka.admin.AclOperation
ALLOW = confluent_kafka.admin.AclPermissionType.ALLOW
DENY = confluent_kafka.admin.AclPermissionType.DENY
WITHIN_S = 1.0


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(KEYS) as running:
        admin = AdminClient(librdkafka(running, "admin"))
        topics = [confluent_kafka.admin.NewTopic(name, 1) for name in ("mine", "theirs")]
        for created in admin.create_topics(topics).values():
            created.result(30)
        yield running


@pytest.fixture
def admin(broker: Broker) -> Iterator[AdminClient]:
    """An administrator whose rules are gone after the test."""
    admin = AdminClient(librdkafka(broker, "admin"))
    yield admin
    revoke(admin)


def librdkafka(broker: Broker, user: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": f"{user}-secret",
    }


def kafka_python(broker: Broker, user: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": broker.bootstrap_servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": user,
        "sasl_plain_password": f"{user}-secret",
    }


def allow(
    admin: AdminClient, kind: Any, name: str, operation: Any, how: Any = LITERAL, what: Any = ALLOW
) -> None:
    rule = AclBinding(kind, name, how, "User:alice", "*", operation, what)
    for created in admin.create_acls([rule]).values():
        created.result(30)


def revoke(admin: AdminClient, kind: Any = confluent_kafka.admin.ResourceType.ANY) -> int:
    """Delete all rules of a resource type; return their number."""
    every = AclBindingFilter(
        kind, None, confluent_kafka.admin.ResourcePatternType.ANY, None, None, Op.ANY,
        confluent_kafka.admin.AclPermissionType.ANY,
    )  # fmt: skip
    (deleted,) = admin.delete_acls([every]).values()
    return len(deleted.result(30))


def test_kafka_python_produces_only_where_a_rule_allows_it(
    broker: Broker, admin: AdminClient
) -> None:
    producer = KafkaProducer(
        **kafka_python(broker, "alice"), enable_idempotence=False, max_block_ms=2000
    )
    with pytest.raises(kafka.errors.TopicAuthorizationFailedError):
        producer.send("mine", b"refused").get(30)
    allow(admin, TOPIC, "mi", Op.WRITE, PREFIXED)
    offset = producer.send("mine", b"allowed").get(30).offset
    # The connection is open, and asked before.
    allow(admin, TOPIC, "*", Op.WRITE, what=DENY)
    with pytest.raises(kafka.errors.TopicAuthorizationFailedError):
        producer.send("mine", b"denied").get(30)
    assert revoke(admin) == 2
    producer.close()
    consumer = KafkaConsumer("mine", **kafka_python(broker, "admin"), auto_offset_reset="earliest")
    values = until(lambda: [r.value for rs in consumer.poll(500).values() for r in rs])
    assert (offset, values) == (0, [b"allowed"])
    consumer.close()


def test_librdkafka_consumes_only_with_rights_to_its_topic_and_its_group(
    broker: Broker, admin: AdminClient
) -> None:
    producer = confluent_kafka.Producer(librdkafka(broker, "admin"))
    producer.produce("theirs", b"value")
    assert producer.flush(30) == 0

    def first() -> Any:
        consumer = confluent_kafka.Consumer(
            librdkafka(broker, "alice") | {"group.id": "g", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["theirs"])
        try:
            return until(lambda: consumer.poll(1))
        finally:
            consumer.close()

    codes = confluent_kafka.KafkaError
    assert first().error().code() == codes.GROUP_AUTHORIZATION_FAILED
    allow(admin, GROUP, "g", Op.READ)
    assert first().error().code() == codes.TOPIC_AUTHORIZATION_FAILED
    allow(admin, TOPIC, "theirs", Op.READ)
    message = first()
    assert (message.error(), message.value()) == (None, b"value")


def test_idempotent_producer_needs_one_topic_or_idempotent_write(
    broker: Broker, admin: AdminClient
) -> None:
    def delivered() -> Any:
        outcomes: list[Any] = []
        keys = {"enable.idempotence": True, "delivery.timeout.ms": 20_000}
        producer = confluent_kafka.Producer(librdkafka(broker, "alice") | keys)
        producer.produce("mine", b"v", on_delivery=lambda error, _: outcomes.append(error))
        until(lambda: producer.poll(0.1) or outcomes)
        return outcomes[0]

    allow(admin, TOPIC, "other", Op.READ)
    refused = delivered()
    assert refused.code() in (
        confluent_kafka.KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED,
        confluent_kafka.KafkaError._FATAL,
    )
    allow(admin, TOPIC, "mine", Op.WRITE)
    assert delivered() is None


def test_transaction_takes_all_partitions_or_none(broker: Broker, admin: AdminClient) -> None:
    allow(admin, ID, "x-", Op.WRITE, PREFIXED)
    allow(admin, TOPIC, "mine", Op.WRITE)
    producer = confluent_kafka.Producer(librdkafka(broker, "alice") | {"transactional.id": "x-1"})
    producer.init_transactions(30)
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        confluent_kafka.Producer(
            librdkafka(broker, "alice") | {"transactional.id": "y"}
        ).init_transactions(30)
    assert (
        refused.value.args[0].code()
        == confluent_kafka.KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    )
    producer.begin_transaction()
    producer.produce("mine", b"v")
    producer.commit_transaction(30)
    producer.begin_transaction()
    producer.produce("mine", b"v")
    producer.produce("theirs", b"v")
    with pytest.raises(confluent_kafka.KafkaException):
        producer.commit_transaction(30)
    producer.abort_transaction(30)


def test_operations_that_clients_may_perform_are_true(broker: Broker, admin: AdminClient) -> None:
    allow(admin, TOPIC, "mine", Op.ALTER)
    allow(admin, TOPIC, "mine", Op.READ)
    alice = AdminClient(librdkafka(broker, "alice"))
    names = confluent_kafka.TopicCollection(["mine"])
    (described,) = alice.describe_topics(names, include_authorized_operations=True).values()
    assert {each.name for each in described.result(30).authorized_operations} == {
        "READ",
        "ALTER",
        "DESCRIBE",
    }
    assert set(alice.list_topics(timeout=30).topics) == {"mine"}
    cluster = alice.describe_cluster(include_authorized_operations=True).result(30)
    assert not cluster.authorized_operations


def test_events_of_a_transaction_need_describe_of_the_cluster(
    broker: Broker, admin: AdminClient
) -> None:
    producer = confluent_kafka.Producer(librdkafka(broker, "admin") | {"transactional.id": "e"})
    producer.init_transactions(30)
    login = {name: str(text) for name, text in librdkafka(broker, "alice").items()}

    async def described() -> Any:
        async with Cluster(broker.bootstrap_servers, connect=connect_with(login)) as cluster:
            return await TransactionAdmin(cluster).describe("e", include_events=True)

    allow(admin, ID, "e", Op.DESCRIBE)
    hidden = asyncio.run(described())
    assert (hidden.transaction_state, hidden.events, hidden.client_host) == ("Empty", None, None)
    allow(admin, CLUSTER, "kafka-cluster", Op.DESCRIBE)
    assert asyncio.run(described()).events


# --- a change in a cluster


@asynccontextmanager
async def cluster(directory: Path) -> AsyncIterator[list[Any]]:
    """Run three brokers; every client is anonymous, and brokers are super users."""
    prefix = "listener_name_brokers_plain_"
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(shared_metadata(directory / "metadata"))
        brokers = []
        for number in range(3):
            keys = {
                "listener_security_protocol_map": "CLIENTS:PLAINTEXT,BROKERS:SASL_PLAINTEXT",
                "sasl_enabled_mechanisms": "PLAIN",
                "sasl_mechanism_inter_broker_protocol": "PLAIN",
                f"{prefix}sasl_jaas_config": f'{module} username="b" password="p" user_b="p";',
                "authorizer_class_name": AUTHORIZER,
                "super_users": "User:b",
            }
            brokers.append(
                await stack.enter_async_context(member(store, directory, number, **keys))
            )
        yield brokers


def rule(kind: int, name: str, operation: int) -> Any:
    return new_rule(kind, name, 3, "User:ANONYMOUS", "*", operation, 3)


CREATE_ANY, READ, WRITE = rule(4, "kafka-cluster", 5), rule(2, "t", 3), rule(2, "t", 4)


async def seconds_until(see: Callable[[], Any]) -> float:
    begun = time.monotonic()
    await eventually(see)
    return time.monotonic() - begun


async def sees(client: Client) -> bool:
    """Return whether a client is shown the topic in the list of all topics."""
    answer = await client.connection.request(metadata.API, MetadataRequest(topics=None))
    return [topic.name for topic in answer.topics] == ["t"]


async def test_change_holds_on_all_brokers_within_a_second(tmp_path: Path) -> None:
    async with cluster(tmp_path) as brokers, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connected_to(each, CLIENTS)) for each in brokers]
        acls = brokers[0]._core.acls
        await acls.create([CREATE_ANY])
        controller = next(b for b in brokers if b._core.cache.controller_id == b.config.broker_id)
        await clients[brokers.index(controller)].create()
        for number in range(3):
            by = brokers[number]._core.acls
            assert [await sees(each) for each in clients] == [False] * 3
            await by.create([READ])
            taken = await asyncio.gather(
                *(seconds_until(lambda client=each: sees(client)) for each in clients)
            )
            assert max(taken) < WITHIN_S
            await by.delete([AclFilter(ResourceType.TOPIC, "t")])

            async def hidden(client: Client) -> bool:
                return not await sees(client)

            taken = await asyncio.gather(
                *(seconds_until(lambda client=each: hidden(client)) for each in clients)
            )
            assert max(taken) < WITHIN_S


async def test_fetch_that_waits_gives_no_records_after_its_right_is_gone(tmp_path: Path) -> None:
    async with cluster(tmp_path) as brokers, AsyncExitStack() as stack:
        acls = brokers[0]._core.acls
        await acls.create([CREATE_ANY, READ, WRITE])
        controller = next(b for b in brokers if b._core.cache.controller_id == b.config.broker_id)
        creating = await stack.enter_async_context(connected_to(controller, CLIENTS))
        await creating.create()
        leader = brokers[
            next(b for b in brokers if b._core.cache.partition("t", 0))
            ._core.cache.partition("t", 0)
            .leader
        ]
        reader = await stack.enter_async_context(connected_to(leader, CLIENTS))
        writer = await stack.enter_async_context(connected_to(leader, CLIENTS))
        waiting = asyncio.create_task(reader.fetch(0, max_wait_ms=10_000))
        purgatory = leader._replication.replicas
        assert (await writer.fetch(0)).responses[0].partitions[0].error_code == 0
        assert not waiting.done()
        await acls.delete([AclFilter(ResourceType.TOPIC, "t", operation=READ.entry.operation)])

        async def refused() -> bool:
            answer = await writer.fetch(0)
            return bool(answer.responses[0].partitions[0].error_code)

        assert await seconds_until(refused) < WITHIN_S
        assert not waiting.done()
        assert (await writer.produce(batch(b"secret"))).error_code == 0
        (partition,) = (await waiting).responses[0].partitions
        assert partition.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert not partition.records
        assert purgatory is not None


async def test_without_rules_nothing_is_allowed_but_to_super_users(tmp_path: Path) -> None:
    async with cluster(tmp_path) as brokers, connected_to(brokers[0], CLIENTS) as client:
        acls = brokers[0]._core.acls
        await acls.create([CREATE_ANY, READ, rule(5, "*", 8)])
        controller = next(b for b in brokers if b._core.cache.controller_id == b.config.broker_id)
        async with connected_to(controller, CLIENTS) as creating:
            await creating.create()
        await seconds_until(lambda: sees(client))
        # As if the store lets no broker read them.
        acls._install(None)
        assert not await sees(client)
        answer = await client.connection.request(
            list_transactions.API, ListTransactionsRequest(state_filters=[], producer_id_filters=[])
        )
        assert answer.transaction_states == []
