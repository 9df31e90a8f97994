"""`barnabas serve`: settings, signals, probes, kill -9, and errors that prevent a start."""

import asyncio
import json
import re
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

import pytest

from barnabas.broker.cluster import znodes
from barnabas.broker.cluster.features import TRANSACTION_VERSION
from barnabas.broker.loop.offload import InlineOffload
from barnabas.broker.store.embedded import open_store
from barnabas.client.connection import Connection
from barnabas.storage.files.files import OsFiles
from tests.support.command_line import ROOT, Cli, Served, run, serve_on_a_terminal
from tests.support.data_path import Client, batch
from tests.support.ports import free_port

NEVER_BEFORE_SERVING = {
    *("structlog", "rich", "importlib.metadata", "email", "argparse", "multiprocessing"),
    *(
        "prometheus_client",
        "h11",
        "http",
        "cramjam",
        "zlib",
        "lz4",
        "barnabas.client",
        "barnabas.faults",
        "pydantic",
        "barnabas.testing",
    ),
    *("shutil", "hashlib", "re2", "barnabas.storage.cleaning.compaction", "kazoo"),
}
"""Modules that are expensive to import and needed elsewhere only: a terminal, a scrape, compressed
batches, deletion, compaction, a listing by pattern."""


@pytest.fixture
def cli(
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
    tmp_path: Path,
) -> Cli:
    return Cli("127.0.0.1:1", (monkeypatch, capfdbinary), tmp_path)


def test_serve_takes_its_settings_from_file_environment_and_options(
    cli: Cli, tmp_path: Path
) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text(
        "# What java.util.Properties reads may say d\u00e9j\u00e0 vu.\n"
        f"listeners=PLAINTEXT://127.0.0.1:0\nlog.dirs={tmp_path}/file\nnum.partitions=3\n"
        "process.roles=broker\nmessage.max.bytes=1111\nlog.retention.ms=1111\n",
        "iso-8859-1",
    )
    served = Served(
        *("--config", str(properties), "--set", "log.retention.ms=3333"),
        *("--data", str(tmp_path / "option"), "--metrics", "127.0.0.1:0"),
        KAFKA_MESSAGE_MAX_BYTES="2222",
        KAFKA_LOG_RETENTION_MS="2222",
    )
    cli = cli.at(served.servers)
    shown = {row["key"]: row["value"] for row in cli.json("configs", "describe", "broker", "0")}
    assert shown["log.dirs"] == f"{tmp_path}/option"
    assert shown["num.partitions"] == "3"
    assert shown["message.max.bytes"] == "2222"
    assert shown["log.retention.ms"] == "3333"
    code, out, errors = served.stop()
    assert code == 0
    assert f"produce:  echo hello | barnabas produce greetings -b {served.servers}" in out
    lines = [json.loads(line) for line in errors.splitlines()]
    warnings = [line["event"] for line in lines if line["level"] == "warning"]
    assert warnings == ["These configuration keys have no effect here: process.roles"]
    assert (tmp_path / "option" / "meta.properties").exists()
    assert not (tmp_path / "file").exists()


def test_broker_starts_from_the_example_of_properties(tmp_path: Path) -> None:
    example = ROOT / "deploy" / "server.properties.example"
    listener = f"PLAINTEXT://127.0.0.1:{free_port()}"
    copied = tmp_path / "server.properties"
    text, ours = example.read_text("iso-8859-1"), f"\nlisteners={listener}\nlog.dirs={tmp_path}\n"
    copied.write_text(re.sub("\n#listeners=.*\n", ours, text), "iso-8859-1")
    served = Served("--config", str(copied), "--strict-config")
    assert served.servers == listener.removeprefix("PLAINTEXT://")
    code, _, errors = served.stop()
    assert code == 0
    assert '"level": "warning"' not in errors


