"""The load that one broker carries, and its effect on other clients: `python -m benchmarks.limits`.

A client that sends one record at a time, 500 in a second, measures the latency of other clients,
and the broker how long its event loop was held. A round has three windows: calm, disturbed, calm.
The ratio is the disturbed one over the mean of its neighbours. The two calm windows differ by
noise: a ratio below that shows nothing. Memory is the resident memory of the broker, less its
memory when idle. The results are written to `docs/LIMITS.md`.
"""

import argparse
import json
import os
import platform
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, Self

from barnabas.protocol.messages import (
    create_topics,
    describe_log_dirs,
    find_coordinator,
    incremental_alter_configs,
    offset_commit,
    offset_fetch,
)
from benchmarks import raw
from benchmarks.measures import HERE, PAGES, Cost, children, percentiles
from tests.support.brokers.loop_hold import Held, held_since_last
from tests.support.brokers.memory import resident_mb
from tests.support.brokers.process import BrokerProcess

PAGE = HERE.parent / "docs" / "LIMITS.md"
NOTES = HERE / "limits_notes.md"
LONG_RUNS = HERE / "long_runs.json"
"""The figures of `benchmarks.long_runs`: by run, its machine, its command and its rows."""
MAX_RATIO = 1.2
MAX_GROWTH_MB = 300
KEYED, KEYS, VALUE = 8, 20_000, bytes(100)
"""Compacted partitions, the keys in each, and the value of each record."""
READY_WITHIN_S = 60.0
EVERY_S = 0.002
SETTLE_SHARE = 0.2
"""Seconds to wait before a window, so that the cost of the change itself is not measured."""


class Scale(NamedTuple):
    """The sizes of the loads; the defaults are those of the full run."""

    connections: int = 1_000
    partitions: int = 2_000
    members: int = 100
    slow_consumers: int = 1
    large_mb: int = 50
    offsets: int = 100_000
    keyed_records: int = 150_000
    """Records in each compacted partition, 17 MB of them."""
    rounds: int = 7
    window_s: float = 1.0
    load_window_s: float = 0.6
    """Seconds after the start of a broker, while it loads its offsets."""


# -- windows ---------------------------------------------------------------------------------------


class Window(NamedTuple):
    """The measurements of one window, in ms."""

    p99: float
    held: Held


class Felt(NamedTuple):
    """The effect of a disturbance on other clients, in ms; medians over the rounds."""

    calm_p99: float
    disturbed_p99: float
    ratio: float
    noise: float
    """The ratio of two calm windows of a round: the greater p99 over the smaller."""
    calm: Held
    disturbed: Held
    """The longest of all windows, not their median."""

    @property
    def verdict(self) -> str:
        """Whether other clients were disturbed, as far as the noise allows."""
        if self.ratio <= MAX_RATIO:
            return "yes"
        return "**no**" if self.ratio > self.noise else "within the noise"


Found = dict[str, Felt | float]


class Probe:
    """Sends one record at a time to a topic, and asks the broker for its loop's delays."""

    def __init__(self, broker: BrokerProcess, topic: str = "probe") -> None:
        self._held = partial(held_since_last, broker.pid, broker.directory)
        self._client = raw.connect(broker.port)
        self._request = raw.produce_request(topic, records=1, record_bytes=100)
        raw.acknowledged(self._client, self._request)

    def window(self, seconds: float) -> Window:
        """Measure requests for that many seconds."""
        self._held()
        p99 = self.p99_ms(seconds)
        return Window(p99, self._held())

    def p99_ms(self, seconds: float) -> float:
        """Return the 99th percentile of the latencies of that many seconds, in ms."""
        clock, taken = time.perf_counter, []
        due = clock()
        end = due + seconds
        while due < end:
            began = clock()
            self._client.exchange(self._request)
            taken.append(clock() - began)
            due = max(due + EVERY_S, clock())
            time.sleep(max(0.0, due - clock()))
        return percentiles(sorted(taken), "ms")["p99_ms"]

    def alternating(
        self, scale: Scale, disturbed: Callable[[], AbstractContextManager[Any]]
    ) -> Felt:
        """Run rounds of a window without, with and without a disturbance."""
        windows = []
        for number in range(scale.rounds * 3):
            with disturbed() if number % 3 == 1 else nullcontext():
                self.p99_ms(scale.window_s * SETTLE_SHARE)
                windows.append(self.window(scale.window_s))
        return felt(windows)


