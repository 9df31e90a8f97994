"""The cost of a request of six hot paths without a clock: `python -m benchmarks.path_costs`.

Callgrind counts the broker's instructions (`valgrind`; those of the kernel do not count), `strace`
its system calls. Neither depends on the load of the machine. A client sends the requests one after
the other. The figures of this tree are in `benchmarks/path_costs.json`, for each kind of Python
that they were counted with: a change that makes a path dearer changes the file, and its diff says
so. `tests/test_path_costs.py` compares, with 5 % of slack.

    python -m benchmarks.path_costs                     count, and compare with the file
    python -m benchmarks.path_costs --write             count, and write the file
    python -m benchmarks.path_costs --before DIRECTORY  compare with another checkout
"""

import argparse
import json
import platform
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from barnabas.broker.observability.interpreter import is_profile_guided
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
from benchmarks import counted_broker, raw
from tests.support.brokers.process import ROOT, BrokerProcess

REQUESTS = 300
"""Counted requests of a path. As many come before them and do not count."""
FIGURES = Path(__file__).with_suffix(".json")
SLACK = 1.05
INSTRUCTIONS, CALLS = "instructions", "system calls"
RECORDS_16_KB, RECORD_BYTES = 15, 1024
TOPIC = "instructions"
_START_S = 180.0
_PRODUCE, _ADD, _END = 11, 3, 3
_SELDOM = 0.02
"""Calls that are fewer for each request belong to tasks that run once in a while."""
_TOTAL = re.compile(r"^(?:totals|summary): (\d+)", re.MULTILINE)
_CALLED = re.compile(r"^ *[\d.]+ +[\d.]+ +\d+ +(\d+) +(?:\d+ +)?(\w+)$", re.MULTILINE)
"""A line of the table of `strace -c`: the calls, perhaps the errors, and the name."""

Costs = dict[str, dict[str, float]]
"""The cost of a request, by the name of its path and the kind of cost."""


class Producer(NamedTuple):
    """The transactional id, the producer id and the epoch of batches."""

    transactional_id: str | None
    id: int = -1
    epoch: int = -1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--before", type=Path, help="another checkout to compare with")
    parser.add_argument("--write", action="store_true", help=f"write {FIGURES.name}")
    options = parser.parse_args()
    if reason := why_not():
        raise SystemExit(reason)
    before = counted(options.before) if options.before else written()
    now = counted(ROOT)
    if options.write:
        write(now)
    print(f"{'each request':32}{'':14}{'now':>11}{'before':>11}{'ratio':>8}")
    for path, costs in now.items():
        for kind, cost in costs.items():
            line = f"{path:32}{kind:14}{cost:11,}"
            if earlier := before.get(path, {}).get(kind):
                line += f"{earlier:11,}{cost / earlier:8.3f}"
            print(line)


def why_not() -> str | None:
    """Return the reason why nothing can be counted here; None if it can."""
    missing = [each for each in ("valgrind", "strace") if shutil.which(each) is None]
    return f"{' and '.join(missing)} not installed" if missing else None


def build() -> str:
    """Return the kind of Python that figures hold for."""
    major, minor, _ = platform.python_version_tuple()
    profiles = "with profiles" if is_profile_guided() else "without profiles"
    name = platform.python_implementation()
    return f"{name} {major}.{minor} on {platform.machine()}, built {profiles}"


def written() -> Costs:
    """Return the figures of the file for this kind of Python, or none."""
    costs: Costs = json.loads(FIGURES.read_text()).get(build(), {}).get("costs", {})
    return costs


def write(costs: Costs) -> None:
    """Replace the figures of this kind of Python."""
    known = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    known[build()] = {"python": platform.python_version(), "costs": costs}
    FIGURES.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


def dearer(now: Costs, before: Costs) -> list[str]:
    """Return a line for each cost that exceeds that of before by more than the slack."""
    return [
        f"{path}: {cost:,} {kind} instead of {before[path][kind]:,}"
        for path, costs in now.items()
        for kind, cost in costs.items()
        if cost > before[path][kind] * SLACK
    ]


def counted(tree: Path) -> Costs:
    """Return the costs of each path in a checkout."""
    instructions, calls = instructions_of(tree), calls_of(tree)
    return {
        path: {INSTRUCTIONS: round(count / 100) * 100, CALLS: round(calls[path], 2)}
        for path, count in instructions.items()
    }