def test_start_on_a_terminal_ends_with_the_banner(tmp_path: Path) -> None:
    serve = ("-l", "localhost:0", "-d", str(tmp_path))
    banner, end = serve_on_a_terminal(*serve)
    lines = banner.splitlines()
    assert lines[0].startswith("Barnabas serves localhost:")
    # The directory has a line of its own if its path is long.
    words = [line.split()[0] for line in lines[1:]]
    assert words in (["produce:", "consume:", "stop:"], ["its", "produce:", "consume:", "stop:"])
    # From then on the log is at info; a line about this Python would come before it.
    assert ("broker stopped" in end, end.count("\n")) == (True, 1)
    banner, _ = serve_on_a_terminal(*serve, "--log-level", "info")
    assert "broker started" in banner


def test_warning_of_the_start_is_on_a_terminal_before_the_banner(tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text("process.roles=broker\n")
    banner, _ = serve_on_a_terminal(
        *("-l", "localhost:0", "-d", str(tmp_path / "data")),
        *("--config", str(tmp_path / "server.properties")),
    )
    assert "These configuration keys have no effect here: process.roles" in banner.splitlines()[0]


def test_printed_configuration_names_the_source_of_each_key_and_no_password(
    tmp_path: Path,
) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "num.partitions=3\nnode.id=7\nlog.retention.ms=1111\nprocess.roles=broker\n"
        "ssl.key.password=hunter2\nlistener.name.plaintext.max.connections=9\n"
    )
    words = ("serve", "--config", str(file), "--set", "log.retention.ms=3333", "--print-config")
    printed = run(*words, KAFKA_MESSAGE_MAX_BYTES="2222", HOME=str(tmp_path))
    assert (printed.returncode, printed.stderr) == (0, b"")
    text = printed.stdout.decode()
    sections = dict(re.findall(r"^# (.+)\n((?:[^#\n].*\n|#\S.*\n)*)", text, re.MULTILINE))
    assert sections["These configuration keys have no effect here: process.roles"] == ""
    assert sections["options"] == "log.retention.ms=3333\n"
    assert sections["KAFKA_... variables"] == "message.max.bytes=2222\n"
    assert sections[str(file)].splitlines() == [
        "broker.id=7",
        "listener.name.plaintext.max.connections=9",
        "num.partitions=3",
        "#ssl.key.password=[hidden]",
    ]
    assert "listeners=PLAINTEXT://localhost:9092\n" in sections["defaults of barnabas serve"]
    assert "compression.type=producer\n" in sections["defaults"]
    assert "#broker.rack=\n" in sections["defaults"]
    assert "hunter2" not in text
    assert not (tmp_path / ".local").exists()
    # What was printed, used as a file, is the same configuration except for the password.
    file.write_text(text)
    again = run("serve", "--config", str(file), "--print-config").stdout.decode()
    assert set(again.splitlines()) >= {each for each in text.splitlines() if each[:1] not in "#"}


@pytest.mark.parametrize("words", ["--processes 2", "--secure", "--secure-directory x"])
def test_printed_configuration_is_of_one_plain_broker(words: str, tmp_path: Path) -> None:
    refused = run("serve", "-d", str(tmp_path / "data"), "--print-config", *words.split())
    assert refused.returncode == 2
    assert b"--print-config shows one broker" in refused.stderr
    assert not (tmp_path / "data").exists()


def test_log_has_the_form_that_was_asked_for(tmp_path: Path) -> None:
    place = ("-l", "127.0.0.1:0", "-d", str(tmp_path))
    code, _, errors = Served(*place, "--log-format", "console").stop()
    assert code == 0
    assert re.search(r"Z \[info +\] broker started", errors)


def test_serve_raises_the_soft_limit_of_open_files(tmp_path: Path) -> None:
    metrics = f"127.0.0.1:{free_port()}"
    served = Served(
        *("-l", "127.0.0.1:0", "-d", str(tmp_path), "--metrics", metrics),
        under=("sh", "-c", 'ulimit -Sn 64 && exec "$@"', "sh"),
    )
    with urlopen(f"http://{metrics}/metrics", timeout=5) as answer:
        shown = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines())
    assert float(shown["process_max_fds"]) == resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    served.stop()


