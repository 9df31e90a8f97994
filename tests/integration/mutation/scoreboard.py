"""How many faults the checker finds: `python -m tests.integration.mutation.scoreboard`.

    ... [--runs N] [--clean N] [MUTANT ...]

Each mutant is looked for in up to N runs (30), each with a seed of its own, until it is found.
`--clean` runs whole brokers instead, N of each workload and half of them with deaths; what it finds
then are false alarms. Prints the table that docs/verify.md shows.
"""

import argparse
import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from barnabas.verify.options import NEWER, OLDER
from tests.integration.adversary.mutants import MUTANTS
from tests.integration.mutation.hunt import HUNTS, Hunt, Result, hunt

WHOLE = {
    **{
        name: (Hunt(workload=name), "")
        for name in ("queue", "pipeline", "money", "idempotent", "compacted", "hijack", "members")
    },
    "queue, delayed ends": (Hunt(protocol=OLDER, delayed_ends=True), ""),
    "queue, last epochs": (Hunt(protocol=NEWER), "high_epochs"),
    "hijack, refused fencing": (Hunt(workload="hijack"), "refused_fencing"),
    "hijack, ids that expire": (HUNTS["revived_ids"], ""),
    "queue, slow markers": (Hunt(protocol=NEWER), "slow_markers"),
}
"""Brokers without a fault, some with a lever that makes rare things frequent."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--clean", type=int, default=0)
    parser.add_argument("mutants", nargs="*", default=list(HUNTS))
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="barnabas-mutants-") as directory:
        if asked.clean:
            for name in WHOLE:
                acquit(name, asked.clean, Path(directory))
            return
        for name in asked.mutants:
            convict(name, asked.runs, Path(directory))


def convict(name: str, runs: int, directory: Path) -> None:
    began = time.monotonic()
    for number in range(1, runs + 1):
        result = once(HUNTS[name], directory, number, name if name in MUTANTS else "")
        if not result.verdict.is_clean:
            seconds = time.monotonic() - began
            names = ", ".join(sorted(result.names))
            print(
                f"| {name} | {HUNTS[name].workload} | run {number}, {seconds:.0f} s | {names} |",
                flush=True,
            )
            return
    print(f"| {name} | {HUNTS[name].workload} | not in {runs} runs | |", flush=True)


def acquit(name: str, runs: int, directory: Path) -> None:
    whole, lever = WHOLE[name]
    alarms: list[str] = []
    transactions = deaths = void = 0
    for number in range(runs):
        how = replace(whole, deaths=2 * (number % 2))
        result = once(how, directory, number, lever)
        transactions += result.verdict.figures["transactions"]
        deaths += how.deaths
        void += result.verdict.is_void
        alarms += [f"seed {number}: {each}" for each in result.verdict.anomalies[:5]]
        alarms += [f"seed {number}: {each}" for each in result.problems if "end" in each]
    print(f"| {name} | {runs} | {deaths} | {transactions} | {void} | {len(alarms)} |", flush=True)
    for alarm in alarms:
        print(f"  {alarm}", flush=True)


def once(how: Hunt, directory: Path, seed: int, mutant: str) -> Result:
    place = directory / "broker"
    try:
        return hunt(how, place, seed, mutant)
    finally:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