def felt(windows: Sequence[Window]) -> Felt:
    """Return the effect, from windows in rounds of three."""
    before, during, after = windows[0::3], windows[1::3], windows[2::3]
    triples = [(b.p99, d.p99, a.p99) for b, d, a in zip(before, during, after, strict=True)]
    calm = [*before, *after]
    return Felt(
        median(window.p99 for window in calm),
        median(window.p99 for window in during),
        median(2 * d / (b + a) for b, d, a in triples),
        median(max(b, a) / min(b, a) for b, _, a in triples),
        _held(calm),
        _held(during),
    )


def _held(windows: Sequence[Window]) -> Held:
    return Held(
        median(window.held.p99 for window in windows),
        max(window.held.longest for window in windows),
        max(window.held.longest_work for window in windows),
    )


class Load:
    """A load of `limits_loads` in its own process."""

    def __init__(self, name: str, port: int, count: int, within_s: float = READY_WITHIN_S) -> None:
        self._name = name
        command = [sys.executable, "-m", "benchmarks.limits_loads", name, str(port), str(count)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            ready = selector.select(within_s)
        if not ready or not self._process.stdout.readline():
            self.__exit__()
            raise RuntimeError(f"the load {name} did not start")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def check(self) -> None:
        """Raise if the load has ended: nothing was measured then."""
        if self._process.poll() is not None:
            raise RuntimeError(f"the load {self._name} ended by itself")


# -- requests --------------------------------------------------------------------------------------


def timed_broker(directory: Path, **keys: str) -> BrokerProcess:
    """Return a broker in its own process that measures how long its loop was blocked."""
    return BrokerProcess(directory, program="tests.support.brokers.timed", **keys)


def create_topic(client: raw.Client, name: str, partitions: int = 1, **configs: str) -> None:
    """Create a topic; configs have underscores for Kafka's dots."""
    topic = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": 1,
        "assignments": [],
        "configs": [
            {"name": key.replace("_", "."), "value": value} for key, value in configs.items()
        ],
    }
    request = {"topics": [topic], "timeout_ms": 60_000}
    if code := client.call(create_topics.API, 5, request).topics[0].error_code:
        raise RuntimeError(f"topic {name}: error {code}")


def compact(client: raw.Client, topic: str) -> None:
    config = {"name": "cleanup.policy", "config_operation": 0, "value": "compact"}
    resource = {"resource_type": 2, "resource_name": topic, "configs": [config]}
    request = {"resources": [resource], "validate_only": False}
    if code := client.call(incremental_alter_configs.API, 1, request).responses[0].error_code:
        raise RuntimeError(f"{topic} is not compacted: error {code}")


def _commit(client: raw.Client, group: str, partitions: int) -> None:
    rows = [
        {"partition_index": index, "committed_offset": index, "committed_metadata": ""}
        for index in range(partitions)
    ]
    topics = [{"name": "many", "partitions": rows}]
    request = {"group_id": group, "member_id": "", "topics": topics}

    def done() -> bool:
        answer = client.call(offset_commit.API, 7, request)
        return not answer.topics[0].partitions[0].error_code

    raw.until(done)


def _loaded(client: raw.Client) -> bool:
    request = {"group_id": "group-0", "topics": None}
    return not client.call(offset_fetch.API, 5, request).error_code


def _partitions_of(client: raw.Client, topic: str, directory: Path) -> tuple[list[int], list[int]]:
    """Return the partitions of a topic in the slow directory, and those in the fast one."""
    answer = client.call(describe_log_dirs.API, 1, {"topics": None})
    found: dict[str, list[int]] = {"slow": [], "fast": []}
    for row in answer.results:
        for each in row.topics:
            if each.name == topic:
                name = Path(row.log_dir).relative_to(directory).name
                found[name] += [p.partition_index for p in each.partitions]
    return found["slow"], found["fast"]


