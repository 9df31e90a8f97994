"""`barnabas metadata copy`: a single broker grows into a cluster and keeps all its data."""

from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic
from kazoo.exceptions import NoAuthError

from barnabas.broker.cluster import znodes
from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.connection import AuthenticationError
from barnabas.client.security import connect_with
from barnabas.client.user_admin import UserAdmin
from barnabas.config.broker import AUTHORIZERS
from barnabas.protocol import errors
from barnabas.security.acl.rules import (
    AccessControlEntry,
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from barnabas.security.principal import Principal
from barnabas.security.sasl.jaas import SCRAM_LOGIN_MODULE
from tests.support.command_line import Served, run
from tests.support.ports import free_port
from tests.support.waiting import call_within
from tests.support.zookeeper import ZooKeeperServer

SECONDS = 20.0


class Site:
    """A broker's directory, its address and its two configurations: alone, and on ZooKeeper."""

    def __init__(
        self,
        directory: Path,
        server: ZooKeeperServer,
        chroot: str,
        protocol: str = "PLAINTEXT",
        more: str = "",
        more_on_zookeeper: str = "",
    ) -> None:
        self.data = directory / "data"
        self.port = free_port()
        self.alone, self.on_zookeeper = directory / "alone", directory / "zookeeper"
        common = f"broker.id=7\nlog.dirs={self.data}\ngroup.initial.rebalance.delay.ms=0\n{more}"
        own = f"listeners={protocol}://127.0.0.1:{self.port}"
        self.alone.write_text(f"{common}{own}\nsecurity.inter.broker.protocol={protocol}\n")
        self.on_zookeeper.write_text(
            f"{common}zookeeper.connect={server.connect}{chroot}\n"
            f"{own},BROKERS://127.0.0.1:{free_port()}\n"
            f"listener.security.protocol.map={protocol}:{protocol},BROKERS:PLAINTEXT\n"
            f"inter.broker.listener.name=BROKERS\n{more_on_zookeeper}"
        )
        self._running: list[Served] = []

    def serve(self, configuration: Path) -> Served:
        served = Served("--config", str(configuration))
        self._running.append(served)
        return served

    def copy(self, *more: str, **variables: str) -> tuple[int, str]:
        done = run("metadata", "copy", "--config", str(self.on_zookeeper), *more, **variables)
        return done.returncode, (done.stdout + done.stderr).decode()

    @property
    def client(self) -> dict[str, object]:
        return {"bootstrap.servers": f"127.0.0.1:{self.port}", "log_level": 0}

    def close(self) -> None:
        for served in self._running:
            served.process.kill()
            served.process.communicate()


SCRAM = "SCRAM-SHA-256"
SECURITY = (
    f"sasl.enabled.mechanisms={SCRAM}\n"
    f"authorizer.class.name={AUTHORIZERS[0]}\n"
    "super.users=User:admin\n"
    "delegation.token.secret.key=the secret of the cluster\n"
)


@pytest.fixture
def secure_site(tmp_path: Path, server: ZooKeeperServer, chroot: str) -> Iterator[Site]:
    """Return a site with users, rules and tokens, whose nodes in ZooKeeper have rights."""
    (digest := tmp_path / "digest").write_text("broker:s3cret\n")
    rights = f"zookeeper.digest.file={digest}\nzookeeper.set.acl=true\n"
    site = Site(tmp_path, server, chroot, "SASL_PLAINTEXT", SECURITY, rights)
    yield site
    site.close()


@asynccontextmanager
async def logged_in(site: Site, jaas: str) -> AsyncIterator[Cluster]:
    keys = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": SCRAM,
        "sasl.jaas.config": f"{SCRAM_LOGIN_MODULE} required {jaas};",
    }
    servers = f"127.0.0.1:{site.port}"
    async with Cluster(servers, connect=connect_with(keys), timeout=SECONDS) as cluster:
        yield cluster


def account(user: str) -> str:
    return f'username="{user}" password="{user}"'


