"""Barnabas and its peers measured in one run: `python -m benchmarks.beside_kafka`.

The peers are Apache Kafka and kfake, the broker of franz-go in Go. Beside them stand the floors,
and with `--before DIRECTORY` Barnabas as it was in another checkout. All get the same load in
turns, on the same machine, after the same warm-up: whole rounds that are not counted. The CPU time
of a broker is the kernel's accounting of its process and its children. Writes
`benchmarks/results.json` and, from it, `docs/PERFORMANCE.md`, `benchmarks/RESULTS.md` and
`benchmarks/AIMS.md`.

    python -m benchmarks.beside_kafka                       all parts but `profiled`
    python -m benchmarks.beside_kafka --part requests       one part
    python -m benchmarks.beside_kafka --smoke               all parts at sizes that mean nothing
"""

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from barnabas.broker.observability.interpreter import is_profile_guided
from benchmarks import (
    checks,
    consumer_groups,
    floors,
    raw,
    report,
    requests,
    security,
    spark_pipeline,
    three_brokers,
    whole_clients,
)
from benchmarks.measures import HERE, Figures, Round, resident_bytes, settled
from benchmarks.systems import (
    BEFORE,
    GENERAL,
    GENERAL_BEFORE,
    GENERAL_ONLY,
    SOON,
    ApacheKafka,
    Barnabas,
    Kfake,
    Processes,
    System,
    left_out,
)
from tests.support.kafka import jars

RESULTS = HERE / "results.json"
PAGE = HERE.parent / "docs" / "PERFORMANCE.md"
TABLES = HERE / "RESULTS.md"
AIMS = HERE / "AIMS.md"

PROFILED = "profiled"
"""The part that another interpreter measures: one of a run has one build."""


class Sizes(NamedTuple):
    """The amounts of all loads."""

    rounds: int = 3
    warm_ups: int = 5
    """The rounds before the counted ones, in parts whose rounds are short."""
    megabytes: int = 300
    """The megabytes of each load of librdkafka in each round."""
    requests: int = 10_000
    transactions: int = 2_400
    """Transactions of one record that each load commits."""
    bursts: int = 30
    soon_megabytes: int = 20
    """The amount before the clock starts, in loads that need little warm-up."""
    members: int = consumer_groups.MEMBERS
    """The members of one consumer group."""
    groups: int = consumer_groups.GROUPS
    """The consumer groups of two members."""


SMOKE = Sizes(1, 1, 30, 300, 160, 3, 1, 20, 20)
"""The sizes that show that everything runs."""


class Run:
    """One part of a run, and every figure of every counted round by measurement and system."""

    def __init__(self, directory: Path, sizes: Sizes, before: Path | None) -> None:
        self.directory = directory
        self.sizes = sizes
        self.before = before
        self.found: dict[str, dict[str, list[Figures]]] = {}

    def two(self) -> list[System]:
        """Return Apache Kafka and Barnabas."""
        return [ApacheKafka(self.directory), Barnabas(self.directory)]

    def brokers(self) -> list[System]:
        """Return the systems that run one process."""
        systems = self.two()
        if Kfake.name not in left_out():
            systems.insert(1, Kfake(self.directory))
        if self.before is not None:
            systems.append(Barnabas(self.directory, root=self.before, name=BEFORE))
        return systems

    def note(self, found: Round, whose: str, *, counted: bool = True) -> None:
        """Take the figures of a system, and show them."""
        for name, figures in found.items():
            if counted:
                self.found.setdefault(name, {}).setdefault(whose, []).append(figures)
            shown = " ".join(f"{key}={value:.4g}" for key, value in figures.items())
            print(f"{name:40} {whose:22} {shown}", flush=True)

    def rounds(
        self, systems: Iterable[Any], work: Sequence[Callable[[Any], Round]], warm_ups: int = 1
    ) -> None:
        """Run the rounds of the warm-up, which are not counted, and then those that count.

        What a load has left to be written is on the disk before the next one begins: writeback
        doubles the CPU time of writers, of the floor in C as well.
        """
        order, count = list(systems), self.sizes.rounds
        for number in range(1 - warm_ups, count + 1):
            print(f"round {number} of {count}" if number > 0 else "warm-up", flush=True)
            for load in work:
                for each in order:
                    os.sync()
                    self.note(load(each), each.name, counted=number > 0)
            order.reverse()

    def soon_after_start(
        self, little: Callable[[System], Round], work: Callable[[System], Round]
    ) -> None:
        """Measure a load on brokers that have just started, after a small load of the same kind."""
        for _ in range(self.sizes.rounds):
            for system in reversed(self.two()):
                with running(system):
                    little(system)
                    os.sync()
                    found = work(system)
                    self.note({SOON + name: each for name, each in found.items()}, system.name)


