"""CPU time of our client beside three others: `python -m benchmarks.clients`.

Each client writes records to one partition and reads them, in a process of its own, in turns with
the others, on one broker of ours. The figures are the client's.

    python -m benchmarks.clients                     print the medians of 5 rounds
    python -m benchmarks.clients --write             write them into docs/PERFORMANCE.md, too
    python -m benchmarks.clients --before DIRECTORY  measure the client of another checkout, too
"""

import argparse
import asyncio
import json
import tempfile
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Final

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from benchmarks import client_load, raw, report
from benchmarks.beside_kafka import PAGE, RESULTS, machine, medians
from benchmarks.measures import Figures, driven
from benchmarks.systems import BEFORE, OURS, Barnabas
from tests.support.brokers.process import ROOT

SIZES: Final = (100, 1000)
DIRECTIONS: Final = ("produce", "consume")
_PARTITIONS: Final = 2

Runs = dict[str, dict[str, list[Figures]]]
"""The figures of all rounds by the name of the measurement and the client."""


def run(servers: str, rounds: int, count: int, before: Path | None = None) -> Runs:
    """Measure every client in each round; each round begins with another client."""
    checkouts = dict.fromkeys(client_load.LOADS, ROOT)
    if before is not None:
        checkouts[BEFORE] = before
    runs: Runs = {name: {each: [] for each in checkouts} for name in measurements()}
    for number in range(rounds):
        first = number % len(checkouts)
        order = [*checkouts][first:] + [*checkouts][:first]
        for size in SIZES:
            topics = {name: f"records-{number}-{size}-{at}" for at, name in enumerate(order)}
            asyncio.run(_create(servers, topics.values()))
            for direction in DIRECTIONS:
                for name in order:
                    # All read the same batches, those of our producer.
                    topic = topics[name if direction == "produce" else OURS]
                    library, root = OURS if name == BEFORE else name, checkouts[name]
                    load = (library, direction, servers, topic, count, size)
                    found = driven("client_load.py", *load, root=root)
                    runs[measurement(direction, size)][name].append(found)
            asyncio.run(_delete(servers, topics.values()))
    return runs


def measurement(direction: str, size: int) -> str:
    return f"{direction} {size:,} B"


def measurements() -> list[str]:
    return [measurement(direction, size) for direction in DIRECTIONS for size in SIZES]


async def _create(servers: str, topics: Iterable[str]) -> None:
    async with Cluster(servers) as cluster:
        for topic in topics:
            await Admin(cluster).create_topic(topic, partitions=_PARTITIONS)


async def _delete(servers: str, topics: Iterable[str]) -> None:
    async with Cluster(servers) as cluster:
        for topic in topics:
            await Admin(cluster).delete_topic(topic)


def write(runs: Runs, rounds: int, records: int) -> None:
    """Put the figures into the results, and into the page that is made from them."""
    others = [name for name in client_load.LOADS if name != OURS]
    results = json.loads(RESULTS.read_text())
    results["clients"] = {
        "machine": machine() | {"clients": ", ".join(f"{each} {version(each)}" for each in others)},
        "rounds": rounds,
        "records": records,
        "medians": medians(runs),
        "runs": runs,
    }
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    PAGE.write_text(report.page(results))


def lines(runs: Runs) -> Iterator[str]:
    """Yield a line for each measurement and client, with the medians."""
    for name, by_client in runs.items():
        ours = median(each["cpu_us"] for each in by_client[OURS])
        for client, rounds in by_client.items():
            cpu = [each["cpu_us"] for each in rounds]
            rate = median(each["per_s"] for each in rounds)
            yield (
                f"{name:16} {client:16} {median(cpu):7.2f} us ({min(cpu):.2f} to {max(cpu):.2f})"
                f" {rate:10,.0f}/s   ours is {ours / median(cpu):.2f} of it"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    parser.add_argument("--before", type=Path, help="another checkout to compare with")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, Barnabas(Path(directory)) as broker:
        port = broker.port
        raw.connect(port).close()
        runs = run(f"127.0.0.1:{port}", args.rounds, args.records, args.before)
    print("\n".join(lines(runs)))
    if args.write:
        write(runs, args.rounds, args.records)


if __name__ == "__main__":
    main()
