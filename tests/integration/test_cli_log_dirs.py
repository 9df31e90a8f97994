"""`barnabas log-dirs` lists the log directories of replicas and moves replicas between them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.testing import Broker
from tests.support.command_line import Cli, on_a_terminal


@pytest.fixture
def directories(tmp_path: Path) -> list[str]:
    return [str(tmp_path / name) for name in "ab"]


@pytest.fixture
def cli(
    directories: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
    tmp_path: Path,
) -> Iterator[Cli]:
    configs = {"broker.id": "1", "log.dirs": ",".join(directories)}
    with Broker(configs, data_dir=tmp_path / "broker") as broker:
        yield Cli(broker.bootstrap_servers, (monkeypatch, capfdbinary), tmp_path)


def test_replicas_are_shown_and_moved(cli: Cli, directories: list[str]) -> None:
    cli("topics", "create", "t", "-p", "2")
    cli("produce", "t", "-p", "0", stdin=b"one\ntwo\n")
    shown = cli.json("log-dirs", "describe")
    assert [(each["broker"], each["log_dir"], each["state"]) for each in shown] == [
        (1, path, "online") for path in directories
    ]
    assert sum(each["replicas"] for each in shown) == 2
    (row,) = cli.json("log-dirs", "describe", "t:0")
    (there,) = set(directories) - {row["log_dir"]}
    moved = cli.json("log-dirs", "move", "t:0", "--broker", "1", "--to", there, "--wait")
    assert moved == [{"topic": "t", "partition": 0, "result": "there"}]
    (now,) = cli.json("log-dirs", "describe", "t:0", "--broker", "1")
    assert now == row | {"log_dir": there}
    assert cli("consume", "t", "-o", "beginning", "-e").splitlines() == [b"one", b"two"]


def test_log_dirs_reports_an_unknown_directory(cli: Cli) -> None:
    cli("topics", "create", "t")
    code, said, _ = cli.run("log-dirs", "move", "t", "--broker", "1", "--to", "/none")
    assert code == 1
    assert b"LOG_DIR_NOT_FOUND" in said


def test_directories_are_a_table_on_a_terminal(cli: Cli, directories: list[str]) -> None:
    cli("topics", "create", "t")
    head, *lines = on_a_terminal(cli.servers, "log-dirs", "describe").splitlines()
    assert head.split() == ["broker", "state", "replicas", "size", "total", "usable", "log_dir"]
    assert max(map(len, lines)) <= 80
    column = head.index("log_dir")
    assert "".join(line[column:].strip() for line in lines) == "".join(directories)
    assert [line.split()[:2] for line in lines if line[:column].strip()] == [["1", "online"]] * 2
    # One replica is a table too.
    head, *_ = on_a_terminal(cli.servers, "log-dirs", "describe", "t").splitlines()
    assert head.split() == ["broker", "topic", "partition", "state", "size", "lag", "log_dir"]