def test_serve_imports_optional_modules_only_when_needed(cli: Cli, tmp_path: Path) -> None:
    served = Served(
        *("-l", "127.0.0.1:0", "-d", str(tmp_path), "--log-level", "debug"),
        PYTHONPROFILEIMPORTTIME="1",
    )
    cli.at(served.servers)("produce", "t", stdin=b"hello\n")
    _, _, errors = served.stop()
    lines = [line for line in errors.splitlines() if line.startswith("import time:")]
    imported = {line.rpartition("|")[2].strip() for line in lines}
    assert {"barnabas.broker.app", "uvloop"} <= imported
    assert not imported & NEVER_BEFORE_SERVING


def test_a_cluster_has_the_id_that_its_image_gives_it(tmp_path: Path) -> None:
    place = ("-l", "127.0.0.1:0", "-d", str(tmp_path))
    for variables in ({"CLUSTER_ID": "mine"}, {"KAFKA_CLUSTER_ID": "mine"}, {}):
        assert Served(*place, **variables).stop()[0] == 0
        assert "cluster.id=mine\n" in (tmp_path / "meta.properties").read_text()
    refused = run("serve", *place, CLUSTER_ID="another")
    assert refused.returncode == 1
    assert refused.stderr.decode().splitlines()[-1] == (
        f"barnabas: Invalid cluster.id in: {tmp_path}/meta.properties. "
        "Expected another, but read mine"
    )
    assert run("serve", *place, CLUSTER_ID="two words").returncode == 1


def _newer_directory(data: Path) -> None:
    text = (data / "meta.properties").read_text()
    (data / "meta.properties").write_text(text.replace("version=1", "version=2"))


def _newer_partition(data: Path) -> None:
    path = data / "t-0" / "partition.metadata"
    path.write_text(path.read_text().replace("version: 0", "version: 1"))


def _newer_journal(data: Path) -> None:
    path = data / "metadata" / "metadata.journal"
    stored = path.read_bytes()
    path.write_bytes(stored[:8] + (2).to_bytes(2, "big") + stored[10:])


def _newer_feature(data: Path) -> None:
    async def raise_level() -> None:
        store = await open_store(OsFiles(), str(data / "metadata"), InlineOffload())
        levels = {TRANSACTION_VERSION: 3}
        await store.session().set(znodes.FEATURE, znodes.encode_features(levels))
        await store.close()

    asyncio.run(raise_level())


@pytest.mark.parametrize(
    ("write", "told"),
    [
        (_newer_directory, "meta.properties has format 2,"),
        (_newer_partition, "t-0/partition.metadata has format 1,"),
        (_newer_journal, "the metadata journal has format 2,"),
        (_newer_feature, "transaction.version is finalized at 3."),
    ],
)
def test_data_of_a_newer_release_is_refused_in_a_line_and_left_alone(
    cli: Cli, tmp_path: Path, write: Callable[[Path], None], told: str
) -> None:
    place = ("-l", "127.0.0.1:0", "-d", str(tmp_path))
    served = Served(*place)
    cli.at(served.servers)("produce", "t", stdin=b"hello\n")
    assert served.stop()[0] == 0
    write(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.glob("t-*/*[ga]")}
    assert len(before) == 2
    refused = run("serve", *place)
    [line] = [each for each in refused.stderr.decode().splitlines() if told in each]
    assert refused.returncode == 1
    assert line.startswith("barnabas: ")
    assert re.search("[Ss]tart (the|a) .*version", line)
    assert {path: path.read_bytes() for path in before} == before