def running(*systems: System) -> ExitStack:
    """Start the systems, and wait until all of them serve; they stop with the `with` block."""
    with ExitStack() as stack:
        for each in systems:
            stack.enter_context(each)
        for each in systems:
            raw.connect(each.port).close()
        return stack.pop_all()


def start_up(system: System) -> Figures:
    """Measure the seconds from the launch to the first acknowledged record, on new storage."""
    system.prepare()
    began = time.perf_counter()
    try:
        system.launch()
        with raw.connect(system.port) as client:
            raw.create_topic(client, "first")
            raw.acknowledged(client, raw.produce_request("first", records=1, record_bytes=100))
            return {"seconds": time.perf_counter() - began}
    finally:
        system.stop()


def idle(system: System) -> Figures:
    """Measure the memory of a broker that is idle after its start."""
    settled(system.pid)
    return {"resident_mb": resident_bytes(system.pid) / 1e6}


def measure_start(run: Run) -> None:
    """Measure start and idle memory."""
    for _ in range(run.sizes.rounds):
        for system in run.brokers():
            run.note({"start": start_up(system)}, system.name)
    for _ in range(run.sizes.rounds):
        for system in run.brokers():
            with running(system):
                run.note({"idle": idle(system)}, system.name)


def measure_requests(run: Run) -> None:
    """Measure the CPU time of single requests, and of transactions of one record."""
    sizes, brokers = run.sizes, run.brokers()
    cores = os.cpu_count() or 1
    several: list[System] = [Processes(run.directory, cores)] if cores > 1 else []
    with running(*brokers, *several):
        everyone = [*brokers, *several, *floors.floors(run.directory)]
        work = requests.loads(sizes.requests, sizes.transactions)
        run.rounds(everyone, work, sizes.warm_ups)
        run.rounds(brokers, requests.coordinated_loads(sizes.requests), sizes.warm_ups)


def measure_general(run: Run) -> None:
    """Measure Produce with every short way switched off, beside an earlier checkout."""
    systems = [Barnabas(run.directory, GENERAL_ONLY, name=GENERAL)]
    if run.before is not None:
        systems.append(Barnabas(run.directory, GENERAL_ONLY, root=run.before, name=GENERAL_BEFORE))
    work = requests.loads(run.sizes.requests, 0)[: len(requests.PRODUCED)]
    with running(*systems):
        run.rounds(systems, work, run.sizes.warm_ups)


def measure_profiled(run: Run) -> None:
    """Measure the same as `measure_requests` on Barnabas and Kafka; for an optimized Python."""
    if not is_profile_guided():
        raise SystemExit("This part needs a Python built with profiles, such as Debian's.")
    with running(*(systems := run.two())):
        work = requests.loads(run.sizes.requests, run.sizes.transactions)
        run.rounds(systems, work, run.sizes.warm_ups)


def measure_processes(run: Run) -> None:
    """Measure several processes on one host beside one, 2 and, where there are cores for it, 4."""
    for number in (2, 4):
        if number > max(os.cpu_count() or 1, 2):
            continue
        systems = [Barnabas(run.directory), Processes(run.directory, number)]
        if run.before is not None:
            systems.append(Processes(run.directory, number, run.before))
        sizes = run.sizes
        work = requests.loads_of_several(number, 2 * sizes.requests, sizes.transactions)
        with running(*systems):
            run.rounds(systems, work)


def measure_throughput(run: Run) -> None:
    """Measure producing and consuming by librdkafka."""
    with running(*(systems := run.brokers())):
        run.rounds(systems, whole_clients.throughput_loads(run.sizes.megabytes))


def measure_streams(run: Run) -> None:
    """Measure bursts of records without and with transactions."""
    with running(*(systems := run.brokers())):
        run.rounds(systems, [partial(whole_clients.streams, bursts=run.sizes.bursts)])


