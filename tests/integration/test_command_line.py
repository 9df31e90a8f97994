"""Every command as a user or a program runs it, with its output and its exit code."""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from barnabas import __version__
from barnabas.broker.observability.interpreter import is_profile_guided
from barnabas.config.topic import TopicConfig
from barnabas.testing import Broker
from tests.support.brokers.process import BrokerProcess
from tests.support.command_line import DEADLINE, Cli, environment, run


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


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
    assert cli.json("topics", "describe", "books")["partitions"][1]["start"] == 2
    assert b"retention.ms\t2000\ttopic" in cli("configs", "describe", "topic", "books")
    cli("topics", "delete", "books", "--yes")
    assert b"books" not in cli("topics", "list")


def test_several_topics_are_created_and_deleted_by_pattern(cli: Cli) -> None:
    cli("topics", "create", "many-1", "many-2", "-c", "retention.ms=7d", "-c", "segment.bytes=1MB")
    assert b"retention.ms\t604800000\ttopic" in cli("configs", "describe", "topic", "many-2")
    assert b"segment.bytes\t1048576\ttopic" in cli("configs", "describe", "topic", "many-1")
    code, _, errors = cli.run("topics", "create", "many-1")
    assert (code, b"many-1" in errors) == (1, True)
    told = cli("topics", "create", "many-1", "many-3", "--if-not-exists").splitlines()
    assert told == [b"many-1 exists already.", b"Created many-3 with 1 partition(s)."]
    code, _, errors = cli.run("topics", "create", "x", "-c", "retention.ms=7MB")
    assert (code, errors.splitlines()[-1]) == (
        2,
        b"Error: 7MB is not a duration such as 7d, 90m or 500ms",
    )
    deleted = cli("topics", "delete", "many-[12]", "many-3", "--yes").splitlines()
    assert deleted == [b"Deleted many-1.", b"Deleted many-2.", b"Deleted many-3."]
    for gone in ("many-1", "many-*"):
        code, _, errors = cli.run("topics", "delete", gone, "--yes")
        assert (code, f"no topic {gone}" in errors.decode()) == (1, True)
        assert cli("topics", "delete", gone, "--yes", "--if-exists") == b""


def test_ranges_and_times(cli: Cli) -> None:
    def consumed(start: str) -> list[bytes]:
        return cli("consume", "ranges", "-o", start, "-e").splitlines()

    cli("topics", "create", "ranges", "-p", "2")
    began = datetime.now(UTC)
    cli("produce", "ranges", "-p", "0", stdin=b"a\nb\nc\nd\n")
    between = wait_for_next_ms()
    cli("produce", "ranges", "-p", "0", stdin=b"e\n")
    assert consumed("1:3") == [b"b", b"c"]
    assert consumed("-2:-1") == [b"d"]
    assert consumed("3:1") == []
    assert consumed("beginning:end") == [b"a", b"b", b"c", b"d", b"e"]
    assert consumed(f"-1h:@{between}") == [b"a", b"b", b"c", b"d"]
    assert consumed(f"{began:%Y-%m-%dT%H:%M}Z:{between}") == [b"a", b"b", b"c", b"d", b"e"]
    assert consumed("1970-01-01:1970-01-02T00:00") == []
    # Without --exit the end of a range is enough.
    assert cli("consume", "ranges", "-p", "0", "-o", "0:1") == b"a\n"
    code, _, errors = cli.run("consume", "ranges", "-o", "yesterday")
    assert (code, b"2026-11-22" in errors) == (2, True)
    cli("topics", "delete-records", "ranges", "--before", f"@{between}")
    starts = [row["start"] for row in cli.json("topics", "describe", "ranges")["partitions"]]
    assert starts == [4, 0]


def wait_for_next_ms() -> int:
    """Return a time in ms that all records before have passed, and none after has."""
    now_ms = time.time_ns() // 1_000_000 + 1
    while time.time_ns() // 1_000_000 < now_ms:
        pass
    return now_ms


def test_filter_of_partitions_that_finds_something_ends_with_3(cli: Cli) -> None:
    cli("topics", "create", "filtered", "-c", "min.insync.replicas=1")
    assert cli("topics", "describe", "filtered", "--unavailable").count(b"\n") == 1
    code, out, errors = cli.run("topics", "describe", "filtered", "--at-min-isr")
    assert (code, errors, b"at-min-isr" in out) == (3, b"", True)


