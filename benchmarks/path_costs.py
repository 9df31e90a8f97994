"""The cost of a request of six hot paths without a clock: `python -m benchmarks.path_costs`.

Callgrind counts the broker's instructions (`valgrind`; those of the kernel do not count), `strace`
its system calls. Neither depends on the load of the machine. A client sends the requests one after
the other. The figures of this tree are in `benchmarks/path_costs.json`, for each kind of Python
that they were counted with: a change that makes a path dearer changes the file, and its diff says
so. `tests/test_path_costs.py` compares, with 3 % of slack.

    python -m benchmarks.path_costs             count, and compare with the file
    python -m benchmarks.path_costs --write     count, and write the file
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
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path

from barnabas.broker.observability.interpreter import is_profile_guided
from benchmarks import counted_broker, raw, requests
from benchmarks.systems import Barnabas, System

REQUESTS = 300
"""Counted requests of a path. As many come before them and do not count."""
FIGURES = Path(__file__).with_suffix(".json")
SLACK = 1.03
INSTRUCTIONS, CALLS = "instructions", "system calls"
PRODUCED = {
    "Produce of 16 KB": requests.PLAIN,
    "Produce of one record": requests.SINGLE,
    "idempotent Produce of 16 KB": requests.IDEMPOTENT,
    "transactional Produce of 16 KB": requests.IN_TRANSACTION,
}
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
    parser.add_argument("--write", action="store_true", help=f"write {FIGURES.name}")
    options = parser.parse_args()
    if reason := why_not():
        raise SystemExit(reason)
    before, now = written(), counted()
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


def counted() -> Costs:
    """Return the costs of each path."""
    calls = _calls()
    return {
        path: {INSTRUCTIONS: round(count / 100) * 100, CALLS: round(calls[path], 2)}
        for path, count in _instructions().items()
    }


def _instructions() -> dict[str, float]:
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

        with _broker(Path(name), valgrind) as broker:
            return _each_path(broker, count)


def _calls() -> dict[str, float]:
    """Return the system calls of the broker for each request of a path, by its name."""
    with (
        tempfile.TemporaryDirectory(prefix="calls-") as name,
        _broker(Path(name), []) as broker,
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


def _each_path(at: System, count: Callable[[Callable[[], object]], int]) -> dict[str, float]:
    """Do the work of each path twice, and count the second time, without the share of an idle
    broker."""
    counts, idle = {}, 0.0
    # The topics stay until all is counted: their deletion is work of later seconds.
    with ExitStack() as stack:
        for path, work in _paths(at, stack):
            work()
            idle = idle or count(lambda: time.sleep(_IDLE_S)) / _IDLE_S
            began = time.monotonic()
            total = count(work)
            counts[path] = (total - idle * (time.monotonic() - began)) / REQUESTS
    return counts


@contextmanager
def _broker(directory: Path, prefix: Sequence[str]) -> Iterator[Barnabas]:
    properties = {
        "transaction.state.log.num.partitions": "1",
        "log.flush.offset.checkpoint.interval.ms": "3600000",
    }
    environment = {"PYTHONHASHSEED": "0"}
    options = {"prefix": prefix, "program": counted_broker.__name__, "environment": environment}
    broker = Barnabas(directory, properties, **options)
    broker.launch()
    try:
        yield broker
    finally:
        broker.kill()


def _paths(at: System, stack: ExitStack) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield name and work of each path; the work sends REQUESTS requests."""
    for path, name in PRODUCED.items():
        client, _, frames = stack.enter_context(requests.producing(at, name, 2 * REQUESTS))
        yield path, partial(_next, client, frames)
    client, _, frames = stack.enter_context(requests.fetching(at, 2 * REQUESTS))
    yield "Fetch of 16 KB", partial(_next, client, frames)
    stack.enter_context(at.serving(topic := "transactions"))
    talk = requests.transactor(at, stack, "x", topic, 2 * REQUESTS, [], [])
    yield "transaction of one record", lambda: raw.converse([talk(REQUESTS)])


def _next(client: raw.Client, frames: Iterator[bytes | bytearray]) -> None:
    client.stream(islice(frames, REQUESTS), window=1)


def _control(option: str, pid: int) -> None:
    subprocess.run(["callgrind_control", option, str(pid)], check=True, capture_output=True)


if __name__ == "__main__":
    main()
