"""Consume, transform, produce, while the broker is killed again and again: each record once.

`BARNABAS_RECORDS=50000 BARNABAS_KILLS=10 pytest -s -n 0` with this file is the long run.
"""

import os
import random
import time
from collections import defaultdict
from pathlib import Path

import pytest
from confluent_kafka import Producer

from barnabas.coordinator.transaction.states import TransactionState
from tests.integration.adversary.process import BrokerProcess
from tests.integration.transactions import on_disk
from tests.integration.transactions.program import LAST
from tests.integration.transactions.running import read, transform
from tests.integration.transactions.transformer import (
    BATCH,
    INPUT,
    OUTPUT,
    TRANSACTIONAL_ID,
    transformed,
)

RECORDS = int(os.environ.get("BARNABAS_RECORDS", "2000"))
KILLS = int(os.environ.get("BARNABAS_KILLS", "3"))
PARTITIONS = 3
DECIDED = (0, 2, 3)
"""How many of the markers are written when the broker dies after a decision, in turn: the output
has three partitions, and the group's offsets one."""
READERS = {
    "kafka_python": "confluent",
    "confluent": "aiokafka",
    "aiokafka": "kafka_python",
    "java": "confluent",
}


def write(servers: str, topic: str, values: list[bytes]) -> None:
    """To the partitions in turn."""
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "log_level": 0})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % PARTITIONS)
    assert producer.flush(60) == 0


def die_decided(broker: BrokerProcess, markers: int) -> None:
    """The broker dies when its next transaction is decided and has so many markers."""
    lever = broker.directory / "lever"
    lever.write_text(str(markers))
    lever.rename(broker.directory / "die")
    broker.wait_until_dead()
    data = broker.directory / "data"
    decided = on_disk.transactions(data)[TRANSACTIONAL_ID]
    assert decided.state is TransactionState.PREPARE_COMMIT
    unmarked = on_disk.open_in(data, decided.producer_id, decided.partitions)
    assert unmarked == max(len(decided.partitions) - markers, 1)


def kill(broker: BrokerProcess, number: int, chance: random.Random) -> None:
    """Every third time at any moment, else between a decision and its markers."""
    if number % 3 == 2:
        time.sleep(chance.uniform(0, 0.1))
        broker.kill()
    else:
        die_decided(broker, DECIDED[number % len(DECIDED)])


def by_partition(lines: list[str]) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = defaultdict(list)
    for line in lines:
        partition, value = line.split(" ", 1)
        found[int(partition)].append(value.encode())
    return found


@pytest.mark.timeout(120 + RECORDS // 100)
@pytest.mark.parametrize(("kind", "reader"), READERS.items(), ids=READERS)
def test_every_record_is_there_once_whatever_was_killed(
    tmp_path: Path, kind: str, reader: str
) -> None:
    chance = random.Random(KILLS)
    values = [b"%d" % number for number in range(RECORDS)]
    expected = {
        index: [transformed(each) for each in values[index::PARTITIONS]]
        for index in range(PARTITIONS)
    }
    keys = {"transaction.state.log.num.partitions": "2", "num.partitions": str(PARTITIONS)}
    with BrokerProcess(tmp_path / "broker", program="unmarked_broker", **keys) as broker:
        servers = broker.bootstrap_servers
        write(servers, INPUT, values)
        began = time.monotonic()
        with (
            transform(kind, servers, RECORDS, tmp_path) as transformer,
            read(reader, servers, PARTITIONS, tmp_path, "meanwhile") as meanwhile,
        ):
            committed = 0
            for number in range(KILLS):
                # Between two kills something is committed; all of them are spread over the run.
                spread = RECORDS // BATCH * number // (KILLS + 1)
                transformer.wait_for_more("committed", max(spread, committed))
                kill(broker, number, chance)
                committed = transformer.counts()["committed"]
                broker.launch()
                broker.wait_until_serving()
            told = transformer.finish()
            took = time.monotonic() - began
            write(servers, OUTPUT, [LAST] * PARTITIONS)
            assert by_partition(meanwhile.finish()) == expected
        with read(reader, servers, PARTITIONS, tmp_path, "again") as again:
            assert by_partition(again.finish()) == expected
        errors = broker.errors()
    counts = transformer.counts()
    print(f"{kind}: {RECORDS} records, {KILLS} kills, {took:.1f} s, {dict(counts)}")
    assert counts["aborted"] >= RECORDS // BATCH // 3 - KILLS
    # One producer lives here, on one coordinator: who is told to be fenced was taken for another.
    assert not [line for line in told if "fence" in line.lower() or "EPOCH" in line]
    assert "Traceback" not in errors, errors