# -- cases -----------------------------------------------------------------------------------------


def crowds(directory: Path, scale: Scale) -> Found:
    """Measure 1,000 connections, 2,000 partitions, 100 members, a slow consumer: alone and
    together."""
    found: Found = {}
    with timed_broker(directory) as broker, ExitStack() as stack:
        with raw.connect(broker.port) as client:
            create_topic(client, "probe")
            probe = Probe(broker)
            probe.p99_ms(scale.window_s)
            found["idle memory, MB"] = idle = resident_mb(broker.pid)
            create_topic(client, "large")
            filling = raw.produce_request("large", records=100, record_bytes=10_000)
            client.stream([filling] * scale.large_mb, 5)
            create_topic(client, "many", scale.partitions)
        more = resident_mb(broker.pid) - idle
        found[f"memory with {scale.partitions} partitions, MB over idle"] = more
        slow = f"slow consumers that ask for 50 MB: {scale.slow_consumers}"
        loads = {
            f"{scale.connections} connections": ("crowd", scale.connections),
            f"a group of {scale.members} members": ("group", scale.members),
            slow: ("slow", scale.slow_consumers),
        }
        for title, (name, count) in loads.items():
            found[title] = probe.alternating(scale, partial(Load, name, broker.port, count))
        held = [
            stack.enter_context(Load(name, broker.port, count)) for name, count in loads.values()
        ]
        probe.p99_ms(scale.window_s)
        for each in held:
            each.check()
        found["memory with all of it, MB over idle"] = resident_mb(broker.pid) - idle
    return found


def compaction(directory: Path, scale: Scale) -> Found:
    """Compare a running cleaner that has a backlog with a stopped one."""
    keys = {
        "log_cleaner_backoff_ms": "50",
        # Only records that a checkpoint has marked as durable are compacted.
        "log_flush_offset_checkpoint_interval_ms": "500",
    }
    with timed_broker(directory, **keys) as broker, raw.connect(broker.port) as client:
        create_topic(client, "probe")
        create_topic(client, "keyed", KEYED, segment_bytes=str(1 << 20))
        for partition in range(KEYED):
            batches = (
                [at % KEYS + n for n in range(1_000)] for at in range(0, scale.keyed_records, 1_000)
            )
            one = partial(raw.keyed_request, "keyed", value=VALUE, partition=partition)
            client.stream((one(keys) for keys in batches), 5)
        compact(client, "keyed")
        cleaner = raw.until(lambda: children(broker.pid))[0]
        os.kill(cleaner, signal.SIGSTOP)

        @contextmanager
        def cleaning() -> Iterator[None]:
            os.kill(cleaner, signal.SIGCONT)
            yield
            os.kill(cleaner, signal.SIGSTOP)

        with Load("keys", broker.port, KEYED) as load, Cost(cleaner) as cost:
            found = Probe(broker).alternating(scale, cleaning)
            load.check()
        os.kill(cleaner, signal.SIGCONT)
    return {"compaction": found, "CPU seconds of the cleaner meanwhile": cost.cpu}


def slow_disk(directory: Path, scale: Scale) -> Found:
    """Compare a slow fsync in one directory, with every record flushed, to the same without
    delay."""
    directory.mkdir()
    delay = directory / "delay"
    delay.write_text("0")

    @contextmanager
    def slowed(seconds: float) -> Iterator[None]:
        delay.write_text(str(seconds))
        yield
        delay.write_text("0")

    found: Found = {}
    keys = {"log_flush_interval_messages": "1"}
    with (
        BrokerProcess(directory, program="tests.support.brokers.slow", **keys) as broker,
        raw.connect(broker.port) as client,
    ):
        create_topic(client, "disks", 6)
        slow, fast = _partitions_of(client, "disks", directory)
        assert fast
        for topic in ("probe", *(f"probe{number}" for number in range(10))):
            create_topic(client, topic)
            if not _partitions_of(client, topic, directory)[0]:
                break
        with Load("flushes", broker.port, slow[0]) as load:
            probe = Probe(broker, topic)
            for seconds in (0.005, 0.5):
                title = f"fsync slowed by {seconds * 1000:g} ms on another directory"
                found[title] = probe.alternating(scale, partial(slowed, seconds))
            load.check()
    return found