@pytest.mark.parametrize("kind", ["topic", "topics"])
def test_kind_of_a_configuration_may_be_given_in_the_plural(cli: Cli, kind: str) -> None:
    cli("topic", "create", f"of-{kind}")
    altered = cli.json("configs", "alter", kind, f"of-{kind}", "-s", "retention.ms=5")
    assert altered["kind"] == "topic"
    assert b"retention.ms\t5\ttopic" in cli("config", "describe", kind, f"of-{kind}")


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


def test_configs_with_their_meaning_and_without_overrides(cli: Cli) -> None:
    cli("topics", "create", "explained", "-c", "retention.ms=5")
    rows = cli.json("configs", "describe", "topic", "explained", "--verbose")
    (row,) = (row for row in rows if row["source"] == "topic")
    key = TopicConfig.KEYS["retention.ms"]
    assert (row["key"], row["type"], row["meaning"]) == ("retention.ms", "long", key.doc)
    types = {
        row["key"]: row["type"]
        for row in cli.json("configs", "describe", "broker", "0", "--all", "-v")
    }
    assert types["ssl.keystore.password"] == "password"
    assert types["listeners"] == "list"
    assert cli.json("configs", "describe", "topic", "explained")[0]["meaning"] is None
    told = cli("configs", "describe", "group", "plain")
    assert told == b"Nothing is overridden for group plain; --all shows the defaults.\n"
    assert cli.json("configs", "describe", "group", "plain") == []


def test_configuration_of_a_group_that_need_not_exist(cli: Cli) -> None:
    key = "consumer.session.timeout.ms"
    cli("configs", "alter", "group", "later", "--set", f"{key}=50000")
    assert cli("configs", "describe", "group", "later").splitlines()[1:] == [
        f"{key}\t50000\tgroup\tFalse".encode()
    ]
    shown = {
        row["key"]: row["source"] for row in cli.json("configs", "describe", "group", "later", "-a")
    }
    assert (shown[key], shown["consumer.heartbeat.interval.ms"]) == ("group", "default")
    code, _, errors = cli.run("configs", "alter", "group", "later", "--set", f"{key}=1")
    assert (code, b"must be in the range 45000 to 60000 inclusive." in errors) == (1, True)
    cli("configs", "alter", "group", "later", "--delete", key)
    assert cli.json("configs", "describe", "group", "later") == []


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
        "timestamp_ms": 42,
        "topic_partitions": 1,
        "key": "null",
        "value": None,
        "headers": [["a", "1"], ["b", ""]],
    }


def test_consume_begins_at_the_given_offset(cli: Cli) -> None:
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


def test_topic_is_analyzed_by_a_sample(cli: Cli) -> None:
    cli("topics", "create", "sampled", "-p", "2")
    empty = cli.json("topics", "analyze", "sampled")
    assert (empty["records"], empty["records_per_s"], empty["codecs"]) == (0, None, {})
    lines = [
        {"key": f"k{n % 3}", "value": "x" * 100, "partition": 0, "timestamp_ms": 1000 + 10 * n}
        for n in range(101)
    ]
    lines += [{"key": None, "value": None, "partition": 1, "timestamp_ms": 5000}]
    text = "\n".join(map(json.dumps, lines)).encode()
    words = ("--format", "json", "-z", "zstd", "--same-partitions")
    cli("produce", "sampled", *words, stdin=text + b"\n")
    found = cli.json("topics", "analyze", "sampled")
    assert (found["records"], found["without_key"], found["tombstones"]) == (102, 1, 1)
    assert (found["first_at_ms"], found["last_at_ms"]) == (1000, 5000)
    assert found["records_per_s"] == 100.0
    assert (found["value_bytes_p50"], found["value_bytes_max"]) == (100, 100)
    assert found["frequent_keys"][0] == {"key": "k0", "records": 34}
    assert (found["distinct_keys"], found["codecs"]) == (3, {"zstd": 2})
    assert found["stored_to_payload"] < 0.2
    assert [row["records"] for row in found["partitions"]] == [101, 1]
    few = cli.json("topics", "analyze", "sampled", "-n", "2")
    assert 2 <= few["records"] <= 102
    assert b"stored_to_payload\t0." in cli("topics", "analyze", "sampled")
    with pytest.raises(AssertionError, match="UNKNOWN_TOPIC"):
        cli("topics", "analyze", "absent")


