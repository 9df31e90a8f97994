"""`barnabas serve --secure` and `barnabas cluster up --secure`."""

import asyncio
import re
import ssl
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import confluent_kafka
import pytest
from aiokafka import AIOKafkaProducer
from kafka import KafkaProducer
from kazoo.exceptions import NoAuthError

from barnabas.cli.processes.secure import make_secure
from barnabas.security.certificates import certificates_of, parse_certificate
from tests.support import zookeeper
from tests.support.command_line import (
    DEADLINE,
    Cli,
    Served,
    environment,
    run,
    run_in_shell,
    serve_on_a_terminal,
)
from tests.support.kafka import tools
from tests.support.ports import free_port, ports_in_a_row
from tests.support.process_texts import texts_of

_started: list[Served] = []


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    yield
    while _started:
        _started.pop().process.kill()


class Secure(Served):
    """`barnabas serve --secure`, and the settings that it prints."""

    def __init__(self, *arguments: str, listen: str = "localhost:0", **more: str) -> None:
        at = ("-l", listen) if listen else ()
        super().__init__("--secure", *at, *arguments, **more)
        _started.append(self)
        assert self.process.stdout is not None
        self.printed = ""
        while "stop:" not in self.printed:
            self.printed += self.process.stdout.readline().decode()

    def settings(self, library: str) -> dict[str, Any]:
        return printed_settings(self.printed, library)

    @property
    def admin(self) -> tuple[str, str]:
        """The options of a command that logs in as the administrator."""
        found = re.search(r"--command-config (\S+)$", self.printed, re.MULTILINE)
        assert found is not None
        return "--command-config", found[1]


def printed_settings(printed: str, library: str) -> dict[str, Any]:
    """Return the settings that a start has printed, with the directory that they name."""
    secure = re.search(r"^  secure = '(.*)'$", printed, re.MULTILINE)
    found = re.search(rf"^  {library}:\n((?:    .*\n)+)", printed, re.MULTILINE)
    assert secure is not None
    assert found is not None
    names = {"ssl": ssl, "open": open, "secure": secure[1]}
    settings: dict[str, Any] = eval(found[1], names)
    return settings