def instructions_of(tree: Path) -> dict[str, float]:
    """Return the instructions of the broker for each request of a path, by its name."""
    with tempfile.TemporaryDirectory(prefix="instructions-") as name:
        out = Path(name) / "callgrind.out"
        valgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "-q"]

        def count(work: Callable[[], None]) -> float:
            _control("-z", broker.pid)
            work()
            _control("-d", broker.pid)
            dumps = out.parent.glob(f"{out.name}*")
            dump = max(dumps, key=lambda each: each.stat().st_mtime_ns)
            found = _TOTAL.search(dump.read_text())
            assert found is not None
            return int(found[1]) / REQUESTS

        with _broker(Path(name), tree, valgrind) as broker:
            return _each_path(broker, count)


def calls_of(tree: Path) -> dict[str, float]:
    """Return the system calls of the broker for each request of a path, by its name."""
    with (
        tempfile.TemporaryDirectory(prefix="calls-") as name,
        _broker(Path(name), tree, []) as broker,
    ):
        table = Path(name) / "calls"
        strace = ["strace", "-f", "-c", "-o", str(table), "-p", str(broker.pid)]

        def count(work: Callable[[], None]) -> float:
            with subprocess.Popen(strace, stderr=subprocess.PIPE, text=True) as tracing:
                assert tracing.stderr is not None
                if "attached" not in (line := tracing.stderr.readline()):
                    raise PermissionError(f"strace cannot be attached: {line.strip()}")
                work()
                tracing.send_signal(signal.SIGINT)
            calls = {
                name: int(calls) / REQUESTS for calls, name in _CALLED.findall(table.read_text())
            }
            return sum(each for name, each in calls.items() if name != "total" and each > _SELDOM)

        return _each_path(broker, count)


def _each_path(
    broker: BrokerProcess, count: Callable[[Callable[[], None]], float]
) -> dict[str, float]:
    """Do the work of each path twice, and count the second time."""
    counts = {}
    with _connected(broker.port) as client:
        for path, work in _paths(client):
            work()
            counts[path] = count(work)
    return counts


@contextmanager
def _broker(directory: Path, tree: Path, prefix: Sequence[str]) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(
        directory / "data",
        root=tree,
        prefix=prefix,
        program=counted_broker.__name__,
        # A checkout that has no such program takes it from this one.
        environment={"PYTHONHASHSEED": "0", "PYTHONPATH": f"{tree}:{ROOT}"},
        transaction_state_log_num_partitions="1",
        log_flush_offset_checkpoint_interval_ms="3600000",
    )
    broker.launch()
    try:
        yield broker
    finally:
        broker.kill()


def _paths(client: raw.Client) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield name and work of each path; the work sends REQUESTS requests."""
    raw.create_topic(client, TOPIC)
    large = raw.produce_request(TOPIC, records=RECORDS_16_KB, record_bytes=RECORD_BYTES)
    raw.acknowledged(client, large)
    yield "Produce of 16 KB", lambda: _all(client, [large] * REQUESTS)
    small = _produced(Producer(None), records=1, sequence=-1, size=100)
    yield "Produce of one record", lambda: _all(client, [small] * REQUESTS)
    ordered = _batches(_initialised(client, None), RECORDS_16_KB)
    yield "idempotent Produce of 16 KB", lambda: _next(client, ordered)
    in_transaction = _initialised(client, "x")
    _accepted(client, add_partitions_to_txn, _ADD, _added(in_transaction))
    transactional = _batches(in_transaction, RECORDS_16_KB)
    yield "transactional Produce of 16 KB", lambda: _next(client, transactional)
    fetches = [
        raw.fetch_request(TOPIC, offset=RECORDS_16_KB * each, max_bytes=16 * 1024)
        for each in range(REQUESTS)
    ]
    yield "Fetch of 16 KB", lambda: _all(client, fetches)
    _accepted(client, end_txn, _END, _ended(in_transaction))
    singles = _initialised(client, "y")
    batches = _batches(singles, 1)

    def transactions() -> None:
        for _ in range(REQUESTS):
            _accepted(client, add_partitions_to_txn, _ADD, _added(singles))
            client.exchange(next(batches))
            _accepted(client, end_txn, _END, _ended(singles))

    yield "transaction of one record", transactions


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
