"""Apache Kafka's tools for transactions, with Barnabas and with its files."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.testing.broker import Broker
from tests.support.kafka import tools as kafka
from tests.support.kafka.tools import Tools
from tests.support.transactor import TV1, TV2, Transactor, Wire, settled, until

pytestmark = pytest.mark.xdist_group("referee-tools")

TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
KEYS = {"transaction.state.log.num.partitions": "1"}
UNVERIFIED = {"transaction.partition.verification.enable": "false"}


class Asked:
    """The transactions tool, connected to one broker."""

    def __init__(self, tools: Tools, servers: str) -> None:
        self._tools = tools
        self.servers = servers

    def __call__(self, *arguments: str) -> str:
        """Run the tool, and return its output."""
        done = self._tools.run(TRANSACTIONS, "--bootstrap-server", self.servers, *arguments)
        assert done.code == 0, done
        return done.text

    def rows(self, *arguments: str) -> list[dict[str, str]]:
        """Return the table that the tool printed, by its column heads."""
        heads, *rows = (line.split("\t") for line in self(*arguments).splitlines())
        names = [head.strip() for head in heads]
        return [dict(zip(names, map(str.strip, row), strict=False)) for row in rows]


@pytest.fixture(scope="module")
def ask(tools: Tools) -> Iterator[Asked]:
    with Broker(KEYS | UNVERIFIED) as broker:
        yield Asked(tools, broker.bootstrap_servers)


@pytest.fixture
def wire(ask: Asked) -> Iterator[Wire]:
    with Wire(ask.servers) as wire:
        yield wire


def opened(wire: Wire, name: str) -> Transactor:
    """Return a producer with an open transaction in a topic of the same name."""
    wire.create(name)
    x = Transactor(wire, name, TV2)
    x.init()
    assert x.send(name, b"open", sequence=0).error is ErrorCode.NONE
    return x


def test_list_and_its_filters(ask: Asked, wire: Wire) -> None:
    x = opened(wire, "listed")
    (row,) = [row for row in ask.rows("list") if row["TransactionalId"] == "listed"]
    assert (row["ProducerId"], row["TransactionState"]) == (str(x.producer_id), "Ongoing")
    assert ask.rows("list", "--transactional-id-pattern", "lis.*") == [row]
    assert ask.rows("list", "--transactional-id-pattern", "unknown.*") == []
    assert row not in ask.rows("list", "--duration-filter", "600000")


def test_describe(ask: Asked, wire: Wire) -> None:
    x = opened(wire, "described")
    (row,) = ask.rows("describe", "--transactional-id", "described")
    assert row["TransactionState"] == "Ongoing"
    assert (row["ProducerId"], row["ProducerEpoch"]) == (str(x.producer_id), str(x.epoch))
    assert row["TransactionTimeoutMs"] == "60000"
    assert row["TopicPartitions"] == "described-0"
    x.end()
    until(
        lambda: ask.rows("describe", "--transactional-id", "described")[0]["TransactionState"],
        lambda state: state == "CompleteCommit",
    )


def test_describe_producers(ask: Asked, wire: Wire) -> None:
    x = opened(wire, "producers")
    place = ("--topic", "producers", "--partition", "0")
    (row,) = ask.rows("describe-producers", *place)
    assert (row["ProducerId"], row["ProducerEpoch"]) == (str(x.producer_id), str(x.epoch))
    assert (row["LastSequence"], row["CurrentTransactionStartOffset"]) == ("0", "0")
    x.end()
    settled(wire, ("producers", 0))
    (row,) = ask.rows("describe-producers", *place)
    assert row["CurrentTransactionStartOffset"] == "None"


def test_find_hanging_and_abort(ask: Asked, wire: Wire) -> None:
    wire.create("hanging")
    x = Transactor(wire, "hanging", TV1)
    x.init()
    # Without verification the coordinator never learns of this transaction, which is older than the
    # maximum timeout.
    x.behind_ms = 3_600_000
    assert x.send("hanging", b"hangs", sequence=0).error is ErrorCode.NONE
    search = ("find-hanging", "--broker-id", "0", "--topic", "hanging")
    (found,) = ask.rows(*search)
    assert (found["Topic"], found["ProducerId"]) == ("hanging", str(x.producer_id))
    assert found["StartOffset"] == "0"
    assert wire.end_offset("hanging", committed=True) == 0
    ask("abort", "--topic", "hanging", "--partition", "0", "--start-offset", "0")
    settled(wire, ("hanging", 0))
    assert ask.rows(*search) == []
    assert wire.read("hanging") == ([b"hangs"], [(x.producer_id, 0)])


def test_force_terminate(ask: Asked, wire: Wire) -> None:
    x = opened(wire, "terminated")
    ask("forceTerminateTransaction", "--transactionalId", "terminated")
    settled(wire, ("terminated", 0))
    assert wire.read("terminated") == ([b"open"], [(x.producer_id, 0)])
    x.post("terminated", b"too late", sequence=1)
    assert x.sent() == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)


def test_producer_performance_in_transactions(tools: Tools, ask: Asked, wire: Wire) -> None:
    wire.create("performance")
    # A tool that is late sends hundreds of records within milliseconds.
    done = tools.run(
        kafka.PRODUCER_PERFORMANCE,
        *("--topic", "performance", "--num-records", "500", "--record-size", "10"),
        *("--throughput", "2000", "--transaction-duration-ms", "1"),
        *("--command-property", f"bootstrap.servers={ask.servers}"),
    )
    assert "500 records sent" in done.text, done
    settled(wire, ("performance", 0))
    values, aborted = wire.read("performance")
    assert (len(values), aborted) == (500, [])
    # There is a marker for each transaction. How many there are depends on the machine.
    assert wire.end_offset("performance", committed=True) > 501


def test_dump_log_segments(tools: Tools, tmp_path: Path) -> None:
    with Broker(KEYS, data_dir=tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
        x = opened(wire, "dumped")
        first = x.epoch
        x.end(committed=False)
        settled(wire, ("dumped", 0))
        x.transact("dumped", b"kept", sequence=0)
        settled(wire, ("dumped", 0))
    log = tmp_path / "dumped-0" / "00000000000000000000.log"
    said = tools.dump_log(log)
    assert re.findall(r"endTxnMarker: (\w+)", said) == ["ABORT", "COMMIT"]
    assert re.findall(r"producerEpoch: (\d+).*isTransactional: true", said) == [
        str(epoch) for epoch in (first, first + 1, first + 1, first + 2)
    ]
    said = tools.dump_log(log.with_suffix(".txnindex"))
    assert f"producerId: {x.producer_id} firstOffset: 0 lastOffset: 1 lastStableOffset: 2" in said
    state = tmp_path / "__transaction_state-0" / log.name
    said = tools.dump_log(state, options=("--transaction-log-decoder",))
    statuses = [
        json.loads(payload)["data"]["transactionStatus"]
        for payload in re.findall(r" payload: (\{.*\})$", said, re.MULTILINE)
    ]
    assert statuses == [
        *("Empty", "Ongoing", "PrepareAbort", "CompleteAbort"),
        *("Ongoing", "PrepareCommit", "CompleteCommit"),
    ]