@pytest.fixture
def cli(
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
    tmp_path: Path,
) -> Cli:
    return Cli("127.0.0.1:1", (monkeypatch, capfdbinary), tmp_path)


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def produce(settings: dict[str, Any]) -> str | None:
    """Produce with librdkafka; return the error, None after a success."""
    producer = confluent_kafka.Producer(
        settings | {"message.timeout.ms": 3000, "socket.timeout.ms": 2000}
    )
    errors: list[Any] = []
    producer.produce("orders", b"1", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(DEADLINE) == 0
    return None if errors[0] is None else str(errors[0])


def test_clients_get_in_with_the_printed_settings(cli: Cli, tmp_path: Path) -> None:
    served = Secure("-d", str(tmp_path))
    assert produce(served.settings("confluent-kafka")) is None
    _use_kafka_python(served.settings("kafka-python"))
    asyncio.run(_use_aiokafka(served))
    cli = cli.at(served.servers)
    assert [row["topic"] for row in cli.json("topics", "list", *served.admin)] == ["orders"]
    code, _, errors = cli.run("topics", "list", "--timeout", "1")
    assert code == 1
    assert b"speaks TLS: set security.protocol=SSL or SASL_SSL in --command-config" in errors
    code, out, errors_of_broker = served.stop()
    assert code == 0
    password = (tmp_path / "secure" / "admin.password").read_text()
    assert len(password) == 32
    assert password not in served.printed + out + errors_of_broker


def _use_kafka_python(settings: dict[str, Any]) -> None:
    producer = KafkaProducer(**settings)
    producer.send("orders", b"2").get(DEADLINE)
    producer.close()


async def _use_aiokafka(served: Secure) -> None:
    async with AIOKafkaProducer(**served.settings("aiokafka")) as producer:
        await producer.send_and_wait("orders", b"3")


def test_banner_has_80_columns_and_a_profile_that_works() -> None:
    # A path in a line may be as long as that of a user's home.
    with TemporaryDirectory(dir="/tmp") as home:
        own = {"HOME": home, "XDG_STATE_HOME": "", "XDG_CONFIG_HOME": ""}
        listen = f"localhost:{free_port()}"
        banner, _ = serve_on_a_terminal("--secure", "-l", listen, **own)
        assert max(map(len, banner.splitlines())) <= 80
        assert banner.startswith(f"Barnabas serves {listen};\r\n  its data is in {home}/")
        served = Secure(listen=listen, **own)
        _, _, offered = served.printed.partition("A profile lets ")
        assert "barnabas profile create secure" in offered
        commands = offered.partition("\n")[2].partition("  produce:")[0]
        run_in_shell(f"unset BARNABAS_BOOTSTRAP_SERVER\n{commands}", "", Path(home), **own)
        produce, consume = re.findall(r"^  (?:produce|consume):  (.*)", served.printed, re.M)
        printed = run_in_shell(
            f"unset BARNABAS_BOOTSTRAP_SERVER\n{produce}\n{consume} --exit", "", Path(home), **own
        )
        assert printed == "hello\n"
        served.stop()
        again = Secure(listen=listen, **own)
        assert "by the profile secure, which is in use.\n  produce:" in again.printed
        again.stop()


@pytest.mark.parametrize("words", [(), ("--secure",)])
def test_banner_of_several_brokers_has_80_columns(words: tuple[str, ...]) -> None:
    with TemporaryDirectory(dir="/tmp") as home:
        own = {"HOME": home, "XDG_STATE_HOME": "", "XDG_CONFIG_HOME": ""}
        listen = f"localhost:{ports_in_a_row(6)}"
        banner, _ = serve_on_a_terminal(*words, "--processes", "3", "-l", listen, **own)
        assert max(map(len, banner.splitlines())) <= 80
        assert re.search(rf"^  broker 0:  {listen}, process \d+,\s+data in {home}/", banner, re.M)


def test_a_second_start_reuses_everything(cli: Cli, tmp_path: Path) -> None:
    secure, listen = tmp_path / "secure", f"localhost:{free_port()}"
    first = Secure("-d", str(tmp_path), listen=listen)
    assert produce(first.settings("confluent-kafka")) is None
    first.stop()
    made = files(secure)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in secure.iterdir()}
    assert modes == dict.fromkeys(made, 0o600) | {"ca.pem": 0o644}
    second = Secure("-d", str(tmp_path), listen=listen)
    assert files(secure) == made
    assert produce(second.settings("confluent-kafka")) is None
    assert cli.at(second.servers)(
        "consume", "orders", "--from", "beginning", "-c", "2", *second.admin
    )
    second.stop()


def topics(admin: Path) -> str:
    """Return what `topics list` prints with nothing but the administrator's properties."""
    done = subprocess.run(
        [sys.executable, "-m", "barnabas", "topics", "list", "--command-config", str(admin)],
        capture_output=True,
        env=environment(),
        timeout=DEADLINE,
        check=True,
        text=True,
    )
    return done.stdout


def test_properties_of_the_administrator_name_the_broker(tmp_path: Path) -> None:
    for _ in range(2):
        served = Secure("-d", str(tmp_path))
        assert produce(served.settings("confluent-kafka")) is None
        assert "orders" in topics(tmp_path / "secure" / "admin.properties")
        served.stop()


def test_users_without_a_rule_and_wrong_passwords_are_refused(tmp_path: Path) -> None:
    served = Secure("-d", str(tmp_path))
    settings = served.settings("confluent-kafka")
    assert produce(settings) is None
    assert produce(settings | {"sasl.password": "wrong"}) is not None
    assert produce(settings | {"security.protocol": "SSL"}) is not None
    served.stop()


def test_a_lost_password_is_made_again(tmp_path: Path) -> None:
    first = Secure("-d", str(tmp_path))
    old = first.settings("confluent-kafka")
    first.stop()
    (tmp_path / "secure" / "admin.password").unlink()
    second = Secure("-d", str(tmp_path))
    settings = second.settings("confluent-kafka")
    assert settings["sasl.password"] != old["sasl.password"]
    assert produce(settings) is None
    second.stop()


def test_another_host_gets_another_certificate(tmp_path: Path) -> None:
    Secure("-d", str(tmp_path)).stop()
    made = files(tmp_path / "secure")
    served = Secure(
        "-d", str(tmp_path), "--set", "advertised.listeners=PLAINTEXT://kafka.example:9092"
    )
    served.stop()
    now = files(tmp_path / "secure")
    changed = {name for name in now if now[name] != made[name]}
    assert changed == {"broker-0.pem", "admin.properties"}
    assert b"bootstrap.servers=kafka.example:9092\n" in now["admin.properties"]
    (certificate,) = certificates_of(now["broker-0.pem"].decode())
    names = b" ".join(parse_certificate(certificate).alternative_names)
    assert b"kafka.example" in names


