"""`barnabas produce`: lines as whole batches, and one by one where their size is not known."""

import os
import pty
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator

import pytest

from barnabas.client.admin import Admin
from barnabas.client.producer import partition_for
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.testing import Broker
from tests.support.command_line import DEADLINE, Cli, environment

LINES = b"".join(b"%d\n" % number for number in range(30_000))


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture(params=["batches", "records"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let the client describe configurations, or not."""
    if request.param == "records":

        async def refused(*_: object, **__: object) -> None:
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

        monkeypatch.setattr(Admin, "describe_configs", refused)
    return str(request.param)


def test_lines_arrive_in_order_and_in_all_partitions(cli: Cli, way: str) -> None:
    cli("topics", "create", f"many-{way}", "-p", "2", "-c", "max.message.bytes=20000")
    cli("produce", f"many-{way}", "-p", "1", stdin=LINES)
    assert cli("consume", f"many-{way}", "-p", "1", "-o", "beginning", "-e") == LINES
    cli("topics", "create", f"spread-{way}", "-p", "3")
    cli("produce", f"spread-{way}", stdin=LINES)
    cli("produce", f"spread-{way}", stdin=LINES)
    shown = cli("consume", f"spread-{way}", "-o", "beginning", "-e", "-f", "%p %s\\n").splitlines()
    assert Counter(line.split()[1] for line in shown) == Counter(LINES.split() * 2)


def test_lines_without_a_key_go_to_partitions_in_turn(cli: Cli) -> None:
    for options in ((), ("-K", ":")):
        topic = f"turns-{len(options)}"
        cli("topics", "create", topic, "-p", "3")
        cli("produce", topic, *options, stdin=LINES * 4)
        ends = [row["end"] for row in cli.json("topics", "describe", topic)["partitions"]]
        assert (sum(ends), sum(end > 0 for end in ends) > 1) == (120_000, True)


@pytest.mark.parametrize("acks", ["0", "1"])
def test_lines_without_waiting_for_replicas(cli: Cli, acks: str) -> None:
    cli("topics", "create", f"acks-{acks}")
    cli("produce", f"acks-{acks}", "-a", acks, "-z", "zstd", stdin=LINES)
    shown = cli("consume", f"acks-{acks}", "-o", "beginning", "-c", "30000")
    assert shown == LINES


def test_timestamp_is_a_time(cli: Cli) -> None:
    cli("topics", "create", "dated")
    cli("produce", "dated", "-T", "2026-01-01T00:00Z", stdin=b"a\n")
    cli("produce", "dated", "-T", "42", stdin=b"b\n")
    shown = cli("consume", "dated", "-o", "beginning", "-e", "-f", "%T\n")
    assert shown == b"1767225600000\n42\n"


def test_keys_choose_partitions(cli: Cli, way: str) -> None:
    topic = f"keyed-{way}"
    cli("topics", "create", topic, "-p", "3")
    lines = b"".join(b"k%d:%d\n" % (number % 7, number) for number in range(5000)) + b"keyless\n"
    cli("produce", topic, "-K", ":", stdin=lines)
    shown = cli("consume", topic, "-o", "beginning", "-e", "-f", "%p %k:%s\\n").splitlines()
    # One partition each. That it is the one of Java's client is tested with the partitioner.
    places = {line.partition(b":")[0] for line in shown if b" k" in line}
    assert places == {b"%d k%d" % (partition_for(b"k%d" % key, 3), key) for key in range(7)}
    for key in range(7):
        own = [line.split(b":")[1] for line in shown if b" k%d:" % key in line]
        assert own == [b"%d" % number for number in range(key, 5000, 7)]
    assert sum(line.endswith(b":keyless") for line in shown) == 1


def test_record_that_is_too_large_is_told(cli: Cli, way: str) -> None:
    cli("topics", "create", f"small-{way}", "-c", "max.message.bytes=1000")
    code, _, errors = cli.run("produce", f"small-{way}", stdin=b"a\n" + b"x" * 2000 + b"\n")
    assert (code, b"MESSAGE_TOO_LARGE" in errors) == (1, True)


def test_prompt_asks_at_a_terminal(cli: Cli) -> None:
    cli("topics", "create", "asked")
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "barnabas", "produce", "asked", "-b", cli.servers],
        stdin=theirs,
        stderr=theirs,
        env=environment(),
    ) as typing:
        os.close(theirs)
        shown = read_until(ours, b"> ")
        assert b"Ctrl-D" in shown
        os.write(ours, b"hello\n")
        read_until(ours, b"> ")
        assert cli("consume", "asked", "-o", "beginning", "-c", "1") == b"hello\n"
        os.write(ours, b"\x04")
        read_until(ours, b"Produced 1 record(s) to asked.")
        assert typing.wait(DEADLINE) == 0
    os.close(ours)


def read_until(terminal: int, text: bytes) -> bytes:
    shown = b""
    while text not in shown:
        shown += os.read(terminal, 1024)
    return shown
