"""The fault matrix: what strikes, on which cluster, under which load, and what may follow."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import partial
from signal import SIGKILL, SIGTERM, Signals
from typing import Final, NamedTuple

from tests.chaos.cluster import (
    FLUSHING,
    LAG_S,
    LOSING_POWER,
    PLAIN,
    PROXIED,
    SESSION_S,
    ChaosCluster,
    Kind,
)
from tests.chaos.corruption import Damage, damaged, flipped, flipped_in_batch, torn, truncated
from tests.chaos.evidence import CONTROLLER, FOLLOWER, GROUPS, LEADER, ROLES, TRANSACTIONS, Evidence
from tests.chaos.network_faults import (
    bridge,
    cut_off,
    loss,
    minority,
    narrow,
    one_broker_from_another,
    one_way,
    resets,
    without_clients,
    without_zookeeper,
)
from tests.chaos.other_faults import (
    clock_jump,
    disk_full,
    expired,
    failing_fsync,
    held,
    late,
    slow_fsync,
    zookeeper_killed,
    zookeeper_paused,
)
from tests.chaos.process_faults import (
    all_killed,
    killed,
    killed_and_back,
    paused,
    rolled,
    terminated,
)
from tests.support.brokers.cluster import BROKER_IDS

Fault = Callable[[ChaosCluster, Evidence], AbstractContextManager[None]]
"""Strikes when it is entered, and returns when that has had its effect; heals when it is left."""


class Bar(NamedTuple):
    """Longest time without an acknowledged write, in s, beside what a calm cluster takes."""

    struck: float
    """For partitions led by a broker with the fault; for all, if that broker is the controller."""
    others: float


class Cell(NamedTuple):
    """One row of the matrix."""

    name: str
    fault: Fault
    workload: str = "queue"
    kind: Kind = PLAIN
    bar: Bar | None = None
    needs: str = ""
    """The facility that the machine must offer: "network", "line", "disk", "clock" or "strace";
    none if empty."""
    churn: bool = False
    """Whether replicas and leaders move meanwhile, and topics come and go."""


FAILOVER: Final = Bar(SESSION_S + 5, 1.0)
SILENT: Final = Bar(SESSION_S + 5, SESSION_S + 5)
"""A broker that closes no connection keeps others waiting until its session is over."""
STOPPED: Final = Bar(2.0, 2.0)
APART: Final = Bar(1.5 * LAG_S, 1.0)
"""A follower that does not come through to its leader alone is taken from the in-sync set then."""
UNMOVED: Final = Bar(1.0, 1.0)
"""No partition needs another leader."""
_OF_ROLE = {TRANSACTIONS: "money", GROUPS: "members", CONTROLLER: "hijack", FOLLOWER: "idempotent"}


def _workload(role: str) -> str:
    return _OF_ROLE.get(role, "queue")


def _processes() -> list[Cell]:
    cells = []
    for role in ROLES:
        load = _workload(role)
        cells.append(Cell(f"kill -9 of the {role}", partial(killed, role=role), load, bar=FAILOVER))
    for role in ROLES:
        stop = partial(terminated, role=role)
        cells.append(Cell(f"SIGTERM of the {role}", stop, _workload(role), bar=STOPPED))
    return [
        *cells,
        Cell("kill -9 of the leader, back at once", partial(killed_and_back, role=LEADER)),
        Cell("all killed at once", all_killed, "pipeline"),
        Cell("rolling restart", rolled, "pipeline", bar=STOPPED),
        Cell("leader paused 1 s", partial(paused, role=LEADER, seconds=1.0), "pipeline"),
        Cell("leader paused half the session", partial(paused, role=LEADER, seconds=SESSION_S / 2)),
        Cell(
            "leader paused past the session",
            partial(paused, role=LEADER, seconds=2 * SESSION_S),
            bar=SILENT,
        ),
        Cell("leader paused 60 s", partial(paused, role=LEADER, seconds=60.0), bar=SILENT),
        Cell(
            "controller paused past the session",
            partial(paused, role=CONTROLLER, seconds=2 * SESSION_S),
            "hijack",
            bar=SILENT,
        ),
    ]


def _networks() -> list[Cell]:
    cells = [
        Cell("leader cut off from all", partial(cut_off, role=LEADER), "pipeline", bar=SILENT),
        Cell("controller cut off from all", partial(cut_off, role=CONTROLLER), bar=SILENT),
        Cell("leader in the minority", partial(minority, role=LEADER), bar=SILENT),
        Cell("controller in the minority", partial(minority, role=CONTROLLER), bar=SILENT),
        Cell("leader receives nothing", partial(one_way, role=LEADER, chain="INPUT"), bar=SILENT),
        Cell("leader is not heard", partial(one_way, role=LEADER, chain="OUTPUT"), bar=SILENT),
        Cell("two brokers cut from each other", bridge, "money", bar=APART),
        Cell("one broker does not hear another", one_broker_from_another, bar=APART),
        Cell(
            "leader cut off from ZooKeeper", partial(without_zookeeper, role=LEADER), bar=FAILOVER
        ),
        Cell(
            "controller cut off from ZooKeeper",
            partial(without_zookeeper, role=CONTROLLER),
            bar=FAILOVER,
        ),
        Cell("leader cut off from clients", partial(without_clients, role=LEADER), "idempotent"),
        Cell("5 % of packets lost", partial(loss, share=0.05, nodes=BROKER_IDS, chain="INPUT")),
        Cell("20 % of packets lost", partial(loss, share=0.2, nodes=BROKER_IDS, chain="INPUT")),
        Cell(
            "20 % of what one broker says is lost",
            partial(loss, share=0.2, nodes=BROKER_IDS[:1], chain="OUTPUT"),
        ),
        Cell("connections reset each second", partial(resets, role=LEADER, times=8), "idempotent"),
    ]
    line = partial(narrow, role=LEADER, rate="1mbit")
    return [
        *(cell._replace(needs="network") for cell in cells),
        Cell("leader on a line of 1 Mbit/s", line, needs="line"),
    ]


def _moving() -> list[Cell]:
    rows = [
        ("kill -9 of the leader", partial(killed, role=LEADER), "queue"),
        ("kill -9 of the controller", partial(killed, role=CONTROLLER), "pipeline"),
        ("rolling restart", rolled, "money"),
    ]
    return [
        Cell(f"replicas move: {name}", fault, workload, churn=True)
        for name, fault, workload in rows
    ]


def _zookeeper() -> list[Cell]:
    return [
        Cell("session of the leader expired", partial(expired, role=LEADER)),
        Cell("session of the controller expired", partial(expired, role=CONTROLLER), "members"),
        Cell("ZooKeeper killed, back at once", partial(zookeeper_killed, away_s=0), bar=UNMOVED),
        Cell("ZooKeeper away 30 s", partial(zookeeper_killed, away_s=30), "pipeline", bar=UNMOVED),
        Cell(
            "ZooKeeper paused for two sessions",
            partial(zookeeper_paused, seconds=2 * SESSION_S),
            bar=UNMOVED,
        ),
    ]


def _held() -> list[Cell]:
    rows = [
        ("EndTxn", 26, False, 5, "queue"),
        ("AddPartitionsToTxn", 24, False, 5, "money"),
        ("Produce", 0, False, 50, "queue"),
        ("TxnOffsetCommit", 28, False, 5, "pipeline"),
        ("WriteTxnMarkers", 27, True, 10, "pipeline"),
        ("Fetch of a follower", 1, True, 200, "queue"),
    ]
    cells = [
        Cell(f"held: {name}", partial(held, api=api, between=between, every=every), load, PROXIED)
        for name, api, between, every, load in rows
    ]
    changes = partial(held, api=56, between=True, every=1, after_kill=True)
    travel = partial(late, least=0.05, most=0.15)
    return [
        *cells,
        Cell("held: AlterPartition", changes, kind=PROXIED),
        Cell("requests late by 0.1 s, more or less", travel, "pipeline", PROXIED),
    ]


def _clocks() -> list[Cell]:
    rows = [
        ("one clock 1 h ahead", (1,), (3600.0,)),
        ("one clock 1 h behind", (1,), (-3600.0,)),
        ("all clocks 1 h ahead", BROKER_IDS, (3600.0,)),
        ("clocks to and fro by 60 s", BROKER_IDS, (60.0, -60.0, 60.0, -60.0)),
    ]
    return [
        Cell(name, _jump(nodes, jumps), needs="clock", bar=UNMOVED) for name, nodes, jumps in rows
    ]


def _jump(nodes: tuple[int, ...], jumps: tuple[float, ...]) -> Fault:
    return lambda cluster, told: clock_jump(cluster, told, nodes, *jumps)


def _damage(pattern: str, damage: Damage, after: Signals) -> Fault:
    return partial(damaged, role=LEADER, pattern=pattern, damage=damage, after=after)


def _disks() -> list[Cell]:
    rows = [
        ("a bit of each log", "*/*.log", flipped_in_batch, SIGKILL),
        ("logs cut short", "*/*.log", truncated, SIGKILL),
        ("logs with a torn end", "*/*.log", torn, SIGKILL),
        ("logs cut short that were closed", "*/*.log", truncated, SIGTERM),
        ("a bit of each index", "*/*.index", flipped, SIGTERM),
        ("a bit of each time index", "*/*.timeindex", flipped, SIGTERM),
        ("a bit of each transaction index", "*/*.txnindex", flipped, SIGKILL),
        ("a bit of each producer snapshot", "*/*.snapshot", flipped, SIGTERM),
        ("a bit of each leader epoch file", "*/leader-epoch-checkpoint", flipped, SIGTERM),
        ("a bit of each checkpoint", "*-checkpoint", flipped, SIGTERM),
    ]
    return [
        Cell("disk full", partial(disk_full, role=LEADER), bar=FAILOVER, needs="disk"),
        Cell("fsync fails", partial(failing_fsync, role=LEADER), needs="strace"),
        Cell("fsync takes 0.3 s", partial(slow_fsync, role=LEADER, seconds=0.3), needs="strace"),
        *(
            Cell(f"damaged: {name}", _damage(pattern, damage, after))
            for name, pattern, damage, after in rows
        ),
        Cell("power of the leader", partial(killed, role=LEADER), "pipeline", LOSING_POWER),
        Cell("power of the controller", partial(killed, role=CONTROLLER), kind=LOSING_POWER),
        Cell("power of one, flushed", partial(killed, role=LEADER), kind=FLUSHING),
        Cell("power of all, flushed", all_killed, "pipeline", FLUSHING),
    ]


CELLS: Final = (
    *_processes(),
    *_networks(),
    *_moving(),
    *_zookeeper(),
    *_clocks(),
    *_held(),
    *_disks(),
)

QUICK: Final = (
    "kill -9 of the leader",
    "SIGTERM of the controller",
    "leader paused 1 s",
    "session of the controller expired",
    "ZooKeeper killed, back at once",
    "damaged: a bit of each log",
    "kill -9 of the controller",
    "rolling restart",
    "all killed at once",
)
"""The cells of every test run, one after the other on one cluster."""
QUICK_NETWORK: Final = (
    "leader in the minority",
    "controller cut off from ZooKeeper",
    "20 % of what one broker says is lost",
)


def named(names: Iterable[str]) -> list[Cell]:
    """Cells in the order of their names here."""
    by_name = {cell.name: cell for cell in CELLS}
    return [by_name[name] for name in names]