async def test_copy_preserves_users_rules_quotas_and_tokens(
    secure_site: Site, server: ZooKeeperServer, chroot: str
) -> None:
    site, alice = secure_site, Principal("User", "alice")
    for user in ("admin", "alice"):
        words = ("users", "--data", str(site.data), "set", user, "-m", SCRAM)
        made = run(*words, "--password-file", "-", stdin=user.encode())
        assert made.returncode == 0, made.stderr
    quotas: dict[tuple[tuple[str, str | None], ...], dict[str, float]] = {
        (("user", "alice"), ("client-id", "app 1")): {"producer_byte_rate": 1024.0},
        (("user", None), ("client-id", None)): {"consumer_byte_rate": 3.0},
        (("client-id", None),): {"request_percentage": 12.5},
        (("ip", "10.0.0.1"),): {"connection_creation_rate": 5.0},
        (("ip", None),): {"connection_creation_rate": 6.0},
    }
    served = site.serve(site.alone)
    async with logged_in(site, account("admin")) as cluster:
        admin = Admin(cluster)
        for topic in ("orders", "other"):
            await admin.create_topic(topic, partitions=1)
        for kind, name in ((PatternType.LITERAL, "orders"), (PatternType.PREFIXED, "in-")):
            pattern = ResourcePattern(ResourceType.TOPIC, name, kind)
            entry = AccessControlEntry(alice, "*", AclOperation.CREATE, AclPermissionType.ALLOW)
            await admin.create_acls([AclBinding(pattern, entry)])
        for entity, limits in quotas.items():
            await admin.alter_client_quotas(dict(entity), limits)
    async with logged_in(site, account("alice")) as cluster:
        token = await UserAdmin(cluster).create_token()
    assert served.stop()[0] == 0
    code, said = site.copy()
    assert code == 0, said

    served = site.serve(site.on_zookeeper)
    with server.looking(chroot) as stranger, pytest.raises(NoAuthError):
        stranger.get("/config/users/alice")
    async with logged_in(site, account("admin")) as cluster:
        admin = Admin(cluster)
        found = await admin.describe_client_quotas({})
        assert {tuple(entity.items()): limits for entity, limits in found} == quotas
        assert len(await admin.describe_acls(AclFilter())) == 2
    hmac = b64encode(token.hmac).decode()
    by_token = f'username="{token.id}" password="{hmac}" tokenauth="true"'
    for number, jaas in enumerate((account("alice"), by_token)):
        async with logged_in(site, jaas) as cluster:
            await Admin(cluster).create_topic(f"in-{number}", partitions=1)
            with pytest.raises(errors.KafkaError) as refused:
                await Admin(cluster).create_topic(f"out-{number}", partitions=1)
            assert refused.value.code is errors.ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(AuthenticationError):
        async with logged_in(site, 'username="alice" password="wrong"'):
            pass
    assert "open to every host" not in served.stop()[2]


@pytest.fixture
def site(tmp_path: Path, server: ZooKeeperServer, chroot: str) -> Iterator[Site]:
    site = Site(tmp_path, server, chroot)
    yield site
    site.close()


def topic_ids(admin: AdminClient) -> dict[str, str]:
    described = admin.describe_topics(TopicCollection(["orders", "input"]))
    return {name: str(future.result(SECONDS).topic_id) for name, future in described.items()}


def config_of(admin: AdminClient, topic: str, key: str) -> str | None:
    asked = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)])
    (config,) = (each.result(SECONDS) for each in asked.values())
    return config[key].value


