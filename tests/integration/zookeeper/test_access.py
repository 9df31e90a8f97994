"""Access to the nodes: digests, ACLs, TLS."""

import asyncio
import logging
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from kazoo.exceptions import NoAuthError
from kazoo.security import OPEN_ACL_UNSAFE, READ_ACL_UNSAFE, make_acl

from barnabas.broker.app import Broker
from barnabas.broker.cluster import znodes
from barnabas.broker.cluster.registration import missing_nodes, prepare_cluster, register_broker
from barnabas.broker.cluster.znodes import BrokerEndpoint, BrokerInfo
from barnabas.broker.store.metadata_store import Create, NotAllowed, StoreUnavailable
from barnabas.broker.store.zookeeper.settings import settings_of
from barnabas.broker.store.zookeeper.store import open_zookeeper
from barnabas.broker.store.zookeeper.wire import GUARDED_ROOTS
from barnabas.config.broker import BrokerConfig
from barnabas.config.key import ConfigError
from tests.integration.zookeeper.brokers_in_loop import properties
from tests.integration.zookeeper.conftest import Stores, until_answered
from tests.support.command_line import run
from tests.support.ports import free_port
from tests.support.zookeeper import ZooKeeperServer, every_path

DIGEST = "broker:s3cret"


async def test_client_without_the_digest_cannot_change_nodes_or_read_secrets(
    server: ZooKeeperServer, stores: Stores, chroot: str
) -> None:
    store = await stores.open(server, chroot, credentials=DIGEST, set_acl=True)
    await prepare_cluster(store, "cluster")
    info = BrokerInfo(1, (BrokerEndpoint("A", "PLAINTEXT", "localhost", 9092),))
    await register_broker(store, info, 0)
    await store.multi(
        [
            Create(znodes.config_path("brokers", "1"), znodes.encode_config({"a": "secret"})),
            Create(znodes.config_path("topics", "t"), znodes.encode_config({})),
            Create(znodes.CONTROLLER, b"{}", ephemeral=True),
        ]
    )

    def look() -> tuple[set[str], set[str]]:
        hidden, paths = set[str](), set[str]()
        with (
            server.looking(chroot, auth_data=[("digest", DIGEST)]) as known,
            server.looking(chroot) as stranger,
        ):
            for path in every_path(known):
                paths.add(path)
                with pytest.raises(NoAuthError):
                    stranger.set(path, b"")
                if path not in (znodes.CONTROLLER, znodes.broker_path(1)):
                    with pytest.raises(NoAuthError):
                        stranger.create(f"{path.rstrip('/')}/intruder")
                if path != "/":
                    with pytest.raises(NoAuthError):
                        stranger.delete(path)
                with pytest.raises(NoAuthError):
                    stranger.set_acls(path, OPEN_ACL_UNSAFE)
                try:
                    stranger.get(path)
                except NoAuthError:
                    hidden.add(path)
        return hidden, paths

    hidden, paths = await asyncio.to_thread(look)
    assert hidden == {"/config/brokers", "/config/brokers/1", "/config/users"}
    assert {znodes.CLUSTER_ID, znodes.CONTROLLER, "/config/topics/t", "/", "/admin"} <= paths

    stranger = await stores.open(server, chroot)
    with pytest.raises(NotAllowed):
        await stranger.set(znodes.CLUSTER_ID, b"")
    with pytest.raises(NotAllowed):
        await stranger.get("/config/brokers/1")


