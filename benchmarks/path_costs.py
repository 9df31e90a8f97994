"""The cost of a request of six hot paths without a clock: `python -m benchmarks.path_costs`.

Callgrind counts the broker's instructions (`valgrind`; those of the kernel do not count), `strace`
its system calls. Neither depends on the load of the machine. A client sends the requests one after
the other. The figures of this tree are in `benchmarks/path_costs.json`, for each kind of Python
that they were counted with: a change that makes a path dearer changes the file, and its diff says
so. `tests/test_path_costs.py` compares, with 3 % of slack.

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
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from barnabas.broker.observability.interpreter import is_profile_guided
from benchmarks import counted_broker, raw
from tests.support.brokers.process import ROOT, BrokerProcess

REQUESTS = 300
"""Counted requests of a path. As many come before them and do not count."""
FIGURES = Path(__file__).with_suffix(".json")
SLACK = 1.03
INSTRUCTIONS, CALLS = "instructions", "system calls"
RECORDS_16_KB, RECORD_BYTES = 15, 1024
TOPIC = "instructions"
_IDLE_S = 3.0
"""The time for which an idle broker is counted. Its tasks run by the clock, so that on a busy
machine more of them would count for a request."""
_TOTAL = re.compile(r"^(?:totals|summary): (\d+)", re.MULTILINE)
_CALLED = re.compile(r"^ *[\d.]+ +[\d.]+ +\d+ +(\d+) +(?:\d+ +)?(\w+)$", re.MULTILINE)
"""A line of the table of `strace -c`: the calls, perhaps the errors, and the name."""

Costs = dict[str, dict[str, float]]
"""The cost of a request, by the name of its path and the kind of cost."""


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

        def count(work: Callable[[], None]) -> int:
            _control("-z", broker.pid)
            work()
            _control("-d", broker.pid)
            dumps = out.parent.glob(f"{out.name}*")
            dump = max(dumps, key=lambda each: each.stat().st_mtime_ns)
            found = _TOTAL.search(dump.read_text())
            assert found is not None
            return int(found[1])

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

        def count(work: Callable[[], None]) -> int:
            with subprocess.Popen(strace, stderr=subprocess.PIPE, text=True) as tracing:
                assert tracing.stderr is not None
                if "attached" not in (line := tracing.stderr.readline()):
                    raise PermissionError(f"strace cannot be attached: {line.strip()}")
                work()
                tracing.send_signal(signal.SIGINT)
            rows = _CALLED.findall(table.read_text())
            return sum(int(calls) for calls, name in rows if name != "total")

        return _each_path(broker, count)


def _each_path(
    broker: BrokerProcess, count: Callable[[Callable[[], None]], int]
) -> dict[str, float]:
    """Do the work of each path twice, and count the second time, without the share of an idle
    broker."""
    counts = {}
    with raw.connect(broker.port) as client:
        idle = 0.0
        for path, work in _paths(client):
            work()
            idle = idle or count(lambda: time.sleep(_IDLE_S)) / _IDLE_S
            began = time.monotonic()
            total = count(work)
            counts[path] = (total - idle * (time.monotonic() - began)) / REQUESTS
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
    plain = raw.PLAIN
    large = _batches(client, plain, _large(plain))
    yield "Produce of 16 KB", lambda: _next(client, large)
    first = raw.batch_of(TOPIC, plain, records=1, record_bytes=100)
    small = _batches(client, plain, first)
    yield "Produce of one record", lambda: _next(client, small)
    ordered = _batches(client, idempotent := raw.initialised(client, None), _large(idempotent))
    yield "idempotent Produce of 16 KB", lambda: _next(client, ordered)
    producer = raw.initialised(client, "x")
    raw.accepted(client, raw.added(TOPIC, producer))
    transactional = _batches(client, producer, _large(producer))
    yield "transactional Produce of 16 KB", lambda: _next(client, transactional)
    fetches = [
        raw.fetch_request(TOPIC, offset=RECORDS_16_KB * each, max_bytes=16 * 1024)
        for each in range(REQUESTS)
    ]
    yield "Fetch of 16 KB", lambda: _all(client, fetches)
    raw.accepted(client, raw.ended(producer))
    yield "transaction of one record", _transactions(client, raw.initialised(client, "y"))


def _large(producer: raw.Producer) -> raw.Batch:
    return raw.batch_of(TOPIC, producer, records=RECORDS_16_KB, record_bytes=RECORD_BYTES)


def _batches(client: raw.Client, producer: raw.Producer, first: raw.Batch) -> Iterator[bytearray]:
    """Send the first batch; return the others, for the time that does not count and the one that
    does."""
    raw.accepted(client, first.frame)
    return raw.successors(first, producer, 2 * REQUESTS)


def _transactions(client: raw.Client, producer: raw.Producer) -> Callable[[], None]:
    add, end = raw.added(TOPIC, producer), raw.ended(producer)
    raw.accepted(client, add)
    first = raw.batch_of(TOPIC, producer, records=1, record_bytes=100)
    batches = _batches(client, producer, first)
    raw.accepted(client, end)

    def work() -> None:
        for _ in range(REQUESTS):
            raw.accepted(client, add)
            client.exchange(next(batches))
            raw.accepted(client, end)

    return work


def _all(client: raw.Client, requests: Iterable[bytes | bytearray]) -> None:
    for request in requests:
        client.exchange(request)


def _next(client: raw.Client, requests: Iterator[bytearray]) -> None:
    _all(client, islice(requests, REQUESTS))


def _control(option: str, pid: int) -> None:
    subprocess.run(["callgrind_control", option, str(pid)], check=True, capture_output=True)


if __name__ == "__main__":
    main()