def test_topics_are_listed_by_pattern(cli: Cli) -> None:
    cli("topics", "create", "shop-orders", "shop-clicks", "shopping")

    def listed(*words: str) -> list[str]:
        return [row["topic"] for row in cli.json("topics", "list", *words)]

    assert listed("shop-*") == ["shop-clicks", "shop-orders"]
    assert listed("shopping", "*-orders") == ["shop-orders", "shopping"]
    assert listed("shop") == []
    cli("consume", "shopping", "-g", "shoppers", "-e")
    assert listed("__*") == listed("__consumer_offsets") == ["__consumer_offsets"]
    assert listed("*_offsets") == []
    assert listed("*_offsets", "--internal") == ["__consumer_offsets"]


def test_groups(cli: Cli) -> None:
    cli("produce", "grouped", stdin=b"".join(b"%d\n" % n for n in range(10)))
    first = cli("consume", "grouped", "-g", "readers", "-o", "beginning", "-c", "4")
    assert first == b"0\n1\n2\n3\n"
    (row,) = cli.json("groups", "describe", "readers")["partitions"]
    assert (row["offset"], row["end"], row["lag"]) == (4, 10, 6)
    assert cli("consume", "grouped", "-g", "readers", "-e") == b"4\n5\n6\n7\n8\n9\n"
    assert {row["group"] for row in cli.json("groups", "list")} >= {"readers"}
    cli("consume", "grouped", "-g", "others", "-o", "beginning", "-c", "1")
    both = cli.json("groups", "describe", "others", "readers")
    assert [(each["group"], each["lag"]) for each in both] == [("others", 9), ("readers", 0)]
    dry = cli.json("groups", "reset-offsets", "readers", "--to-earliest", "--dry-run")
    assert dry == [{"topic": "grouped", "partition": 0, "was": 10, "offset": 0}]
    for option, offset in (("--shift-by=-3", 7), ("--to-offset=99", 10), ("--to-timestamp=0", 0)):
        cli("groups", "reset-offsets", "readers", option)
        assert cli.json("groups", "describe", "readers")["partitions"][0]["offset"] == offset
    cli("groups", "delete-offsets", "readers", "-t", "grouped")
    assert cli.json("groups", "describe", "readers")["partitions"] == []
    cli("groups", "delete", "readers", "--yes")
    assert "readers" not in [row["group"] for row in cli.json("groups", "list")]


def test_benchmark_measures_and_cleans_up(cli: Cli) -> None:
    produced, consumed = cli.json("benchmark", "produce", "speed", "-n", "2000", "-s", "100")
    assert (produced["records"], consumed["records"]) == (2000, 2000)
    assert produced["p50_ms"] <= produced["p99_ms"]
    assert b"speed" not in cli("topics", "list")


@pytest.mark.parametrize("registered", [False, True])
def test_benchmark_eos_copies_each_record_once(cli: Cli, registered: bool) -> None:
    source, sink = f"eos-in-{registered}", f"eos-out-{registered}"
    how = ["--transactional-id", "t", "--transaction-duration-ms", "10"]
    how += ["--pre-registration"] * registered
    produced, _ = cli.json("benchmark", "produce", source, "-n", "900", "-s", "100", "--keep", *how)
    assert produced["transactions"] > 0
    assert produced["commit_p50_ms"] <= produced["commit_p99_ms"]
    row = cli.json(
        "benchmark",
        "eos",
        *("--input-topic", source, "--output-topic", sink, "-n", "900"),
        *("--consumer-group-id", sink, "--transactional-id", sink),
        *("--consumer-props", "max.poll.records=100"),
        *["--pre-registration"] * registered,
    )
    assert (row["records"], row["transactions"] >= 9) == (900, True)
    assert len(cli("consume", sink, "-o", "beginning", "-e", "-f", "%o\\n").split()) == 900
    (group,) = cli.json("groups", "describe", sink)["partitions"]
    assert group["offset"] >= 900


def test_benchmark_eos_refuses_properties_without_effect(cli: Cli) -> None:
    options = ("--input-topic", "a", "--output-topic", "b")
    code, _, errors = cli.run("benchmark", "eos", *options, "--consumer-props", "fetch.min.byte=1")
    assert code == 2
    assert b"fetch.min.byte" in errors