async def test_protect_closes_an_open_tree(
    server: ZooKeeperServer, stores: Stores, chroot: str, tmp_path: Path
) -> None:
    store = await stores.open(server, chroot)
    await prepare_cluster(store, "cluster")
    secrets = {
        znodes.config_path("users", "alice"): b"a credential",
        znodes.config_path("brokers", "1"): b"a password",
    }
    await store.multi([Create(path, data) for path, data in secrets.items()])
    await store.multi(await missing_nodes(store, (znodes.token_path("id"),)))
    (digest := tmp_path / "digest").write_text(f"{DIGEST}\n")
    properties = tmp_path / "server.properties"
    properties.write_text(
        f"zookeeper.connect={server.connect}{chroot}\nzookeeper.digest.file={digest}\n"
        "listeners=A://:9092,B://:9192\ninter.broker.listener.name=B\n"
        "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT\n"
    )
    words = ("metadata", "protect", "--config", str(properties))
    refused = await asyncio.to_thread(run, *words)
    assert (refused.returncode, b"zookeeper.set.acl" in refused.stderr) == (1, True)
    done = await asyncio.to_thread(run, *words, "--set", "zookeeper.set.acl=true")
    assert done.returncode == 0, done.stderr

    def look() -> set[str]:
        hidden, paths = set[str](), []
        with (
            server.looking(chroot, auth_data=[("digest", DIGEST)]) as known,
            server.looking(chroot) as stranger,
        ):
            for path in every_path(known):
                paths.append(path)
                with pytest.raises(NoAuthError):
                    stranger.set(path, b"")
                with pytest.raises(NoAuthError):
                    stranger.create(f"{path.rstrip('/')}/intruder")
                try:
                    stranger.get(path)
                except NoAuthError:
                    hidden.add(path)
        assert done.stdout == f"{len(paths)} nodes are protected\n".encode()
        return hidden

    assert await asyncio.to_thread(look) == {
        *("/config/brokers", "/config/users", *secrets),
        *(znodes.DELEGATION_TOKENS, znodes.token_path("id")),
    }


