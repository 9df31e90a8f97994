"""Our client logs in to Apache Kafka by each mechanism with passwords."""

from collections.abc import Iterator

import pytest

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.connection import AuthenticationError
from barnabas.client.consumer import Consumer
from barnabas.client.offsets import EARLIEST
from barnabas.client.producer import Producer
from barnabas.client.security import connect_with
from barnabas.protocol.topic_partition import TopicPartition
from tests.support.kafka.node import Kafka

_COMMON = "org.apache.kafka.common.security"
PLAIN = f"{_COMMON}.plain.PlainLoginModule required"
SCRAM = f"{_COMMON}.scram.ScramLoginModule required"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
ALICE = 'username="alice" password="alice-secret"'
SESSION_MS = 1000
PROPERTIES = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": ",".join(MECHANISMS),
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": (
        f'{PLAIN} username="kafka" password="k" user_kafka="k" user_alice="alice-secret";'
    ),
    "listener.name.plaintext.scram-sha-256.sasl.jaas.config": f"{SCRAM};",
    "listener.name.plaintext.scram-sha-512.sasl.jaas.config": f"{SCRAM};",
    "connections.max.reauth.ms": str(SESSION_MS),
}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    users = [f"{each}=[name=alice,password=alice-secret]" for each in MECHANISMS[1:]]
    directory = tmp_path_factory.mktemp("kafka")
    with Kafka(directory, properties=PROPERTIES, scram=users) as node:
        yield node.bootstrap_servers


def keys(mechanism: str, account: str = ALICE) -> dict[str, str]:
    module = PLAIN if mechanism == "PLAIN" else SCRAM
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f"{module} {account};",
    }


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_producer_outlives_a_session_with_kafka(kafka: str, mechanism: str) -> None:
    async with Cluster(kafka, connect=connect_with(keys(mechanism))) as cluster:
        topic = mechanism.lower()
        await Admin(cluster).create_topic(topic, partitions=1, replication_factor=1)
        leader = await cluster.connection_to(await cluster.leader(topic, 0))
        sent: list[bytes] = []
        async with Producer(cluster) as producer:
            renewed = leader._renewal
            while leader._renewal is renewed or leader._held is not None:
                sent.append(b"%d" % len(sent))
                await (await producer.send(topic, sent[-1], partition=0))
        assert leader.is_open
        consumer = Consumer(cluster)
        consumer.assign({TopicPartition(topic, 0): EARLIEST})
        found: list[bytes | None] = []
        while len(found) < len(sent):
            found += [each.value for each in await consumer.poll()]
        assert found == sent


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_kafka_refuses_a_wrong_password(kafka: str, mechanism: str) -> None:
    account = 'username="alice" password="wrong"'
    cluster = Cluster(kafka, connect=connect_with(keys(mechanism, account)), timeout=3600)
    with pytest.raises(AuthenticationError, match=r"(?i)invalid (username|credentials)"):
        await cluster.refresh(())
    await cluster.close()
