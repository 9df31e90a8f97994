"""Every command as a person or a program runs it: a child process, its output and its exit code."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from barnabas.cli.main import main
from barnabas.testing import Broker

ROOT = Path(__file__).parents[2]
DEADLINE = 20.0


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


def environment(**more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("KAFKA_", "BARNABAS_"))}
    return {**kept, "PYTHONPATH": str(ROOT), **more}


def run(
    *arguments: str, servers: str = "", stdin: bytes = b"", **more: str
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "barnabas", *arguments],
        input=stdin,
        capture_output=True,
        timeout=DEADLINE,
        env=environment(BARNABAS_BOOTSTRAP_SERVER=servers or "127.0.0.1:1", **more),
        check=False,
    )


class Cli:
    """Commands on one cluster, in this process, all of which succeed and say only their answer."""

    def __init__(self, servers: str, pytest_tools: tuple[Any, Any], directory: Path) -> None:
        self.servers = servers
        self._patch, self._captured = pytest_tools
        self._input = directory / "stdin"

    def at(self, servers: str) -> "Cli":
        """The same on another cluster."""
        return Cli(servers, (self._patch, self._captured), self._input.parent)

    def run(self, *arguments: str, stdin: bytes = b"") -> tuple[int, bytes, bytes]:
        """Exit code, standard output and standard error."""
        self._input.write_bytes(stdin)
        self._captured.readouterr()
        with self._input.open() as input_file, self._patch.context() as patch:
            patch.setattr(sys, "argv", ["barnabas", *arguments])
            patch.setattr(sys, "stdin", input_file)
            patch.setenv("BARNABAS_BOOTSTRAP_SERVER", self.servers)
            with pytest.raises(SystemExit) as done:
                main()
        return (int(done.value.code or 0), *self._captured.readouterr())

    def __call__(self, *arguments: str, stdin: bytes = b"") -> bytes:
        code, out, errors = self.run(*arguments, stdin=stdin)
        assert (code, errors) == (0, b"")
        return out

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json"))


@pytest.fixture
def cli(
    servers: str,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
    tmp_path: Path,
) -> Cli:
    return Cli(servers, (monkeypatch, capfdbinary), tmp_path)


def test_topics(cli: Cli) -> None:
    created = cli.json("topics", "create", "books", "-p", "2", "-c", "retention.ms=1000")
    assert isinstance(created, dict)
    assert (created["topic"], created["partitions"]) == ("books", 2)
    listed = cli.json("topics", "list")
    assert {"topic": "books", "partitions": 2, "replicas": 1, "id": created["id"]} in listed
    cli("topics", "alter", "books", "-p", "3", "-c", "retention.ms=2000")
    cli("produce", "books", "-p", "1", stdin=b"a\nb\nc\n")
    assert cli("topics", "describe", "books").splitlines() == [
        b"partition\tleader\tepoch\treplicas\tisr\tstart\tend",
        b"0\t0\t0\t0\t0\t0\t0",
        b"1\t0\t0\t0\t0\t0\t3",
        b"2\t0\t0\t0\t0\t0\t0",
    ]
    cli("topics", "delete-records", "books", "-p", "1", "-o", "2")
    assert cli.json("topics", "describe", "books")[1]["start"] == 2
    assert b"retention.ms\t2000\ttopic" in cli("configs", "describe", "topic", "books")
    cli("topics", "delete", "books", "--yes")
    assert b"books" not in cli("topics", "list")


def test_configs(cli: Cli) -> None:
    def shown() -> dict[str, str]:
        rows = cli.json("configs", "describe", "topic", "set")
        return {row["key"]: row["value"] for row in rows if row["source"] == "topic"}

    cli("topics", "create", "set")
    alter = ("configs", "alter", "topic", "set")
    cli(*alter, "-s", "retention.ms=5", "--append", "cleanup.policy=compact")
    assert shown() == {"retention.ms": "5", "cleanup.policy": "delete,compact"}
    cli(*alter, "-d", "retention.ms", "--subtract", "cleanup.policy=delete")
    assert shown() == {"cleanup.policy": "compact"}
    everything = cli.json("configs", "describe", "topic", "set", "--all")
    (retention,) = (row for row in everything if row["key"] == "retention.ms")
    assert (retention["value"], retention["source"]) == ("604800000", "default")
    cli("configs", "alter", "broker", "0", "-s", "log.cleaner.backoff.ms=77")
    assert b"log.cleaner.backoff.ms\t77\tbroker" in cli("configs", "describe", "broker", "0")
    cli("configs", "alter", "broker-logger", "0", "-s", "barnabas.broker.app=DEBUG")
    loggers = cli("configs", "describe", "broker-logger", "0")
    assert b"barnabas.broker.app\tDEBUG\tlogger" in loggers


def test_lines_with_keys_headers_and_nulls_come_back(cli: Cli, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_bytes("k\u00e9y\t1\n\tempty key\nkeyless\nnull\t\n".encode())
    cli(
        "produce",
        "kcat",
        str(lines),
        "-K",
        "\\t",
        "-Z",
        "-H",
        "a=1",
        "-H",
        "b=",
        "-z",
        "lz4",
        "-T",
        "42",
    )
    template = "%t/%p@%o %T [%k:%K] [%s:%S] {%h} 100%%\\n"
    assert cli("consume", "kcat", "-o", "beginning", "-e", "-Z", "-f", template).decode() == (
        "kcat/0@0 42 [k\u00e9y:4] [1:1] {a=1,b=} 100%\n"
        "kcat/0@1 42 [NULL:-1] [empty key:9] {a=1,b=} 100%\n"
        "kcat/0@2 42 [NULL:-1] [keyless:7] {a=1,b=} 100%\n"
        "kcat/0@3 42 [null:4] [NULL:-1] {a=1,b=} 100%\n"
    )
    assert cli("consume", "kcat", "-o", "-2", "-c", "1", "-K", "=", "-D", ";") == b"=keyless;"
    (row,) = map(json.loads, cli("consume", "kcat", "-o", "3", "-e", "--json").splitlines())
    assert row == {
        "topic": "kcat",
        "partition": 0,
        "offset": 3,
        "timestamp": 42,
        "key": "null",
        "value": None,
        "headers": [["a", "1"], ["b", ""]],
    }


def test_consume_begins_where_it_is_told(cli: Cli) -> None:
    cli("topics", "create", "starts", "-p", "2")
    for partition, timestamp, lines in (
        ("0", "1000", b"a\nb\n"),
        ("0", "2000", b"c\n"),
        ("1", "3000", b"d\n"),
    ):
        cli("produce", "starts", "-p", partition, "-T", timestamp, stdin=lines)

    def read(*arguments: str) -> list[bytes]:
        return sorted(cli("consume", "starts", "-e", *arguments).split())

    assert read("-o", "beginning") == [b"a", b"b", b"c", b"d"]
    assert read("-o", "beginning", "-p", "1") == [b"d"]
    assert read("-o", "1", "-p", "0") == [b"b", b"c"]
    assert read("-o", "-1") == [b"c", b"d"]
    assert read("-o", "@2000") == [b"c", b"d"]
    assert read("-o", "end") == []


def test_groups(cli: Cli) -> None:
    cli("produce", "grouped", stdin=b"".join(b"%d\n" % n for n in range(10)))
    first = cli("consume", "grouped", "-g", "readers", "-o", "beginning", "-c", "4")
    assert first == b"0\n1\n2\n3\n"
    (row,) = cli.json("groups", "describe", "readers")
    assert (row["offset"], row["end"], row["lag"]) == (4, 10, 6)
    assert cli("consume", "grouped", "-g", "readers", "-e") == b"4\n5\n6\n7\n8\n9\n"
    assert {row["group"] for row in cli.json("groups", "list")} >= {"readers"}
    dry = cli.json("groups", "reset-offsets", "readers", "--to-earliest", "--dry-run")
    assert dry == [{"topic": "grouped", "partition": 0, "was": 10, "offset": 0}]
    for option, offset in (("--shift-by=-3", 7), ("--to-offset=99", 10), ("--to-timestamp=0", 0)):
        cli("groups", "reset-offsets", "readers", option)
        assert cli.json("groups", "describe", "readers")[0]["offset"] == offset
    cli("groups", "delete-offsets", "readers", "-t", "grouped")
    assert cli.json("groups", "describe", "readers") == []
    cli("groups", "delete", "readers", "--yes")
    assert "readers" not in [row["group"] for row in cli.json("groups", "list")]


def test_benchmark_measures_and_cleans_up(cli: Cli) -> None:
    produced, consumed = cli.json("benchmark", "speed", "-n", "2000", "-s", "100")
    assert (produced["records"], consumed["records"]) == (2000, 2000)
    assert produced["p50 ms"] <= produced["p99 ms"]
    assert b"speed" not in cli("topics", "list")


def test_many_lines_stream_through_bounded_memory(cli: Cli, tmp_path: Path) -> None:
    lines = tmp_path / "many"
    with lines.open("wb") as file:
        for n in range(60_000):
            file.write(b"%08d" % n + b"." * 991 + b"\n")
    program = (
        "import resource, sys\n"
        "from barnabas.cli.main import cli\n"
        "cli(sys.argv[1:], standalone_mode=False)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)\n"
    )

    def peak_mb(*arguments: str) -> tuple[float, bytes]:
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments, "-b", cli.servers],
            capture_output=True,
            env=environment(),
            timeout=60,
            check=True,
        )
        return int(done.stderr) / 1024, done.stdout

    peak, _ = peak_mb("produce", "many", str(lines))
    assert peak < 130
    peak, printed = peak_mb("consume", "many", "-o", "beginning", "-e")
    assert printed == lines.read_bytes()
    assert peak < 130


def test_a_line_is_produced_before_the_next_one_is_typed(cli: Cli) -> None:
    cli("topics", "create", "typed")
    with subprocess.Popen(
        [sys.executable, "-m", "barnabas", "produce", "typed", "-b", cli.servers],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    ) as typing:
        assert typing.stdin is not None
        typing.stdin.write(b"hello\n")
        typing.stdin.flush()
        assert cli("consume", "typed", "-o", "beginning", "-c", "1") == b"hello\n"
        # Nobody types any more: Ctrl-C ends it at once and in silence.
        typing.send_signal(signal.SIGINT)
        _, errors = typing.communicate(timeout=DEADLINE)
        assert (typing.returncode, errors.strip()) == (130, b"")


def test_a_reader_that_has_enough_ends_consume_in_silence(cli: Cli) -> None:
    cli("produce", "headed", stdin=b"line\n" * 200_000)
    done = subprocess.run(
        f"{sys.executable} -m barnabas consume headed -o beginning -b {cli.servers} | head -n 2",
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        env=environment(),
        timeout=DEADLINE,
        check=True,
    )
    assert (done.stdout, done.stderr) == (b"line\nline\n", b"")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("topics describe absent", "UNKNOWN_TOPIC_OR_PARTITION: .*barnabas topics list"),
        ("topics delete absent --yes", "UNKNOWN_TOPIC_OR_PARTITION: .*barnabas topics list"),
        ("topics create a/b", "INVALID_TOPIC_EXCEPTION: "),
        ("consume absent", "UNKNOWN_TOPIC_OR_PARTITION: "),
        ("groups describe absent", "GROUP_ID_NOT_FOUND: .*barnabas groups list"),
        ("configs alter topic absent -s retention.ms=1", "UNKNOWN_TOPIC_OR_PARTITION: "),
        ("topics list -b 127.0.0.1:1", "cannot reach 127.0.0.1:1: .*is the broker running"),
        ("topics list -b host:port", "'host:port' is no address: give HOST:PORT"),
        ("serve --listen nonsense", ".*nonsense.*listeners"),
        ("serve --set sasl.enabled.mechanisms=PLAIN", "Security is not part of this release"),
        ("serve --set a.b=1 --strict-config", "These configuration keys have no effect here: a.b"),
        ("serve --data /proc/absent", "/proc/absent: No such file or directory"),
    ],
)
def test_a_failure_is_one_line_and_exit_code_1(cli: Cli, arguments: str, line: str) -> None:
    code, _, errors = cli.run(*arguments.split())
    assert code == 1
    assert re.fullmatch(rf"barnabas: {line}.*\n", errors.decode()), errors


@pytest.mark.parametrize(
    "arguments",
    [
        "absent",
        "topics",
        "topics create",
        "topics alter t",
        "topics create t -c nonsense",
        "configs describe broker x",
        "configs alter topic t",
        "consume t -f %x",
        "consume t -o nowhere",
        "consume t -g g -p 0",
        "produce t /absent",
        "produce t -D ''",
        "groups reset-offsets g",
        "groups reset-offsets g --to-latest --shift-by 1",
        "dump-log /etc/hostname",
        "serve --log-level loud",
        "serve --set nonsense",
    ],
)
def test_wrong_usage_is_exit_code_2(cli: Cli, arguments: str) -> None:
    code, out, errors = cli.run(*(part.strip("'") for part in arguments.split()))
    assert code == 2
    assert b"Usage: barnabas" in errors + out


def test_completion_and_version() -> None:
    for shell in ("bash", "zsh", "fish"):
        assert b"_BARNABAS_COMPLETE" in run("completion", shell).stdout
    completed = run(_BARNABAS_COMPLETE="bash_complete", COMP_WORDS="barnabas top", COMP_CWORD="1")
    assert completed.stdout == b"plain,topics\n"
    assert run("--version").stdout.startswith(b"barnabas, version 0.1")


class Served:
    """`barnabas serve` as a child process."""

    def __init__(self, *arguments: str, **more: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "barnabas", "serve", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(**more),
        )
        assert self.process.stdout is not None
        first = self.process.stdout.readline().decode()
        found = re.match(r"Barnabas serves (\S+);", first)
        assert found is not None, self.process.communicate()[1].decode()
        self.servers = found[1]

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str, str]:
        self.process.send_signal(number)
        out, errors = self.process.communicate(timeout=DEADLINE)
        return self.process.returncode, out.decode(), errors.decode()


def test_serve_takes_its_settings_from_file_environment_and_options(
    cli: Cli, tmp_path: Path
) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text(
        f"listeners=PLAINTEXT://127.0.0.1:0\nlog.dirs={tmp_path}/file\nnum.partitions=3\n"
        "process.roles=broker\nmessage.max.bytes=1111\nlog.retention.ms=1111\n"
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


def test_serve_answers_operators_until_ctrl_c(cli: Cli, tmp_path: Path, free_port: int) -> None:
    served = Served("-l", "127.0.0.1:0", "-d", str(tmp_path), "--metrics", f"127.0.0.1:{free_port}")
    cli.at(served.servers)("produce", "t", stdin=b"hello\n")
    with urlopen(f"http://127.0.0.1:{free_port}/readyz", timeout=5) as answer:
        assert answer.read() == b"ready\n"
    with urlopen(f"http://127.0.0.1:{free_port}/metrics", timeout=5) as answer:
        assert b"kafka_server" in answer.read()
    second = run("serve", "-l", "127.0.0.1:0", "-d", str(tmp_path))
    assert second.returncode == 1
    assert second.stderr.endswith(
        b"is held by another broker; stop it, or give --data another place\n"
    )
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


@pytest.fixture
def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_dump_log_tells_a_damaged_file(cli: Cli, tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        cli.at(broker.bootstrap_servers)("produce", "t", stdin=b"hello\n")
    log = tmp_path / "t-0" / ("0" * 20 + ".log")
    data = bytearray(log.read_bytes())
    data[-3] ^= 1
    log.write_bytes(data)
    done = run("dump-log", str(log))
    assert done.returncode == 1
    assert b"valid=False" in done.stdout
    assert b"does not match its CRC" in done.stderr