def test_copy_preserves_topics_records_groups_and_producer_ids(
    site: Site, server: ZooKeeperServer, chroot: str
) -> None:
    served = site.serve(site.alone)
    admin = AdminClient(site.client)
    for future in admin.create_topics(
        [NewTopic("orders", 3, 1, config={"retention.ms": "777000"}), NewTopic("input", 1, 1)]
    ).values():
        future.result(SECONDS)
    before = topic_ids(admin)
    producer = Producer(site.client | {"transactional.id": "mover"})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    for number in range(30):
        producer.produce("orders", str(number).encode(), partition=number % 3)
    position = [TopicPartition("input", 0, 42)]
    group = Consumer(site.client | {"group.id": "readers"})
    member = group.consumer_group_metadata()
    call_within(SECONDS, lambda: producer.send_offsets_to_transaction(position, member, SECONDS))
    producer.commit_transaction(SECONDS)
    producer.begin_transaction()
    producer.produce("orders", b"open", partition=0)
    assert producer.flush(SECONDS) == 0

    code, said = site.copy()
    assert (code, "stop the broker first" in said) == (1, True)
    assert served.stop()[0] == 0
    code, said = site.copy()
    assert (code, "nodes copied to ZooKeeper" in said) == (0, True), said

    site.serve(site.on_zookeeper)
    producer.produce("orders", b"after", partition=0)
    producer.commit_transaction(SECONDS)
    assert topic_ids(admin) == before
    assert [each.offset for each in group.committed(position, SECONDS)] == [42]
    assert config_of(admin, "orders", "retention.ms") == "777000"
    # The keys of a cluster; the only replica still takes writes.
    assert config_of(admin, "__transaction_state", "min.insync.replicas") == "2"
    assert read(site, "orders") == {*(str(n).encode() for n in range(30)), b"open", b"after"}
    # A new producer gets an id that no other had.
    newcomer = Producer(site.client | {"enable.idempotence": True})
    newcomer.produce("input", b"")
    assert newcomer.flush(SECONDS) == 0
    with server.looking(chroot) as client:
        block = znodes.decode_producer_id_block(client.get(znodes.PRODUCER_ID_BLOCK)[0])
        assert block.first == 1000
    # Without ZooKeeper the broker would not know the state of the cluster.
    assert not (site.data / "metadata").exists()
    assert (site.data / "metadata.copied" / "metadata.journal").exists()


def read(site: Site, topic: str) -> set[bytes]:
    consumer = Consumer(
        site.client
        | {"group.id": "check", "isolation.level": "read_committed", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(topic, each, 0) for each in range(3)])
    found, ended = set[bytes](), set[int | None]()
    while len(ended) < 3:
        message = consumer.poll(SECONDS)
        assert message is not None
        error = message.error()
        if error is None:
            value = message.value()
            assert isinstance(value, bytes)
            found.add(value)
        else:
            assert error.code() == KafkaError._PARTITION_EOF
            ended.add(message.partition())
    consumer.close()
    return found


@pytest.mark.parametrize("told", ["nowhere", "in the environment"])
def test_copy_uses_the_data_directory_of_serve(site: Site, tmp_path: Path, told: str) -> None:
    """`copy` had another default for the directory, and ignored KAFKA_... variables."""
    for file in (site.alone, site.on_zookeeper):
        file.write_text(file.read_text().replace(f"log.dirs={site.data}\n", ""))
    variables = {"XDG_STATE_HOME": str(tmp_path)}
    data = tmp_path / "barnabas"
    if told == "in the environment":
        data = tmp_path / "variable"
        variables["KAFKA_LOG_DIRS"] = str(data)
    Served("--config", str(site.alone), **variables).stop()
    assert (data / "metadata").exists()
    code, said = site.copy(**variables)
    assert code == 0, said
    assert not (data / "metadata").exists()


def test_repeated_copy_completes_one_that_was_killed_at_its_end(site: Site) -> None:
    """ZooKeeper had everything, and the journal was not renamed yet."""
    site.serve(site.alone).stop()
    first = site.copy()
    assert first[0] == 0, first[1]
    (site.data / "metadata.copied").rename(site.data / "metadata")
    assert site.copy() == first
    assert not (site.data / "metadata").exists()
    site.serve(site.on_zookeeper)


def test_copy_refuses_a_target_that_is_not_empty(
    site: Site, server: ZooKeeperServer, chroot: str
) -> None:
    site.serve(site.alone).stop()
    with server.looking() as client:
        client.create(f"{chroot}/brokers", makepath=True)
    code, said = site.copy()
    assert (code, "the target is not empty" in said) == (1, True), said
    assert (site.data / "metadata").exists()


def test_copy_refuses_the_directory_of_another_broker(site: Site) -> None:
    site.serve(site.alone).stop()
    code, said = site.copy("--set", "broker.id=8")
    assert (code, "belongs to broker 7" in said) == (1, True), said


def test_copy_refuses_a_directory_without_metadata(site: Site) -> None:
    code, said = site.copy()
    assert (code, "contains no metadata" in said) == (1, True), said


def test_copy_without_zookeeper_is_refused(site: Site) -> None:
    site.on_zookeeper.write_text(site.alone.read_text())
    code, said = site.copy()
    assert (code, "names no zookeeper.connect" in said) == (1, True), said