def test_address_file_is_there_while_the_broker_serves(tmp_path: Path) -> None:
    file, place = tmp_path / "address", ("-l", "127.0.0.1:0", "-d", str(tmp_path / "data"))
    served = Served(*place, "--address-file", str(file))
    assert file.read_text() == f"{served.servers}\n"
    assert file.stat().st_mode & 0o777 == 0o644
    served.stop(signal.SIGKILL)
    assert file.exists()
    # Nothing listens at that address: a start that fails leaves no file.
    refused = run("serve", "-l", "192.0.2.1:9092", *place[2:], "--address-file", str(file))
    assert refused.returncode == 1
    assert not file.exists()
    served = Served(*place, "--address-file", str(file))
    assert file.read_text() == f"{served.servers}\n"
    assert served.stop()[0] == 0
    assert [each.name for each in tmp_path.iterdir()] == ["data"]


def test_address_file_in_no_directory_is_refused_before_the_start(tmp_path: Path) -> None:
    place = ("-l", "127.0.0.1:0", "-d", str(tmp_path / "data"))
    refused = run("serve", *place, "--address-file", str(tmp_path / "none" / "address"))
    assert refused.returncode == 1
    assert refused.stderr.endswith(b"none/address: there is no such directory\n")
    assert not (tmp_path / "data").exists()


def test_serve_answers_probes_and_scrapes_until_ctrl_c(cli: Cli, tmp_path: Path) -> None:
    metrics = f"127.0.0.1:{free_port()}"
    served = Served("-l", "127.0.0.1:0", "-d", str(tmp_path), "--metrics", metrics)
    cli.at(served.servers)("produce", "t", stdin=b"hello\n")
    with urlopen(f"http://{metrics}/readyz", timeout=5) as answer:
        assert answer.read() == b"ready\n"
    with urlopen(f"http://{metrics}/metrics", timeout=5) as answer:
        assert b"kafka_server" in answer.read()
    second = run("serve", "-l", "127.0.0.1:0", "-d", str(tmp_path))
    assert second.returncode == 1
    assert second.stderr.endswith(b"is in use by another broker; stop it, or give another --data\n")
    third = run("serve", "-l", served.servers, "-d", str(tmp_path / "other"))
    assert third.stderr.endswith(b"Address already in use\n")
    code, _, errors = served.stop(signal.SIGINT)
    assert code == 0
    assert "Traceback" not in errors
    dumped = [
        json.loads(line)
        for line in cli("dump-log", str(tmp_path / "t-0"), "-r", "--json").splitlines()
    ]
    assert [row["value"] for row in dumped if "value" in row] == ["hello"]


def test_serve_starts_again_after_kill_9(cli: Cli, tmp_path: Path) -> None:
    served = Served("-l", "127.0.0.1:0", "-d", str(tmp_path), "--log-level", "error")
    cli.at(served.servers)("produce", "kept", stdin=b"one\ntwo\n")
    assert served.stop(signal.SIGKILL)[0] == -signal.SIGKILL
    served = Served("-l", "127.0.0.1:0", "-d", str(tmp_path), "--log-level", "ERROR")
    assert cli.at(served.servers)("consume", "kept", "-o", "beginning", "-e") == b"one\ntwo\n"
    code, _, errors = served.stop()
    assert (code, errors) == (0, "")


def test_many_connections_leave_file_descriptors_for_the_logs(tmp_path: Path) -> None:
    served = Served("-l", "127.0.0.1:0", "-d", str(tmp_path))
    resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE, (100, 100))
    host, port = served.servers.split(":")

    async def scenario() -> None:
        client = Client(await Connection.open(host, int(port), timeout=5))
        crowd = [await asyncio.open_connection(host, port) for _ in range(100)]
        for number in range(3):
            await client.create(f"during-{number}")
        answer = await client.produce(batch(b"a"), topic="during-0")
        assert answer.error_code == 0
        for _, writer in crowd:
            writer.close()
        await client.connection.close()

    asyncio.run(scenario())
    code, _, errors = served.stop()
    assert code == 0
    assert "connections cannot be accepted" in errors
