"""Consume, transform, produce while the broker is killed repeatedly: each record once.

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
from tests.integration.transactions import on_disk
from tests.integration.transactions.on_disk import UNMARKED
from tests.integration.transactions.program import LAST
from tests.integration.transactions.running import read, transform
from tests.integration.transactions.transformer import (
    BATCH,
    Route,
    transformed,
)
from tests.support.brokers.process import BrokerProcess
from tests.support.client_program import Program

RECORDS = int(os.environ.get("BARNABAS_RECORDS", "2000"))
KILLS = int(os.environ.get("BARNABAS_KILLS", "3"))
PER_LIFE = max(RECORDS // BATCH // (2 * KILLS), 1)
"""The number of transactions that a broker commits before it is killed; the total suffices for
all."""
PARTITIONS = 3
ROUTE = Route.named("")
DECIDED = (0, 2, 3)
"""The number of markers that are written when the broker dies after a decision, in turn. The output
has three partitions, the group's offsets one."""
READERS = {
    "kafka_python": "confluent",
    "confluent": "aiokafka",
    "aiokafka": "kafka_python",
    "java": "confluent",
}


def write(servers: str, topic: str, values: list[bytes]) -> None:
    """Write the values to the partitions in turn."""
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "log_level": 0})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % PARTITIONS)
    assert producer.flush(60) == 0


def is_decided(number: int) -> bool:
    """Return whether this kill comes between a decision and its markers; every third comes
    anywhere."""
    return number < KILLS and number % 3 != 2


def arm(directory: Path, number: int) -> None:
    """Let the broker that is started next kill itself in a transaction, if `number` asks for it."""
    if is_decided(number):
        directory.mkdir(exist_ok=True)
        (directory / "die").write_text(f"{PER_LIFE} {DECIDED[number % len(DECIDED)]}")


def check_decided(data: Path, markers: int) -> None:
    """Check that a commit is on disk with exactly `markers` of its markers."""
    decided = on_disk.transactions(data)[ROUTE.transactional_id]
    assert decided.state is TransactionState.PREPARE_COMMIT
    unmarked = on_disk.open_in(data, decided.producer_id, decided.partitions)
    assert unmarked == max(len(decided.partitions) - markers, 1)


def kill(broker: BrokerProcess, number: int, transformer: Program, chance: random.Random) -> None:
    if is_decided(number):
        broker.wait_until_ended()
        check_decided(broker.directory / "data", DECIDED[number % len(DECIDED)])
    else:
        transformer.wait_for_more("committed", transformer.counts()["committed"] + PER_LIFE - 1)
        time.sleep(chance.uniform(0, 0.03))
        broker.kill()


def by_partition(lines: list[str]) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = defaultdict(list)
    for line in lines:
        partition, value = line.split(" ", 1)
        found[int(partition)].append(value.encode())
    return found


@pytest.mark.timeout(120 + RECORDS // 100)
@pytest.mark.parametrize(("kind", "reader"), READERS.items(), ids=READERS)
def test_every_record_is_written_once_while_the_broker_is_killed(
    tmp_path: Path, kind: str, reader: str
) -> None:
    chance = random.Random(KILLS)
    values = [b"%d" % number for number in range(RECORDS)]
    expected = {
        index: [transformed(each) for each in values[index::PARTITIONS]]
        for index in range(PARTITIONS)
    }
    keys = {"transaction.state.log.num.partitions": "2", "num.partitions": str(PARTITIONS)}
    arm(tmp_path / "broker", 0)
    with BrokerProcess(tmp_path / "broker", program=UNMARKED, **keys) as broker:
        servers = broker.bootstrap_servers
        write(servers, ROUTE.input, values)
        began = time.monotonic()
        with (
            transform(kind, servers, RECORDS, tmp_path) as transformer,
            read(reader, servers, PARTITIONS, tmp_path, "meanwhile") as meanwhile,
        ):
            for number in range(KILLS):
                kill(broker, number, transformer, chance)
                arm(broker.directory, number + 1)
                broker.start()
            told = transformer.finish()
            took = time.monotonic() - began
            write(servers, ROUTE.output, [LAST] * PARTITIONS)
            assert by_partition(meanwhile.finish()) == expected
        with read(reader, servers, PARTITIONS, tmp_path, "again") as again:
            assert by_partition(again.finish()) == expected
        errors = broker.errors()
    counts = transformer.counts()
    print(f"{kind}: {RECORDS} records, {KILLS} kills, {took:.1f} s, {dict(counts)}")
    assert counts["aborted"] >= RECORDS // BATCH // 3 - KILLS
    # There is one producer on one coordinator: a fenced request was taken for another producer's.
    assert not [line for line in told if "fence" in line.lower() or "EPOCH" in line]
    assert "Traceback" not in errors, errors