def measure_transactions(run: Run) -> None:
    """Measure transactions of whole clients, and the restart with many transactional ids."""
    with running(*(systems := run.brokers())):
        work = whole_clients.transaction_loads(run.sizes.transactions)
        run.rounds(systems, work, min(run.sizes.warm_ups, 2))
        for each in systems:
            if isinstance(each, Barnabas | ApacheKafka):
                ids = 10 * run.sizes.requests
                run.note(whole_clients.restart_with_many_ids(each, ids), each.name)


def measure_soon(run: Run) -> None:
    """Measure brokers that have just started, after 20 MB or 50 transactions of each producer."""
    sizes = run.sizes
    for size in whole_clients.RECORD_BYTES:
        load = partial(
            whole_clients.throughput,
            record_bytes=size,
            batch_bytes=whole_clients.BATCH_BYTES[0],
        )
        little = partial(load, megabytes=sizes.soon_megabytes)
        run.soon_after_start(little, partial(load, megabytes=sizes.megabytes))
    for producers in (1, 8):
        each = partial(whole_clients.one_record_each, producers=producers)
        little = partial(each, count=50 * producers)
        run.soon_after_start(little, partial(each, count=sizes.transactions // 6 * producers))


def measure_cluster(run: Run) -> None:
    """Measure clusters of three brokers with three replicas of every partition."""
    systems: list[three_brokers.ThreeBrokers] = [
        three_brokers.BarnabasTrio(run.directory / "ours"),
        three_brokers.KafkaTrio(run.directory / "theirs"),
    ]
    if run.before is not None:
        systems.append(three_brokers.BarnabasTrio(run.directory / "before", root=run.before))
    with ExitStack() as stack:
        for each in systems:
            stack.callback(each.down)
            each.up()
        for each in systems:
            three_brokers.ready(each)
            run.note(three_brokers.idle(each), each.name)
        run.rounds(systems, three_brokers.loads(run.sizes.megabytes))


def measure_registering(run: Run) -> None:
    """Measure the gain of KIP-609 between two Barnabas brokers; Apache Kafka does not have it."""
    for _ in range(run.sizes.rounds):
        for load in (whole_clients.waiting, whole_clients.registering):
            for name, by_variant in load(run.directory).items():
                for variant, figures in by_variant.items():
                    run.note({name: figures}, variant)


def measure_groups(run: Run) -> None:
    """Measure consumer groups of KIP-848 on Barnabas and Kafka."""
    sizes = run.sizes
    one, many, paced = consumer_groups.shapes(sizes.members, sizes.groups)
    beat = partial(consumer_groups.unchanged, shape=one, requested=sizes.requests)
    join = [partial(consumer_groups.assign, shape=each) for each in (one, many)]
    come = partial(consumer_groups.assign, shape=paced)
    with running(*(systems := run.two())):
        for each in systems:
            consumer_groups.prepare(each, [one, many])
        run.rounds(systems, [beat], sizes.warm_ups)
        run.rounds(systems, join, min(sizes.warm_ups, 2))
        run.rounds(systems, [come], warm_ups=0)


def measure_security(run: Run) -> None:
    """Measure TLS and SASL: data, new connections, logins, and what they add to a broker."""
    rounds, megabytes = run.sizes.rounds, run.sizes.megabytes
    site = security.Site(run.directory)
    for _ in range(rounds):
        for bare, secured in (
            (Barnabas(run.directory), site.barnabas(tokens=False)),
            (ApacheKafka(run.directory), site.kafka()),
        ):
            without, with_it = (_start_and_rest(each, site) for each in (bare, secured))
            for name in without:
                figures = {"more": with_it[name] - without[name], "all": with_it[name]}
                run.note({f"{name} with security": figures}, bare.name)

    def over_tls(system: System, batch_bytes: int) -> Round:
        return whole_clients.throughput(system, 1024, batch_bytes, megabytes, site.tls(system))

    with site.barnabas() as ours, site.kafka() as theirs:
        for each in (ours, theirs):
            security.add_user(each)
        work = [partial(over_tls, batch_bytes=size) for size in whole_clients.BATCH_BYTES]
        run.rounds((ours, theirs), [*work, partial(site.come_in, count=10 * megabytes)])
    for _ in range(rounds):
        run.note(site.held(10 * megabytes), Barnabas.name)
        run.note(checks.measure(), Barnabas.name)


def _start_and_rest(system: System, site: security.Site) -> Figures:
    """Measure the start of a broker, its memory then, and after clients of each kind."""
    start_up(system)  # not counted: the first start reads files that are not cached yet
    figures = {"start": start_up(system)["seconds"]}
    with running(system):
        figures["memory"] = figures["memory in use"] = idle(system)["resident_mb"]
        if site.knows(system):
            security.add_user(system)
            site.come_in(system, security.COMERS * security.THREADS, tokens=False)
            figures["memory in use"] = idle(system)["resident_mb"]
        return figures


PARTS = {
    "start": measure_start,
    "requests": measure_requests,
    "general": measure_general,
    PROFILED: measure_profiled,
    "processes": measure_processes,
    "throughput": measure_throughput,
    "streams": measure_streams,
    "transactions": measure_transactions,
    "soon": measure_soon,
    "cluster": measure_cluster,
    "registering": measure_registering,
    "pipeline": spark_pipeline.measure,
    "security": measure_security,
    "groups": measure_groups,
}


def medians(found: dict[str, dict[str, list[Figures]]]) -> dict[str, Round]:
    """Return the median of each figure's rounds."""
    return {
        name: {
            system: {key: median(each[key] for each in runs) for key in runs[0]}
            for system, runs in by_system.items()
        }
        for name, by_system in found.items()
    }


def machine() -> dict[str, str]:
    """Return a description of the machine."""
    # How the interpreter was built makes it slow, or may.
    built = {True: "built with", False: "built without", None: "which may be built without"}
    python = f"{platform.python_version()} {built[is_profile_guided()]}"
    cpus = Path("/proc/cpuinfo").read_text().split("model name\t: ")[1].split("\n")[0]
    missing = left_out()
    if reason := floors.why_not_in_c():
        missing[floors.IN_C] = reason
    return {
        "cpu": f"{os.cpu_count()} x {cpus}",
        "system": f"{platform.system()} {platform.release()}",
        "python": f"{python} profile-guided optimization",
        "kafka": jars.version(),
        "spark": spark_pipeline.SPARK,
        "left_out": "; ".join(f"{name}: {reason}" for name, reason in missing.items()),
        "load_before": f"{os.getloadavg()[0]:.1f}",
        "date": time.strftime("%Y-%m-%d"),
    }


def measured(part: str, sizes: Sizes, before: Path | None) -> dict[str, Any]:
    """Measure one part; return its results."""
    where = machine()
    with tempfile.TemporaryDirectory(prefix="beside-kafka-") as directory:
        run = Run(Path(directory), sizes, before)
        PARTS[part](run)
    return {
        "machine": where,
        "rounds": sizes.rounds,
        "megabytes": sizes.megabytes,
        "medians": medians(run.found),
        "runs": run.found,
    }


def options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--part", choices=PARTS, action="append", help=f"default: all but {PROFILED}"
    )
    for name, default in Sizes()._asdict().items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, help=f"default: {default}")
    parser.add_argument("--before", type=Path, metavar="DIRECTORY", help="another checkout")
    smoke = "tiny sizes; print the page on the standard output and write nothing"
    parser.add_argument("--smoke", action="store_true", help=smoke)
    only = "write the page from benchmarks/results.json, without measuring"
    parser.add_argument("--report-only", action="store_true", help=only)
    return parser.parse_args()


def main() -> None:
    args = options()
    given = {name: value for name in Sizes._fields if (value := getattr(args, name)) is not None}
    sizes = (SMOKE if args.smoke else Sizes())._replace(**given)
    before = None if args.before is None else args.before.resolve()
    known = {} if args.smoke or not RESULTS.exists() else json.loads(RESULTS.read_text())
    parts = args.part or [part for part in PARTS if part != PROFILED]
    for part in () if args.report_only else parts:
        known[part] = measured(part, sizes, before)
        if not args.smoke:
            RESULTS.write_text(json.dumps(known, indent=1) + "\n")
    tables = report.tables(known, HERE / "notes.md")
    if args.smoke:
        sys.stdout.write(tables)
    else:
        PAGE.write_text(report.page(known))
        TABLES.write_text(tables)
        AIMS.write_text(report.aims_page(known))


if __name__ == "__main__":
    main()
