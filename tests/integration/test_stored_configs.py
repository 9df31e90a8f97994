"""`barnabas configs --data` mends a stopped broker that no client can reach."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.testing import Broker
from tests.support.command_line import Cli

LOCALHOST_OUT = "max.connections.per.ip.overrides=127.0.0.1:0"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "broker"


@pytest.fixture
def broker(directory: Path) -> Iterator[Broker]:
    with Broker(data_dir=directory) as broker:
        yield broker


@pytest.fixture
def cli(
    broker: Broker,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
    tmp_path: Path,
) -> Cli:
    return Cli(broker.bootstrap_servers, (monkeypatch, capfdbinary), tmp_path)


def test_broker_that_keeps_its_operator_out_is_mended(
    cli: Cli, broker: Broker, directory: Path
) -> None:
    cli("configs", "alter", "broker", "--set", LOCALHOST_OUT, "--set", "log.cleaner.backoff.ms=7")
    code, _, _ = cli.run("topics", "list", "--timeout", "1")
    assert code == 1
    stored = ("configs", "--data", str(directory))
    code, _, errors = cli.run(*stored, "describe", "broker")
    assert code == 1
    assert b"is in use: stop the broker first" in errors
    broker.stop()
    assert cli.json(*stored, "describe", "broker") == [
        {"key": "log.cleaner.backoff.ms", "value": "7", "source": "cluster"},
        {
            "key": "max.connections.per.ip.overrides",
            "value": "127.0.0.1:0",
            "source": "cluster",
        },
    ]
    key = LOCALHOST_OUT.partition("=")[0]
    assert cli.json(
        *stored, "alter", "broker", "--delete", key, "--set", "log.cleaner.backoff.ms=8"
    ) == {"kind": "broker", "name": "", "altered": True}
    broker.start()
    (row,) = (
        row
        for row in cli.at(broker.bootstrap_servers).json("configs", "describe", "broker")
        if row["source"] == "cluster"
    )
    assert (row["key"], row["value"]) == ("log.cleaner.backoff.ms", "8")


def test_stored_password_is_not_shown(cli: Cli, broker: Broker, directory: Path) -> None:
    broker.stop()
    stored = ("configs", "--data", str(directory))
    key = "listener.name.plaintext.ssl.keystore.password"
    settings = ("--set", f"{key}=hunter2", "--set", "password.encoder.secret=s")
    cli(*stored, "alter", "broker", "0", *settings)
    assert cli.json(*stored, "describe", "broker", "0") == [
        {"key": key, "value": "[hidden]", "source": "broker"}
    ]
    for each in directory.rglob("*"):
        assert not each.is_file() or b"hunter2" not in each.read_bytes()


def test_stored_topic_is_described_and_altered(cli: Cli, broker: Broker, directory: Path) -> None:
    cli("topics", "create", "t", "--config", "retention.ms=5")
    broker.stop()
    stored = ("configs", "--data", str(directory))
    cli(*stored, "alter", "topic", "t", "--set", "max.message.bytes=9")
    rows = cli.json(*stored, "describe", "topic", "t")
    assert {row["key"]: row["value"] for row in rows} == {
        "retention.ms": "5",
        "max.message.bytes": "9",
    }


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("broker", "--set", "max.connections=0"), "no client could connect"),
        (("broker", "--set", "listener.name.x.max.connections=0"), "no client could connect"),
        (("broker", "--set", "broker.id=7"), "Cannot update these configs dynamically"),
        (("broker", "--set", "no.such=7"), "Unknown broker config name"),
        (("broker", "--delete", "max.connections"), "not set on broker"),
        (("broker", "0", "--append", "a=b"), "need a running broker"),
        (("topic", "t", "--set", "retention.ms=x"), "Not a number"),
        (("topic", "none", "--set", "retention.ms=1"), "not in the metadata store"),
        (("topic", "--set", "retention.ms=1"), "give the name of the topic"),
        (("broker-logger", "0", "--set", "root=INFO"), "no configuration of a broker-logger"),
        (("group", "g", "--set", "x=1"), "Unknown group config name"),
        (("broker",), "give at least one change"),
    ],
)
def test_refused_change_changes_nothing(
    cli: Cli, broker: Broker, directory: Path, arguments: tuple[str, ...], text: str
) -> None:
    broker.stop()
    stored = ("configs", "--data", str(directory))
    code, said, errors = cli.run(*stored, "alter", *arguments)
    assert code in (1, 2)
    assert (said, text in " ".join(errors.decode().split())) == (b"", True), errors
    assert cli.json(*stored, "describe", "broker") == []


def test_directory_without_metadata_is_explained(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    code, _, errors = cli.run("configs", "--data", str(tmp_path / "empty"), "describe", "broker")
    assert code == 1
    assert b"contains no metadata of a broker" in errors
    assert b"--zookeeper" in errors
    assert not list((tmp_path / "empty").iterdir())