def coordinator_load(directory: Path, scale: Scale) -> Found:
    """Compare the first moments of a broker that loads many offsets to one that has none."""
    full = timed_broker(directory / "full", offsets_topic_num_partitions="1")
    empty = timed_broker(directory / "empty", offsets_topic_num_partitions="1")
    for broker, offsets in ((full, scale.offsets), (empty, 1)):
        with broker, raw.connect(broker.port) as client:
            create_topic(client, "probe")
            create_topic(client, "many", 1_000)
            # The first FindCoordinator creates the offsets topic.
            client.call(find_coordinator.API, 1, {"key": "group-0"})
            for number in range(0, offsets, 1_000):
                _commit(client, f"group-{number}", min(1_000, offsets))
    windows, loads = [], []
    for _ in range(scale.rounds):
        for broker in (empty, full, empty):
            with broker, raw.connect(broker.port) as client:
                began = time.perf_counter()
                windows.append(Probe(broker).window(scale.load_window_s))
                raw.until(partial(_loaded, client))
                if broker is full:
                    loads.append(time.perf_counter() - began)
    return {
        f"a coordinator loads {scale.offsets} offsets": felt(windows),
        "seconds until it answers, at most": max(loads),
    }


CASES: Mapping[str, Callable[[Path, Scale], Found]] = {
    "crowds": crowds,
    "compaction": compaction,
    "coordinator": coordinator_load,
    "disk": slow_disk,
}


# -- the page --------------------------------------------------------------------------------------


def page(found: Mapping[str, Felt | float], rounds: int, window_s: float) -> str:
    """Return the tables of the page."""
    felt, held, figures = [], [], []
    for title, each in found.items():
        if not isinstance(each, Felt):
            figures.append(f"| {title} | {each:.3g} |")
            continue
        cells = [each.calm_p99, each.disturbed_p99, each.ratio, each.noise]
        felt.append(f"| {title} | {' | '.join(f'{cell:.2f}' for cell in cells)} | {each.verdict} |")
        pairs = [f"{c:.1f} / {d:.1f}" for c, d in zip(each.calm, each.disturbed, strict=True)]
        held.append(f"| {title} | {' | '.join(pairs)} |")
    text = PAGES["limits"].format(
        rounds=rounds,
        window_s=window_s,
        max_ratio=MAX_RATIO,
        cores=os.cpu_count(),
        platform=platform.platform(),
        python=platform.python_version(),
        date=time.strftime("%Y-%m-%d", time.gmtime()),
        felt="\n".join(felt),
        held="\n".join(held),
        figures="\n".join(figures),
    )
    return str(text)


def whole(text: str) -> str:
    """Return the page: the tables of this program, the notes, and the long runs."""
    return f"{text}\n{NOTES.read_text()}\n{_long_runs()}"


def _long_runs() -> str:
    parts = [PAGES["long_runs"].strip()]
    for run in json.loads(LONG_RUNS.read_text()).values():
        rows = "\n".join(f"| {name} | {value} |" for name, value in run["figures"].items())
        parts.append(PAGES["long_run"].strip().format(**run, rows=rows))
    return "\n\n".join(parts) + "\n"


def with_the_tables_of(page: str) -> str:
    """Return a page with the same tables of this program, and the other parts as they are now."""
    tables, _, _ = page.partition("\n" + NOTES.read_text().partition("\n")[0])
    return whole(tables)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", choices=[*CASES, []], help="default: all of them")
    cases = parser.parse_args().cases or list(CASES)
    scale = Scale()
    found: Found = {}
    for name in cases:
        with tempfile.TemporaryDirectory(prefix="limits-") as directory:
            found |= CASES[name](Path(directory) / name, scale)
        text = page(found, scale.rounds, scale.window_s)
        print(text, flush=True)
    if len(cases) == len(CASES):
        PAGE.write_text(whole(text))


if __name__ == "__main__":
    main()
