"""Count the faults that the checker finds: `python -m tests.integration.mutation.scoreboard`.

    ... [--cluster] [--runs N] [--clean N] [MUTANT ...]

Each mutant is looked for in up to N runs (30), each with its own seed, until it is found. `--clean`
runs correct brokers instead, N of each workload, and half of them with crashes; their anomalies are
false alarms. With `--cluster` there are three brokers. Prints the tables of docs/verify.md.
"""

import argparse
import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from barnabas.verify.options import NEWER, OLDER
from tests.integration.adversary.mutants import MUTANTS
from tests.integration.mutation.cluster_hunt import (
    CLUSTER_HUNTS,
    ClusterHunt,
    cut,
    hunt_in_cluster,
    kill,
    lag,
    pause,
)
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
"""Brokers without a fault, some with a lever that makes rare cases frequent."""
WHOLE_CLUSTERS = {
    **{
        name: ClusterHunt(workload=name, duration=6, injections=())
        for name in ("queue", "pipeline", "money", "idempotent", "compacted", "hijack", "members")
    },
    **{
        f"{name}, leaders move": ClusterHunt(workload=name, duration=6, injections=(), churn=True)
        for name in ("queue", "pipeline", "idempotent")
    },
    "queue, one replica suffices, cut off": replace(CLUSTER_HUNTS["shrinks_alone"], duration=8),
    "queue, killed": ClusterHunt(injections=(kill, lag)),
    "pipeline, killed": ClusterHunt(workload="pipeline", injections=(kill, lag)),
    "idempotent, killed": ClusterHunt(workload="idempotent", injections=(kill, lag)),
    "money, killed, leaders move": ClusterHunt(
        workload="money", injections=(kill, lag), churn=True
    ),
    "queue, paused and cut off": ClusterHunt(injections=(pause, cut), duration=12),
    "queue, blacked out": CLUSTER_HUNTS["trusts_what_lost_power"],
    "idempotent, deposed": CLUSTER_HUNTS["cuts_to_its_high_watermark"],
    "idempotent, deposed, two replicas": CLUSTER_HUNTS["counts_who_diverges"],
    "queue, told late": CLUSTER_HUNTS["obeys_anybody"],
}
"""Three brokers without a fault; into some of them no faults are injected."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--clean", type=int, default=0)
    parser.add_argument("--cluster", action="store_true")
    parser.add_argument("names", nargs="*")
    asked = parser.parse_args()
    hunts: dict[str, Hunt] | dict[str, ClusterHunt] = CLUSTER_HUNTS if asked.cluster else HUNTS
    whole = WHOLE_CLUSTERS if asked.cluster else WHOLE
    with tempfile.TemporaryDirectory(prefix="barnabas-mutants-") as directory:
        if asked.clean:
            for name in asked.names or whole:
                count_false_alarms(name, asked.clean, Path(directory), cluster=asked.cluster)
            return
        for name in asked.names or hunts:
            measure_mutant(name, hunts[name], asked.runs, Path(directory))


def measure_mutant(name: str, how: Hunt | ClusterHunt, runs: int, directory: Path) -> None:
    began = time.monotonic()
    patched = name in MUTANTS or isinstance(how, ClusterHunt)
    for number in range(1, runs + 1):
        result = once(how, directory, number, name if patched else "")
        if not result.verdict.is_clean:
            seconds = time.monotonic() - began
            names = ", ".join(sorted(result.names))
            print(
                f"| {name} | {how.workload} | run {number}, {seconds:.0f} s | {names} |",
                flush=True,
            )
            return
    print(f"| {name} | {how.workload} | not in {runs} runs | |", flush=True)


def count_false_alarms(name: str, runs: int, directory: Path, *, cluster: bool) -> None:
    alarms: list[str] = []
    transactions = faults = void = 0
    for number in range(runs):
        how: Hunt | ClusterHunt
        if cluster:
            how, lever = WHOLE_CLUSTERS[name], ""
        else:
            whole, lever = WHOLE[name]
            how = replace(whole, deaths=2 * (number % 2))
            faults += how.deaths
        result = once(how, directory, number, lever)
        faults += result.injections
        transactions += result.verdict.figures["transactions"]
        void += result.verdict.is_void
        alarms += [f"seed {number}: {each}" for each in result.verdict.anomalies[:5]]
        alarms += [f"seed {number}: {each}" for each in result.problems if "end" in each]
    print(f"| {name} | {runs} | {faults} | {transactions} | {void} | {len(alarms)} |", flush=True)
    for alarm in alarms:
        print(f"  {alarm}", flush=True)


def once(how: Hunt | ClusterHunt, directory: Path, seed: int, mutant: str) -> Result:
    place = directory / "broker"
    try:
        if isinstance(how, ClusterHunt):
            return hunt_in_cluster(how, place, seed, mutant)
        return hunt(how, place, seed, mutant)
    finally:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
