"""Instructions of the broker for a request of six hot paths: `python -m benchmarks.instructions`.

Callgrind counts them (`valgrind`), so that the figures do not depend on the load of the machine.
Instructions of the kernel do not count. A client sends the requests one after the other.

    python -m benchmarks.instructions                     this tree
    python -m benchmarks.instructions --before DIRECTORY  another checkout too, and the ratios
"""

import argparse
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from barnabas.protocol.codec import decode
from barnabas.protocol.header import decode_response_header
from barnabas.protocol.messages import (
    add_partitions_to_txn,
    end_txn,
    find_coordinator,
    init_producer_id,
    produce,
)
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.records.record import Record, build_batch
from benchmarks import raw
from tests.support.brokers.process import ROOT, BrokerProcess

REQUESTS = 300
"""Counted requests of a path. As many come before them and do not count."""
RECORDS_16_KB, RECORD_BYTES = 15, 1024
TOPIC = "instructions"
_START_S = 180.0
_PRODUCE, _ADD, _END = 11, 3, 3
_TOTAL = re.compile(r"^(?:totals|summary): (\d+)", re.MULTILINE)


class Producer(NamedTuple):
    """The transactional id, the producer id and the epoch of batches."""

    transactional_id: str | None
    id: int = -1
    epoch: int = -1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, help="another checkout")
    options = parser.parse_args()
    now = counted(ROOT)
    before = counted(options.before) if options.before else {}
    print(f"{'thousands of instructions':32}{'now':>10}" + ("    before  ratio" if before else ""))
    for path, count in now.items():
        line = f"{path:32}{count / 1e3:10.1f}"
        if before:
            line += f"{before[path] / 1e3:10.1f}{count / before[path]:7.3f}"
        print(line)


def counted(tree: Path) -> dict[str, float]:
    """Return the instructions for each request of a path, by its name."""
    with (
        tempfile.TemporaryDirectory(prefix="instructions-") as name,
        _broker(Path(name), tree) as broker,
    ):
        return dict(_paths(broker, Path(name)))


@contextmanager
def _broker(directory: Path, tree: Path) -> Iterator[BrokerProcess]:
    out = directory / "callgrind.out"
    valgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "-q"]
    broker = BrokerProcess(
        directory / "data",
        root=tree,
        prefix=valgrind,
        environment={"PYTHONHASHSEED": "0"},
        transaction_state_log_num_partitions="1",
        log_flush_offset_checkpoint_interval_ms="3600000",
    )
    broker.launch()
    try:
        yield broker
    finally:
        broker.kill()


def _paths(broker: BrokerProcess, directory: Path) -> Iterator[tuple[str, float]]:
    with _connected(broker.port) as client:
        raw.create_topic(client, TOPIC)

        def count(work: Callable[[], None]) -> float:
            """Do the work twice; count the second time."""
            work()
            _control("-z", broker.pid)
            work()
            _control("-d", broker.pid)
            dump = max(directory.glob("callgrind.out*"), key=lambda each: each.stat().st_mtime_ns)
            found = _TOTAL.search(dump.read_text())
            assert found is not None
            return int(found[1]) / REQUESTS

        plain = Producer(None)
        large = raw.produce_request(TOPIC, records=RECORDS_16_KB, record_bytes=RECORD_BYTES)
        raw.acknowledged(client, large)
        yield "Produce of 16 KB", count(lambda: _all(client, [large] * REQUESTS))
        small = _produced(plain, records=1, sequence=-1, size=100)
        yield "Produce of one record", count(lambda: _all(client, [small] * REQUESTS))
        idempotent = _initialised(client, None)
        sequence = _batches(idempotent, RECORDS_16_KB)
        yield "idempotent Produce of 16 KB", count(lambda: _next(client, sequence))
        in_transaction = _initialised(client, "x")
        _accepted(client, add_partitions_to_txn, _ADD, _added(in_transaction))
        sequence = _batches(in_transaction, RECORDS_16_KB)
        yield "transactional Produce of 16 KB", count(lambda: _next(client, sequence))
        fetches = [
            raw.fetch_request(TOPIC, offset=RECORDS_16_KB * each, max_bytes=16 * 1024)
            for each in range(REQUESTS)
        ]
        yield "Fetch of 16 KB", count(lambda: _all(client, fetches))
        _accepted(client, end_txn, _END, _ended(in_transaction))
        singles = _initialised(client, "y")
        batches = _batches(singles, 1)

        def transactions() -> None:
            for _ in range(REQUESTS):
                _accepted(client, add_partitions_to_txn, _ADD, _added(singles))
                client.exchange(next(batches))
                _accepted(client, end_txn, _END, _ended(singles))

        yield "transaction of one record", count(transactions)


def _all(client: raw.Client, requests: Sequence[bytes]) -> None:
    for request in requests:
        client.exchange(request)


def _next(client: raw.Client, requests: Iterator[bytes]) -> None:
    _all(client, [next(requests) for _ in range(REQUESTS)])


def _produced(producer: Producer, *, records: int, sequence: int, size: int) -> bytes:
    now_ms = time.time_ns() // 1_000_000
    batch = build_batch(
        [Record(at, now_ms, None, bytes(size), ()) for at in range(records)],
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
        transactional=producer.transactional_id is not None,
    )
    data = PartitionProduceData(index=0, records=batch)
    request = ProduceRequest(
        transactional_id=producer.transactional_id,
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])],
    )
    return raw.frame(produce.API, _PRODUCE, request)


def _batches(producer: Producer, records: int) -> Iterator[bytes]:
    sequence = 0
    while True:
        size = RECORD_BYTES if records > 1 else 100
        yield _produced(producer, records=records, sequence=sequence, size=size)
        sequence += records


def _initialised(client: raw.Client, transactional_id: str | None) -> Producer:
    if transactional_id is not None:
        asked = FindCoordinatorRequest(coordinator_keys=[transactional_id], key_type=1)
        _until(lambda: not client.call(find_coordinator.API, 4, asked).coordinators[0].error_code)
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=900_000
    )

    def given() -> Any:
        answer = client.call(init_producer_id.API, 4, request)
        return None if answer.error_code else answer

    answer = _until(given)
    return Producer(transactional_id, answer.producer_id, answer.producer_epoch)


def _added(producer: Producer) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=producer.transactional_id or "",
        v3_and_below_producer_id=producer.id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])],
    )


def _ended(producer: Producer) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=producer.transactional_id or "",
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        committed=True,
    )


def _accepted(client: raw.Client, module: Any, version: int, request: Any) -> None:
    """Send a request until it is accepted."""
    sent = raw.frame(module.API, version, request)

    def accepted() -> bool:
        answer = client.exchange(sent)
        _, body = decode_response_header(module.API.key, version, answer)
        response = decode(module.API.response, version, answer, body)
        if module is end_txn:
            return not response.error_code
        (topic,) = response.results_by_topic_v3_and_below
        return not topic.results_by_partition[0].partition_error_code

    _until(accepted)


def _until(ready: Callable[[], Any]) -> Any:
    end = time.monotonic() + _START_S
    while not (found := ready()):
        if time.monotonic() > end:
            raise TimeoutError("the broker does not accept a request")
        time.sleep(0.01)
    return found


@contextmanager
def _connected(port: int) -> Iterator[raw.Client]:
    def connected() -> raw.Client | None:
        try:
            return raw.Client(port)
        except ConnectionRefusedError:
            return None

    with _until(connected) as client:
        yield client


def _control(option: str, pid: int) -> None:
    subprocess.run(["callgrind_control", option, str(pid)], check=True, capture_output=True)


if __name__ == "__main__":
    main()