def test_brokers_of_a_cluster_trust_each_other_alone(cli: Cli, tmp_path: Path) -> None:
    port = ports_in_a_row(6)
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "barnabas", "cluster", "up", "--secure", "-d", str(tmp_path)),
            *("--listen", f"localhost:{port}"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    assert process.stdout is not None
    printed = ""
    while "stop:" not in printed:
        line = process.stdout.readline().decode()
        assert line, process.communicate()[1].decode()
        printed += line
    try:
        settings = printed_settings(printed, "confluent-kafka")
        assert produce(settings | {"acks": "all"}) is None
        # The listener between the brokers wants a certificate, which no user has.
        between = f"localhost:{port + 3}"
        tls = {"bootstrap.servers": between, "security.protocol": "SSL"}
        assert produce(settings | tls) is not None
        assert produce({"bootstrap.servers": between}) is not None
        admin = ("--command-config", str(tmp_path / "secure" / "admin.properties"))
        described = cli.json("topics", "describe", "orders", "-b", f"localhost:{port}", *admin)
        (row,) = described["partitions"]
        assert sorted(row["isr"]) == [1, 2, 3]
        servers = ",".join(f"localhost:{port + number}" for number in range(3))
        assert f"bootstrap.servers={servers}\n" in Path(admin[1]).read_text()
        assert "orders" in topics(Path(admin[1]))
        shown = dict(texts_of(process.pid))
        # A Unix socket knows no certificates.
        assert [each.name for each in tmp_path.glob("*.socket")] == ["metadata.socket"]
    finally:
        process.terminate()
        _, errors = process.communicate(timeout=DEADLINE)
    password = settings["sasl.password"]
    assert password not in printed + errors.decode()
    assert len(shown) >= 3 * 4, "the command and its brokers"
    assert [name for name, text in shown.items() if password.encode() in text] == []


def refused(tmp_path: Path, *arguments: str, **more: str) -> str:
    done = run("serve", "--secure", "-l", "localhost:0", "-d", str(tmp_path), *arguments, **more)
    assert done.returncode == 1
    return done.stderr.decode().splitlines()[-1]


def test_files_that_do_not_fit_are_told(tmp_path: Path) -> None:
    secure = tmp_path / "secure"
    secure.mkdir()
    (secure / "ca.pem").write_text("x")
    text = refused(tmp_path)
    assert text.endswith("has ca.pem without ca.key and broker.pem and admin.password: give a "
                         "directory that has all of them, or an empty one")  # fmt: skip
    (secure / "ca.key").write_text("x")
    assert "ca.pem and " in (text := refused(tmp_path))
    assert "ca.key cannot be used: " in text
    (secure / "broker-0.pem").write_text("x")
    assert "broker-0.pem or ca.pem has no certificate: remove broker-0.pem" in refused(tmp_path)
    (secure / "ca.pem").unlink()
    assert "has ca.key without ca.pem: bring it back" in refused(tmp_path)


def test_keys_that_exclude_each_other_are_told(tmp_path: Path) -> None:
    text = refused(tmp_path, "--set", "security.inter.broker.protocol=SSL")
    assert text.endswith(
        "--secure takes inter.broker.listener.name instead of security.inter.broker.protocol"
    )


@pytest.mark.parametrize(
    ("keys", "protected"),
    [
        ({}, True),
        ({"zookeeper.set.acl": "false"}, False),
        ({"zookeeper.digest.file": "own"}, False),
        ({"zookeeper.ssl.keystore.location": "own"}, False),
    ],
)
def test_nodes_have_rights_unless_keys_say_otherwise(
    keys: dict[str, str], protected: bool, tmp_path: Path
) -> None:
    given = {"listeners": "A://localhost:0", "zookeeper.connect": "zk", "log.dir": "data"} | keys
    own = {"zookeeper.digest.file": str(tmp_path / "zookeeper.digest"), "zookeeper.set.acl": "true"}

    def shown() -> dict[str, str]:
        properties = make_secure(given, tmp_path, several=False).properties
        return {key: text for key, text in properties.items() if key in own | keys}

    assert shown() == (own if protected else keys)
    # Files that were made elsewhere, by an earlier release.
    (tmp_path / "broker-0.pem").rename(tmp_path / "broker.pem")
    for name in ("ca.key", "zookeeper.digest"):
        (tmp_path / name).unlink()
    assert shown() == keys


def test_a_directory_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    text = refused(tmp_path, "--secure-directory", str(tmp_path / "file" / "secure"))
    assert text == f"barnabas: {tmp_path}/file/secure: Not a directory"


def test_files_are_used_without_the_key_of_the_authority(tmp_path: Path) -> None:
    Secure("-d", str(tmp_path / "a")).stop()
    secure = tmp_path / "a" / "secure"
    (secure / "ca.key").unlink()
    (secure / "broker-0.pem").rename(secure / "broker.pem")
    served = Secure("-d", str(tmp_path / "b"), "--secure-directory", str(secure))
    assert produce(served.settings("confluent-kafka")) is None
    served.stop()


def test_kafkas_tools_get_in_with_the_properties(tmp_path: Path) -> None:
    served = Secure("-d", str(tmp_path))
    topic = ("--create", "--topic", "by-java", "--bootstrap-server", served.servers)
    done = tools.run("org.apache.kafka.tools.TopicCommand", *topic, *served.admin)
    assert (done.code, done.text) == (0, "Created topic by-java.\n"), done.errors
    served.stop()


def test_files_for_brokers_of_several_hosts(tmp_path: Path) -> None:
    hosts = ("--host", "localhost", "--host", "*.brokers.svc")
    done = run("secure", str(tmp_path / "made"), *hosts)
    assert done.returncode == 0, done.stderr
    made = files(tmp_path / "made")
    of_admin = {"admin.password", "admin.properties"}
    assert set(made) == {"ca.pem", "ca.key", "broker.pem", "zookeeper.digest"} | of_admin
    (tmp_path / "made" / "ca.key").rename(tmp_path / "kept")
    served = Secure("-d", str(tmp_path / "data"), "--secure-directory", str(tmp_path / "made"))
    assert produce(served.settings("confluent-kafka")) is None
    served.stop()
    again = run("secure", str(tmp_path / "made"), *hosts)
    assert again.returncode == 1
    assert b"has no ca.key" in again.stderr


@pytest.mark.skipif(not zookeeper.installed(), reason="needs a ZooKeeper server")
def test_brokers_on_zookeeper_share_the_files_that_the_first_one_makes(
    cli: Cli, tmp_path: Path
) -> None:
    """They begin at the same time, as containers with a common volume do."""
    with zookeeper.ZooKeeperServer(tmp_path / "zookeeper") as server:
        with ThreadPoolExecutor(3) as threads:
            brokers = list(threads.map(partial(_on_zookeeper, tmp_path, server.connect), (1, 2, 3)))
        made = files(tmp_path / "shared")
        assert {f"broker-{each}.pem" for each in (1, 2, 3)} < made.keys()
        settings = brokers[0].settings("confluent-kafka")
        assert produce(settings | {"acks": "all"}) is None
        at_second = ("-b", brokers[1].servers, *brokers[1].admin)
        described = cli.json("topics", "describe", "orders", *at_second)
        (row,) = described["partitions"]
        assert sorted(row["isr"]) == [1, 2, 3]
        with server.looking("/secure") as stranger:
            with pytest.raises(NoAuthError):
                stranger.get("/config/users/admin")
            with pytest.raises(NoAuthError):
                stranger.set("/brokers/topics/orders", b"")
        for broker in brokers:
            assert "open to every host" not in broker.stop()[2]


def _on_zookeeper(directory: Path, connect: str, broker: int) -> Secure:
    clients, between = free_port(), free_port()
    listeners = f"EXTERNAL://localhost:{clients},REPLICATION://localhost:{between}"
    return Secure(
        *("--secure-directory", str(directory / "shared"), "-d", str(directory / str(broker))),
        listen="",
        KAFKA_LISTENERS=listeners,
        KAFKA_INTER_BROKER_LISTENER_NAME="REPLICATION",
        KAFKA_BROKER_ID=str(broker),
        KAFKA_ZOOKEEPER_CONNECT=f"{connect}/secure",
        KAFKA_DEFAULT_REPLICATION_FACTOR="3",
    )