def test_produce_of_many_lines_uses_bounded_memory(cli: Cli, tmp_path: Path) -> None:
    lines = tmp_path / "many"
    with lines.open("wb") as file:
        for n in range(60_000):
            file.write(b"%08d" % n + b"." * 991 + b"\n")
    program = (
        "import sys\n"
        "from barnabas.cli.main import cli\n"
        "cli(sys.argv[1:], standalone_mode=False)\n"
        # Not getrusage: its maximum counts from before exec, when this was a fork of pytest.
        "status = dict(line.split(':', 1) for line in open('/proc/self/status'))\n"
        "print(status['VmHWM'].split()[0], file=sys.stderr)\n"
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


def test_produce_sends_a_line_before_the_next_one_is_typed(cli: Cli) -> None:
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
        # The input has ended: Ctrl-C ends the command at once and without output.
        typing.send_signal(signal.SIGINT)
        _, errors = typing.communicate(timeout=DEADLINE)
        assert (typing.returncode, errors.strip()) == (130, b"")


def test_consume_ends_silently_when_its_reader_closes_the_pipe(cli: Cli) -> None:
    cli("produce", "headed", stdin=b"line\n" * 200_000)
    done = subprocess.run(
        f"{sys.executable} -m barnabas consume headed -o beginning -b {cli.servers} | head -n 2;"
        "exit ${PIPESTATUS[0]}",
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        env=environment(),
        timeout=DEADLINE,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (141, b"line\nline\n", b"")


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
        ("topics list -b host:port", "'host:port' is not a valid address: give HOST:PORT"),
        ("serve --listen nonsense", ".*nonsense.*listeners"),
        ("serve --set sasl.kerberos.service.name=kafka", "These keys of security have no effect"),
        ("serve --set a.b=1 --strict-config", "Unknown configuration keys: a.b"),
    ],
)
def test_a_failure_is_one_line_and_exit_code_1(cli: Cli, arguments: str, line: str) -> None:
    code, _, errors = cli.run(*arguments.split())
    assert code == 1
    assert re.fullmatch(rf"barnabas: {line}.*\n", errors.decode()), errors


def test_failed_start_of_serve_is_one_line_and_exit_code_1() -> None:
    # In a child: a broker that starts changes its process (log handler, garbage collection).
    done = run("serve", "--data", "/proc/absent")
    assert done.returncode == 1
    line = rb"barnabas: /proc/absent: No such file or directory.*\n"
    assert re.fullmatch(line, done.stderr), done.stderr


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


def test_serve_tells_of_python_built_without_profiles_once(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        broker.terminate()
    told = broker.errors().count("profile-guided optimization")
    assert told == (is_profile_guided() is False)


def test_completion_and_version() -> None:
    for shell in ("bash", "zsh", "fish"):
        assert b"_BARNABAS_COMPLETE" in run("completion", shell).stdout
    completed = run(_BARNABAS_COMPLETE="bash_complete", COMP_WORDS="barnabas top", COMP_CWORD="1")
    assert completed.stdout == b"plain,topics\n"
    assert run("--version").stdout.startswith(f"barnabas, version {__version__}\n".encode())


def test_dump_log_reports_a_damaged_file(cli: Cli, tmp_path: Path) -> None:
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


def test_command_with_a_wrong_letter_is_answered_with_the_right_one(cli: Cli) -> None:
    for wrong, right in ((["topcs"], "topics"), (["topics", "lst"], "list")):
        code, _, errors = cli.run(*wrong)
        assert (code, f"Did you mean '{right}'?" in errors.decode()) == (2, True)


ON_WINDOWS = """
import sys

import click

sys.platform = "win32"
for module in ("fcntl", "pwd", "resource", "uvloop"):
    sys.modules[module] = None
"""
SERVE = """
sys.argv = ["barnabas", "serve"]
from barnabas.cli.main import main

main()
"""
REFUSED = "Windows is not supported: use WSL or the container\n"


@pytest.mark.parametrize(
    ("program", "last_line"),
    [
        (SERVE, f"barnabas: {REFUSED}"),
        ("from barnabas.testing import Broker", f"ImportError: barnabas.testing: {REFUSED}"),
    ],
)
def test_windows_is_refused_before_a_module_that_it_lacks_is_imported(
    program: str, last_line: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ON_WINDOWS + program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith(last_line)
