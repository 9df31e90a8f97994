"""Cells one after the other on one cluster, and what came of them."""

import shutil
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from barnabas.verify.disk.compare import compare
from tests.chaos import clock
from tests.chaos.cells import Cell
from tests.chaos.cluster import HEALED_WITHIN_S, ChaosCluster
from tests.chaos.evidence import Evidence
from tests.chaos.load import PROBE, Load, delete_topics

CALM_S = 3.0
"""Seconds for which the cluster is watched before a fault: the gaps then have no fault as cause."""
WRITABLE_WITHIN_S = 30.0
ENOUGH_WITHIN_S = 600.0

Figures = dict[str, Any]


def why_not(cell: Cell, cluster: ChaosCluster) -> str | None:
    """Return what this machine lacks for a cell, None if it lacks nothing."""
    missing = {
        "network": cluster.network is None,
        "line": cluster.network is None or shutil.which("tc") is None,
        "disk": not all(map(cluster.has_disk, cluster.brokers)),
        "clock": not clock.installed(),
        "strace": shutil.which("strace") is None,
    }
    return f"no {cell.needs} for it on this machine" if missing.get(cell.needs) else None


def strike(cell: Cell, cluster: ChaosCluster, load: Load, calm_s: float = CALM_S) -> Figures:
    """One fault on a cluster that is whole and under load, until it is whole again.

    Raises AssertionError where the fault did not strike, or the cluster does not come back.
    """
    watched = time.monotonic()
    load.await_acks(WRITABLE_WITHIN_S)
    time.sleep(calm_s)
    told = Evidence(cluster.leaders(PROBE), cluster.controller())
    began = time.monotonic()
    calm = max(load.longest_gaps(watched, began).values())
    with cell.fault(cluster, told):
        load.await_acks(WRITABLE_WITHIN_S)
    healed = time.monotonic()
    full_after = cluster.wait_until_full(HEALED_WITHIN_S)
    load.await_acks(WRITABLE_WITHIN_S)
    gaps = load.longest_gaps(began, time.monotonic())
    errors = sum(1 for ack in load.acks() if ack.error and ack.t > began)
    cluster.prefer_leaders()
    assert told.seen, "nothing shows that the fault struck"
    return {
        "cell": cell.name,
        "struck": sorted(told.struck),
        "controller": told.controller,
        "seen": told.seen,
        "faults": told.faults,
        "seconds": round(healed - began, 2),
        "full_after_s": round(full_after, 2),
        "client_errors": errors,
        **_measured(cell, told, gaps, calm, errors),
    }


def _measured(
    cell: Cell, told: Evidence, gaps: dict[int, float], calm: float, errors: int
) -> Figures:
    """Return the gaps beside their bars; "missed" says which were."""
    hit = {
        partition
        for partition, leader in told.leaders.items()
        if leader in told.struck or told.controller in told.struck
    }
    struck = max((gaps[each] for each in hit), default=0.0)
    others = max((gap for each, gap in gaps.items() if each not in hit), default=0.0)
    missed = [f"{errors} errors after all retries"] if errors else []
    if cell.bar is not None:
        if struck > cell.bar.struck + calm:
            missed.append(f"{struck:.1f} s without a write, {cell.bar.struck:g} allowed")
        if others > cell.bar.others + calm:
            missed.append(f"{others:.1f} s without a write elsewhere, {cell.bar.others:g} allowed")
    return {
        "gap_s": round(struck, 2),
        "gap_elsewhere_s": round(others, 2),
        "gap_calm_s": round(calm, 2),
        "missed": missed,
    }


def under_load(
    cells: Sequence[Cell],
    cluster: ChaosCluster,
    directory: Path,
    seed: int,
    *,
    at_least: int = 0,
    calm_s: float = CALM_S,
) -> Figures:
    """Cells under one load, which ends after so many transactions and is judged then."""
    delete_topics(cluster, "verify-")
    with Load(cluster, cells[0].workload, directory, seed, churn=cells[0].churn) as load:
        rows = [strike(cell, cluster, load, calm_s) for cell in cells]
        cluster.until(lambda: load.ended() >= at_least, ENOUGH_WITHIN_S, lambda: str(load.ended()))
        verdict = load.judge()
    return {
        "cells": rows,
        "workload": cells[0].workload,
        "verdict": verdict["verdict"],
        "figures": verdict["figures"],
        "problems": verdict["problems"],
        "violations": sum(each["count"] for each in verdict["checks"]),
        "anomalies": [
            f"{anomaly['check']} {anomaly['name']}: {anomaly['text']}"
            for each in verdict["checks"]
            for anomaly in each["anomalies"][:5]
        ],
    }


def at_rest(cluster: ChaosCluster) -> Figures:
    """Stop all brokers; how their files compare (C14)."""
    for broker in cluster.brokers.values():
        broker.signal(signal.SIGTERM)
    codes = [broker.wait_until_ended() for broker in cluster.brokers.values()]
    assert not any(codes), f"brokers ended with {codes} after SIGTERM"
    compared = compare([cluster.logs_of(broker) for broker in cluster.brokers])
    return {
        "partitions": compared.partitions,
        "batches": compared.batches,
        "anomalies": [f"{found.name}: {found.text}" for found in compared.anomalies],
    }