async def test_nodes_older_than_their_rights_are_warned_of_until_protected(
    server: ZooKeeperServer,
    stores: Stores,
    chroot: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """After zookeeper.set.acl=true on an existing tree its passwords stayed open, silently."""
    await prepare_cluster(await stores.open(server, chroot), "cluster")
    (digest := tmp_path / "digest").write_text(f"{DIGEST}\n")
    keys = properties(server, chroot, 1, tmp_path / "log") | {
        "zookeeper.digest.file": str(digest),
        "zookeeper.set.acl": "true",
        "metrics.listener": (metrics := f"127.0.0.1:{free_port()}"),
    }
    (file := tmp_path / "server.properties").write_text(
        "".join(f"{key}={value}\n" for key, value in keys.items())
    )

    def page() -> str:
        with urlopen(f"http://{metrics}/metrics", timeout=5) as answer:
            return str(answer.read().decode())

    async def told() -> tuple[list[str], list[str]]:
        """Start a broker; return its warnings of open nodes and the samples of its metric."""
        caplog.clear()
        broker = Broker(BrokerConfig.from_properties(keys))
        await broker.start()
        try:
            lines = (await asyncio.to_thread(page)).splitlines()
        finally:
            await broker.stop()
        warnings = [each for each in caplog.messages if "open to every host" in each]
        return warnings, [each for each in lines if each.startswith("barnabas_server_exposures{")]

    warnings, samples = await told()
    assert samples == ['barnabas_server_exposures{kind="open_metadata",listener=""} 1.0']
    (warning,) = warnings
    assert ": /config/brokers, /config/users. Run `barnabas metadata protect --config" in warning
    done = await asyncio.to_thread(run, "metadata", "protect", "--config", str(file))
    assert done.returncode == 0, done.stderr
    assert await told() == ([], [])


async def test_nodes_of_rules_may_be_read_and_those_of_secrets_may_not(
    server: ZooKeeperServer, stores: Stores, chroot: str
) -> None:
    store = await stores.open(server, chroot, credentials=DIGEST, set_acl=True)
    await store.multi(await missing_nodes(store, GUARDED_ROOTS))
    assert await store.open_nodes() == []
    rights = {
        "/config/users": READ_ACL_UNSAFE,
        "/kafka-acl": READ_ACL_UNSAFE,
        "/kafka-acl-extended": OPEN_ACL_UNSAFE,
        "/config/brokers": [make_acl("ip", "127.0.0.1", all=True)],
        "/scram_stand_ins": [make_acl("ip", "10.0.0.1", all=True)],
    }

    def change() -> None:
        with server.looking(chroot, auth_data=[("digest", DIGEST)]) as known:
            for path, given in rights.items():
                known.set_acls(path, given)

    await asyncio.to_thread(change)
    assert await store.open_nodes() == ["/config/users", "/kafka-acl-extended"]


async def test_the_digest_is_sent_again_with_each_connection_and_session(
    own_server: ZooKeeperServer, stores: Stores
) -> None:
    store = await stores.open(own_server, "", credentials=DIGEST, set_acl=True)
    await store.create("/mine")
    await asyncio.to_thread(own_server.restart)
    await until_answered(lambda: store.exists("/"))
    await store.set("/mine", b"2")
    over = asyncio.Event()
    store.on_expired(over.set)
    assert store.key is not None
    await asyncio.to_thread(own_server.expire, *store.key)
    await asyncio.wait_for(over.wait(), 10)
    await store.renew()
    await store.set("/mine", b"3")


async def test_digest_is_not_logged(
    server: ZooKeeperServer, stores: Stores, chroot: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    logging.getLogger("kazoo").setLevel(logging.DEBUG)
    store = await stores.open(server, chroot, credentials=DIGEST, set_acl=True)
    await store.create("/mine")
    await store.close()
    assert "s3cret" not in caplog.text
    assert "s3cret" not in repr(store._settings)


async def test_without_credentials_an_acl_for_the_creator_is_refused(
    server: ZooKeeperServer, stores: Stores, chroot: str
) -> None:
    store = await stores.open(server, "")
    store = await stores.open(server, "", set_acl=True)
    with pytest.raises(NotAllowed):
        await store.create(chroot)


async def test_existing_path_below_a_foreign_node_is_used(
    server: ZooKeeperServer, stores: Stores, chroot: str
) -> None:
    with server.looking() as client:
        client.create(chroot)
        client.create(f"{chroot}/ours")
        client.set_acls(chroot, READ_ACL_UNSAFE)
    store = await stores.open(server, f"{chroot}/ours")
    await store.create("/n")
    with pytest.raises(NotAllowed):
        await stores.open(server, f"{chroot}/new")


# -- TLS -------------------------------------------------------------------------------------------


class Authority:
    """A certificate authority for a test."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.openssl("req", "-x509", *KEY, "-subj", "/CN=ca", "-out", "ca.pem", "-keyout", "ca.key")

    def issue(self, name: str, alternative: str) -> Path:
        """Write a PEM file with a key and its certificate."""
        request, key, certificate = f"{name}.csr", f"{name}.key", f"{name}.crt"
        extensions = self.directory / f"{name}.ext"
        extensions.write_text(f"subjectAltName={alternative}\n")
        self.openssl("req", *KEY, "-subj", f"/CN={name}", "-keyout", key, "-out", request)
        self.openssl(
            *("x509", "-req", "-in", request, "-CA", "ca.pem", "-CAkey", "ca.key"),
            *("-CAcreateserial", "-days", "2", "-extfile", str(extensions), "-out", certificate),
        )
        both = self.directory / f"{name}.pem"
        both.write_text(
            (self.directory / key).read_text() + (self.directory / certificate).read_text()
        )
        return both

    def openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.directory, check=True, capture_output=True)


KEY = ("-newkey", "rsa:2048", "-nodes", "-days", "2")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


class SecureServer(ZooKeeperServer):
    """A server that speaks TLS on a second port and asks for the client's certificate."""

    def __init__(self, directory: Path, authority: Authority, certificate: Path) -> None:
        self.secure_port = free_port()
        super().__init__(
            directory,
            properties={
                "secureClientPort": str(self.secure_port),
                "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
                "ssl.keyStore.location": str(certificate),
                "ssl.keyStore.type": "PEM",
                "ssl.trustStore.location": str(authority.directory / "ca.pem"),
                "ssl.trustStore.type": "PEM",
                "ssl.clientAuth": "need",
                "ssl.hostnameVerification": "false",
                "authProvider.x509": (
                    "org.apache.zookeeper.server.auth.X509AuthenticationProvider"
                ),
            },
        )


@pytest.fixture(scope="module")
def secure(
    authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecureServer]:
    certificate = authority.issue("server", "DNS:localhost")
    with SecureServer(tmp_path_factory.mktemp("secure"), authority, certificate) as server:
        yield server


def config(server: SecureServer, authority: Authority, **more: str) -> BrokerConfig:
    keys = {
        "zookeeper.connect": f"localhost:{server.secure_port}",
        "zookeeper.connection.timeout.ms": "1500",
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.truststore.location": str(authority.directory / "ca.pem"),
        "listeners": "PLAINTEXT://:9092,REPLICATION://:9192",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,REPLICATION:PLAINTEXT",
        "inter.broker.listener.name": "REPLICATION",
    }
    return BrokerConfig.from_properties(
        keys | {f"zookeeper.{key.replace('_', '.')}": value for key, value in more.items()}
    )


async def test_broker_with_a_certificate_connects_and_owns_its_nodes(
    secure: SecureServer, authority: Authority
) -> None:
    own = str(authority.issue("broker", "DNS:broker"))
    settings = settings_of(config(secure, authority, ssl_keystore_location=own, set_acl="true"))
    store = await open_zookeeper(settings)
    try:
        await store.create("/mine", bytes(300_000))
        assert len((await store.get("/mine"))[0]) == 300_000
        # Many responses in one TLS record: data that was decrypted ahead must be read.
        answers = await asyncio.gather(*(store.exists("/mine") for _ in range(500)))
        assert all(answers)
    finally:
        await store.close()

    def look() -> None:
        with secure.looking() as stranger, pytest.raises(NoAuthError):
            stranger.set("/mine", b"")

    await asyncio.to_thread(look)


async def test_encrypted_key_is_opened_with_its_password(
    secure: SecureServer, authority: Authority, tmp_path: Path
) -> None:
    plain, locked = authority.issue("locked", "DNS:broker"), tmp_path / "locked.pem"
    authority.openssl(
        *("rsa", "-aes256", "-in", str(plain), "-out", str(locked), "-passout", "pass:sesame")
    )
    locked.write_text(locked.read_text() + (authority.directory / "locked.crt").read_text())
    given = {"ssl_keystore_location": str(locked)}
    store = await open_zookeeper(
        settings_of(config(secure, authority, **given, ssl_keystore_password="sesame"))
    )
    await store.close()
    for password in ({}, {"ssl_keystore_password": "wrong"}):
        with pytest.raises(ConfigError, match=r"keystore\.location cannot be used"):
            settings_of(config(secure, authority, **given, **password))


async def test_connection_without_a_certificate_is_refused(
    secure: SecureServer, authority: Authority
) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        await open_zookeeper(settings_of(config(secure, authority)))


async def test_server_certificate_of_another_authority_is_refused(
    secure: SecureServer, authority: Authority, tmp_path: Path
) -> None:
    other = Authority(tmp_path)
    own = str(authority.issue("broker", "DNS:broker"))
    with pytest.raises(StoreUnavailable, match="certificate verify failed"):
        await open_zookeeper(settings_of(config(secure, other, ssl_keystore_location=own)))


@pytest.mark.parametrize("algorithm", ["HTTPS", ""])
async def test_host_name_of_the_certificate_is_verified_if_configured(
    secure: SecureServer, authority: Authority, algorithm: str
) -> None:
    """The server's certificate is for localhost, not for 127.0.0.1."""
    settings = settings_of(
        config(
            secure,
            authority,
            connect=f"127.0.0.1:{secure.secure_port}",
            ssl_keystore_location=str(authority.issue("broker", "DNS:broker")),
            ssl_endpoint_identification_algorithm=algorithm,
        )
    )
    assert isinstance(settings.tls, ssl.SSLContext)
    if algorithm:
        with pytest.raises(StoreUnavailable, match="IP address mismatch"):
            await open_zookeeper(settings)
    else:
        await (await open_zookeeper(settings)).close()


def test_invalid_certificate_store_is_refused(
    secure: SecureServer, authority: Authority, tmp_path: Path
) -> None:
    for path in (tmp_path / "nothing", Path(__file__)):
        with pytest.raises(ConfigError, match=r"truststore\.location"):
            settings_of(config(secure, authority, ssl_truststore_location=str(path)))
