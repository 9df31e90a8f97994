"""`consume --json | produce --format json`, `consume --decode` and `consume --key`, on Barnabas and
on Apache Kafka."""

import asyncio
import json
from typing import Any

from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Consumer, FetchSettings, Message
from barnabas.client.offsets import EARLIEST
from barnabas.client.producer import Producer, partition_for
from barnabas.protocol.topic_partition import TopicPartition
from tests.support.command_line import Cli
from tests.support.newer_producer import NewerProducer


def records_of(servers: str, topic: str) -> list[tuple[Any, ...]]:
    """Return all that a copy has to keep of the records, by partition and in order."""

    async def read() -> list[Message]:
        async with Cluster(servers) as cluster:
            consumer = Consumer(cluster, FetchSettings(offset_reset=EARLIEST))
            wanted = [TopicPartition(topic, each) for each in (await cluster.topic(topic)).leaders]
            consumer.assign(dict.fromkeys(wanted, EARLIEST))
            found: list[Message] = []
            while not (consumer.high_watermarks and all(map(consumer.at_end, wanted))):
                found += await consumer.poll()
            return found

    messages = asyncio.run(read())
    fields = [(m.partition, m.timestamp, m.key, m.value, m.headers) for m in messages]
    return sorted(fields, key=lambda each: each[0])


def test_topic_is_copied_exactly(cli: Cli) -> None:
    async def fill() -> None:
        async with Cluster(cli.servers) as cluster, Producer(cluster) as producer:
            for partition, key, value, headers in (
                (2, b"k", b"text \xc3\xa9\n", (("a", b"1"), ("a", None), ("b", b"\xff"))),
                (0, b"\xff\x00", b"", ()),
                (0, None, None, (("", b""),)),
                (1, b"", b"\xfe" * 100, ()),
                (0, b"z", b"last", ()),
            ):
                stamp = 1_000_000 + partition
                await producer.send(
                    "copies-original",
                    value,
                    key=key,
                    headers=headers,
                    partition=partition,
                    timestamp=stamp,
                )

    for topic in ("copies-original", "copies-copy", "copies-by-key"):
        cli("topics", "create", topic, "-p", "3")
    asyncio.run(fill())
    lines = cli("consume", "copies-original", "-o", "beginning", "-e", "--json")
    cli("produce", "copies-copy", "--format", "json", "--same-partitions", stdin=lines)
    assert len(records_of(cli.servers, "copies-original")) == 5
    assert records_of(cli.servers, "copies-copy") == records_of(cli.servers, "copies-original")
    cli("topics", "create", "copies-narrow", "-p", "1")
    narrow = ("produce", "copies-narrow", "--format", "json", "--same-partitions")
    for part in (lines, cli("consume", "copies-original", "-o", "beginning", "-e", "-J", "-p0")):
        code, _, errors = cli.run(*narrow, stdin=part)
        assert (code, errors.decode()) == (
            1,
            "barnabas: topic copies-narrow has no partition 2, which the copied topic has: "
            "`barnabas topics alter copies-narrow -p 3` adds it\n",
        )
        assert records_of(cli.servers, "copies-narrow") == []
    code, _, errors = cli.run(*narrow, stdin=b'{"partition": 1}\n')
    assert (code, b"topics alter copies-narrow -p 2" in errors) == (1, True)
    cli("produce", "copies-by-key", "--format", "json", stdin=lines)
    places = {key: partition for partition, _, key, *_ in records_of(cli.servers, "copies-by-key")}
    assert places[b"k"] == partition_for(b"k", 3)
    code, _, errors = cli.run(
        "produce", "copies-copy", "--format", "json", stdin=b'{"value":"v"}\nx\n'
    )
    assert (code, b"line 2 is no record" in errors) == (1, True)


def test_key_is_read_from_its_partition(cli: Cli) -> None:
    cli("topics", "create", "copies-keyed", "-p", "4")
    lines = b"".join(b"k%d:%d\n" % (number % 9, number) for number in range(90))
    cli("produce", "copies-keyed", "-K", ":", stdin=lines)
    wanted = [b"%d" % number for number in range(6, 90, 9)]
    shown = cli("consume", "copies-keyed", "--key", "k6", "-o", "beginning", "-e", "-f", "%p %s\\n")
    assert partition_for(b"k6", 4) > 0
    place = b"%d" % partition_for(b"k6", 4)
    assert [line.split() for line in shown.splitlines()] == [[place, each] for each in wanted]
    some = cli("consume", "copies-keyed", "--key", "k6", "-o", "beginning", "-c", "3")
    assert some.split() == wanted[:3]
    code, _, errors = cli.run("consume", "copies-keyed", "--key", "k6", "-g", "g")
    assert (code, b"--key" in errors) == (2, True)


def test_internal_topics_are_decoded(cli: Cli) -> None:
    def decoded(topic: str, kind: str, **key: str) -> list[dict[str, Any]]:
        """Return the records of this kind and key; other tests have others on the same Kafka."""
        lines = cli("consume", topic, "--decode", "-o", "beginning", "-e").splitlines()
        found = [row for row in map(json.loads, lines) if row["kind"] == kind]
        return [row for row in found if key.items() <= row["key"].items()]

    def decoded_of_group(kind: str) -> list[dict[str, Any]]:
        return decoded("__consumer_offsets", kind, group="copies-readers")

    cli("topics", "create", "copies-read")
    cli("produce", "copies-read", stdin=b"a\nb\n")
    cli("consume", "copies-read", "-g", "copies-readers", "-o", "beginning", "-c", "1")
    offset = decoded_of_group("offset")[-1]
    assert offset["key"] == {"group": "copies-readers", "topic": "copies-read", "partition": 0}
    assert offset["value"]["offset"] == 1
    groups = decoded_of_group("group")
    full = next(row for row in groups if row["value"] and row["value"]["members"])
    assert full["key"] == {"group": "copies-readers"}
    (member,) = full["value"]["members"]
    assert (member["topics"], member["assigned"]) == (["copies-read"], ["copies-read:0"])
    producer = NewerProducer(cli.servers, "copies-writes").init()
    producer.send("copies-read", 0, b"v")
    rows = decoded("__transaction_state", "transaction", transactional_id="copies-writes")
    assert rows[-1]["key"] == {"transactional_id": "copies-writes"}
    assert rows[-1]["value"]["state"] == "Ongoing"
    assert rows[-1]["value"]["partitions"] == ["copies-read:0"]
    assert rows[-1]["value"]["producer_id"] == producer.producer_id
    producer.end(committed=False)
    cli("groups", "delete", "copies-readers", "--yes")
    assert decoded_of_group("group")[-1]["value"] is None
    code, _, errors = cli.run("consume", "copies-read", "--decode")
    assert (code, b"--decode is for __consumer_offsets" in errors) == (2, True)
