"""Barnabas and its peers measured in one run: `python -m benchmarks.beside_kafka`.

The peers are Apache Kafka and kfake, the broker of franz-go in Go. Beside them stands a floor in C,
and with `--before DIRECTORY` Barnabas as it was in another checkout. All get the same load in
turns, on the same machine, after the same warm-up: whole rounds that are not counted. The CPU time
of a broker is the kernel's accounting of its process and its children. Writes
`benchmarks/results.json` and, from it, `docs/PERFORMANCE.md`, `benchmarks/RESULTS.md` and
`benchmarks/AIMS.md`.

    python -m benchmarks.beside_kafka                       all parts
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
from argparse import Namespace
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from barnabas.broker.observability.interpreter import is_profile_guided
from benchmarks import (
    checks,
    clients,
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
from benchmarks.measures import HERE, SETTINGS, SIZES, Figures, Round, resident_bytes, settled
from benchmarks.systems import (
    BEFORE,
    GENERAL,
    GENERAL_BEFORE,
    SOON,
    ApacheKafka,
    Barnabas,
    BarnabasTrio,
    KafkaTrio,
    Kfake,
    Load,
    Processes,
    System,
    Trio,
    left_out,
)
from tests.support.kafka import jars

RESULTS = HERE / "results.json"
PAGE = HERE.parent / "docs" / "PERFORMANCE.md"
TABLES = HERE / "RESULTS.md"
AIMS = HERE / "AIMS.md"


class Run:
    """One part of a run, and every figure of every counted round by measurement and system."""

    def __init__(self, directory: Path, sizes: Namespace, before: Path | None) -> None:
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

    def rounds(self, systems: Iterable[Any], work: Sequence[Load], warm_ups: int = 1) -> None:
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

    def soon_after_start(self, little: Load, work: Load) -> None:
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
            raw.accepted(client, raw.produce_request("first", records=1, record_bytes=100))
            return {"seconds": time.perf_counter() - began}
    finally:
        system.stop()


def idle(system: System) -> Figures:
    """Measure the memory of a broker that is idle, of each one of several."""
    settled(*system.pids)
    return {"resident_mb": sum(map(resident_bytes, system.pids)) / len(system.pids) / 1e6}


def start_and_rest(system: System) -> Round:
    """Measure the start of a broker, and its memory after another one."""
    found = {"start": start_up(system)}
    with running(system):
        return found | {"idle": idle(system)}


def measure_start(run: Run) -> None:
    """Measure start and idle memory."""
    for _ in range(run.sizes.rounds):
        for system in run.brokers():
            run.note(start_and_rest(system), system.name)


def measure_requests(run: Run) -> None:
    """Measure the CPU time of single requests, and of transactions of one record."""
    sizes, brokers = run.sizes, run.brokers()
    with running(*brokers):
        everyone = [*brokers] if floors.why_not() else [*brokers, floors.Floor(run.directory)]
        work = requests.loads(sizes.requests, sizes.transactions)
        run.rounds(everyone, work, sizes.warm_ups)
        run.rounds(brokers, requests.coordinated_loads(sizes.requests), sizes.warm_ups)


def measure_general(run: Run) -> None:
    """Measure Produce with every short way switched off, beside an earlier checkout."""
    general = partial(Barnabas, run.directory, SETTINGS["brokers"]["general"])
    systems = [general(name=GENERAL)]
    if run.before is not None:
        systems.append(general(root=run.before, name=GENERAL_BEFORE))
    work = requests.loads(run.sizes.requests, 0)[: len(requests.PRODUCED)]
    with running(*systems):
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


def measure_whole_clients(
    run: Run, *, work: Callable[[Namespace], Sequence[Load]], warm_ups: int
) -> None:
    """Measure loads of whole clients on all brokers."""
    with running(*(systems := run.brokers())):
        run.rounds(systems, work(run.sizes), min(run.sizes.warm_ups, warm_ups))


def measure_soon(run: Run) -> None:
    """Measure brokers that have just started, after 20 MB or 50 transactions of each producer."""
    sizes, batch = run.sizes, whole_clients.BATCH_BYTES[0]
    for size in whole_clients.RECORD_BYTES:
        load = partial(whole_clients.throughput, record_bytes=size, batch_bytes=batch)
        little = partial(load, megabytes=sizes.soon_megabytes)
        run.soon_after_start(little, partial(load, megabytes=sizes.megabytes))
    for producers in (1, 8):
        each = partial(whole_clients.one_record_each, producers=producers)
        little = partial(each, count=50 * producers)
        run.soon_after_start(little, partial(each, count=sizes.transactions // 6 * producers))


def measure_cluster(run: Run) -> None:
    """Measure clusters of three brokers with three replicas of every partition."""
    systems: list[Trio] = [BarnabasTrio(run.directory), KafkaTrio(run.directory)]
    if run.before is not None:
        systems.append(BarnabasTrio(run.directory, root=run.before))
    with running(*systems):
        for each in systems:
            run.note({three_brokers.AT_REST: idle(each)}, each.name)
        run.rounds(systems, three_brokers.loads(run.sizes.megabytes))


def measure_groups(run: Run) -> None:
    """Measure consumer groups of KIP-848 on Barnabas and Kafka, and many on two processes too."""
    sizes, two = run.sizes, run.two()
    systems = [*two, Processes(run.directory, 2)]
    one, many, paced = consumer_groups.shapes(sizes.members, sizes.groups)
    beat = partial(consumer_groups.unchanged, shape=one, requested=sizes.requests)
    join, join_many, come = (
        partial(consumer_groups.assign, shape=each) for each in (one, many, paced)
    )
    with running(*systems):
        for each in systems:
            consumer_groups.prepare(each, [one, many])
        run.rounds(two, [beat], sizes.warm_ups)
        run.rounds(two, [join], min(sizes.warm_ups, 2))
        run.rounds(systems, [join_many], min(sizes.warm_ups, 2))
        run.rounds(two, [come], warm_ups=0)


def measure_security(run: Run) -> None:
    """Measure TLS and SASL: data, new connections, logins, and what they add to a broker."""
    rounds, megabytes = run.sizes.rounds, run.sizes.megabytes
    site, count = security.Site(run.directory), 10 * megabytes
    for _ in range(rounds):
        for bare, secured in (
            (Barnabas(run.directory), site.barnabas(tokens=False)),
            (ApacheKafka(run.directory), site.kafka()),
        ):
            for each in (bare, secured):
                start_up(each)  # not counted: it reads files that are not cached yet
            without, with_it = map(start_and_rest, (bare, secured))
            for name, kept in (("start", "start"), ("idle", "memory")):
                ((one,), (other,)) = (each[name].values() for each in (without, with_it))
                run.note({f"{kept} with security": {"more": other - one, "all": other}}, bare.name)

    def over_tls(system: System, batch_bytes: int) -> Round:
        return whole_clients.throughput(system, 1024, batch_bytes, megabytes, site.tls(system))

    with site.barnabas() as ours, site.kafka() as theirs:
        for each in (ours, theirs):
            security.add_user(each)
        work = [partial(over_tls, batch_bytes=size) for size in whole_clients.BATCH_BYTES]
        work += [partial(site.come_in, count=count, kind=kind) for kind in security.KINDS]
        run.rounds((ours, theirs), work)
    for _ in range(rounds):
        run.note(site.held(count), Barnabas.name)
        run.note(checks.measure(), Barnabas.name)


def measure_clients(run: Run) -> None:
    """Measure client libraries for Python, on a broker of ours."""
    with running(broker := Barnabas(run.directory)):
        work = clients.loads(broker, run.sizes.records)
        run.rounds(clients.libraries(run.before), work, warm_ups=0)


PARTS = {
    "start": measure_start,
    "requests": measure_requests,
    "general": measure_general,
    "processes": measure_processes,
    "throughput": partial(measure_whole_clients, work=whole_clients.throughput_loads, warm_ups=1),
    "streams": partial(measure_whole_clients, work=whole_clients.stream_loads, warm_ups=1),
    "transactions": partial(
        measure_whole_clients, work=whole_clients.transaction_loads, warm_ups=2
    ),
    "soon": measure_soon,
    "cluster": measure_cluster,
    "pipeline": spark_pipeline.measure,
    "security": measure_security,
    "groups": measure_groups,
    "clients": measure_clients,
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
    if reason := floors.why_not():
        missing[floors.IN_C] = reason
    return {
        "cpu": f"{os.cpu_count()} x {cpus}",
        "system": f"{platform.system()} {platform.release()}",
        "python": f"{python} profile-guided optimization",
        "kafka": jars.version(),
        "spark": spark_pipeline.SPARK,
        "clients": clients.versions(),
        "left_out": "; ".join(f"{name}: {reason}" for name, reason in missing.items()),
        "load_before": f"{os.getloadavg()[0]:.1f}",
        "date": time.strftime("%Y-%m-%d"),
    }


def measured(part: str, sizes: Namespace, before: Path | None) -> dict[str, Any]:
    """Measure one part; return its results."""
    where = machine()
    with tempfile.TemporaryDirectory(prefix="beside-kafka-") as directory:
        run = Run(Path(directory), sizes, before)
        PARTS[part](run)
    return {
        "machine": where,
        "rounds": sizes.rounds,
        "megabytes": sizes.megabytes,
        "records": sizes.records,
        "medians": medians(run.found),
        "runs": run.found,
    }


def options() -> Namespace:
    """Return the options of the command line, with all sizes."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("--part", choices=PARTS, action="append", help="default: all")
    for name, size in SIZES["beside_kafka"].items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, help=f"default: {size}")
    load = "only the loads of `pipeline` that begin so; write nothing"
    parser.add_argument("--load", nargs="+", metavar="NAME", help=load)
    parser.add_argument("--before", type=Path, metavar="DIRECTORY", help="another checkout")
    smoke = "tiny sizes; print the page on the standard output and write nothing"
    parser.add_argument("--smoke", action="store_true", help=smoke)
    only = "write the page from benchmarks/results.json, without measuring"
    parser.add_argument("--report-only", action="store_true", help=only)
    given = vars(parser.parse_args())
    fixed = {"part": [*PARTS], "load": None, "before": None, "smoke": False, "report_only": False}
    sizes = SIZES["beside_kafka"] | (SIZES["smoke"] if "smoke" in given else {})
    return Namespace(**fixed | sizes | given)


def main() -> None:
    args = options()
    before = None if args.before is None else args.before.resolve()
    is_kept = not args.smoke and args.load is None
    known = json.loads(RESULTS.read_text()) if is_kept and RESULTS.exists() else {}
    for part in () if args.report_only else args.part:
        known[part] = measured(part, args, before)
        if is_kept:
            RESULTS.write_text(json.dumps(known, indent=1) + "\n")
    tables = report.tables(known, HERE / "notes.md")
    if is_kept:
        PAGE.write_text(report.page(known))
        TABLES.write_text(tables)
        AIMS.write_text(report.aims_page(known))
    else:
        sys.stdout.write(tables)


if __name__ == "__main__":
    main()
