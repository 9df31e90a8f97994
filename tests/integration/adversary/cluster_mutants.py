"""Faults of a cluster, for the checker to find; see `mutants.py` for those of one broker.

Each is a patch that every broker of a cluster has, installed by `mutant_node.py` only.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from barnabas.broker.controller import active_controller, topic_admin
from barnabas.broker.controller.rules import preferred_leaders as preferred
from barnabas.broker.controller.rules import reassignment
from barnabas.broker.replication.isr_state import IsrState
from barnabas.broker.replication.leader.consumer_read import ConsumerRead
from barnabas.broker.replication.leader.isr_manager import IsrManager
from barnabas.broker.replication.partition import Partition
from barnabas.broker.transactions.marker_sender import MarkerSender
from barnabas.protocol.errors import ErrorCode
from barnabas.storage.log.log import Log
from barnabas.storage.origin import Origin
from barnabas.storage.producers.state import ProducerStateManager
from tests.integration.adversary.mutants import hasty_coordinator
from tests.support import cluster_mutants as simulated


def commits_alone() -> None:
    """The high watermark ignores the followers."""
    IsrState.maximal_isr_end = lambda _, leader_end: leader_end  # type: ignore[method-assign]


def counts_the_fastest() -> None:
    """The high watermark follows a majority, not the ISR."""

    def majority(state: IsrState, leader_end: int) -> int:
        ends = [leader_end, *(each.log_end for each in state.followers.values())]
        return sorted(ends)[len(ends) // 2]

    IsrState.maximal_isr_end = majority  # type: ignore[method-assign]


def shrinks_alone() -> None:
    """A leader shrinks the ISR without the controller (KAFKA-2729)."""
    propose = IsrManager._propose

    def decide(manager: IsrManager, partition: Partition, isr: tuple[int, ...]) -> None:
        if len(isr) < len(partition.isr):
            partition.isr_changed(isr, partition.partition_epoch)
        else:
            propose(manager, partition, isr)

    IsrManager._propose = decide  # type: ignore[method-assign]


def elects_anybody() -> None:
    """Any online replica is elected, in sync or not."""
    decide = active_controller.decide  # type: ignore[attr-defined]

    def careless(replicas: Any, state: Any, now: Any, controller_epoch: int) -> Any:
        if state is not None and now.online.intersection(replicas):
            state = replace(state, isr=tuple(replicas))
        return decide(replicas, state, now, controller_epoch)

    for module in (preferred, reassignment, active_controller, topic_admin):
        module.decide = careless  # type: ignore[attr-defined]


def never_invites() -> None:
    """A replica that has left the ISR never returns."""
    IsrState.may_join = lambda *_: False  # type: ignore[method-assign]


def shows_too_much() -> None:
    """A follower shows uncommitted records to consumers."""
    look = ConsumerRead._look

    def generous(read: ConsumerRead, fetched: Any, partition: Partition, remaining: int) -> Any:
        log = partition.log
        known = log.high_watermark
        try:
            if not partition.is_leader:
                log.high_watermark = log.log_end_offset
            return look(read, fetched, partition, remaining)
        finally:
            log.high_watermark = known

    ConsumerRead._look = generous  # type: ignore[method-assign]


def stores_other_bytes() -> None:
    """One byte differs on the disk of a follower."""
    append = Log._append_replicated
    chance = random.Random(0)

    def damaging(log: Log, data: Any, batches: Any, now_ms: int) -> None:
        if log.topic.startswith("verify-") and chance.random() < 0.01:
            data = bytearray(data)
            data[-1] ^= 1
        append(log, data, batches, now_ms)

    Log._append_replicated = damaging  # type: ignore[method-assign]


def followers_miss_aborts() -> None:
    """Followers do not write aborted transactions to the index (Redpanda 7043, KAFKA-5376)."""
    append, commit = Log._append_replicated, ProducerStateManager.commit
    following: list[ProducerStateManager] = []

    def follow(log: Log, *what: Any) -> None:
        following.append(log.producers)
        try:
            append(log, *what)
        finally:
            following.pop()

    def forget(state: ProducerStateManager, *what: Any) -> Any:
        aborted = commit(state, *what)
        return [] if following and state is following[-1] else aborted

    Log._append_replicated = follow  # type: ignore[method-assign]
    ProducerStateManager.commit = forget  # type: ignore[method-assign]


def followers_remember_one_batch() -> None:
    """Followers have one batch of each producer (librdkafka 4953)."""
    prepare = ProducerStateManager.prepare

    def short(producers: Any, data: Any, batches: Any, origin: Any, *more: Any) -> Any:
        entries, *rest = prepare(producers, data, batches, origin, *more)
        if origin is Origin.REPLICATION:
            entries = {
                producer_id: replace(entry, batches=entry.batches[-1:])
                for producer_id, entry in entries.items()
            }
        return (entries, *rest)

    ProducerStateManager.prepare = short  # type: ignore[method-assign]


def gives_up_markers() -> None:
    """A marker is dropped when the leader of its partition moves."""
    written = MarkerSender.written

    def careless(sender: MarkerSender, pending: Any, code: ErrorCode) -> None:
        moved = code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE)
        written(sender, pending, ErrorCode.NONE if moved else code)

    MarkerSender.written = careless  # type: ignore[method-assign]


def _as_simulated(name: str) -> Callable[[], None]:
    """Return the fault of this name from the simulation of three brokers."""

    def install() -> None:
        simulated.MUTANTS[name]().__enter__()

    return install


CLUSTER_MUTANTS: Final[dict[str, Callable[[], None]]] = {
    **{
        patch.__name__: patch
        for patch in (
            commits_alone,
            counts_the_fastest,
            shrinks_alone,
            elects_anybody,
            never_invites,
            shows_too_much,
            stores_other_bytes,
            followers_miss_aborts,
            followers_remember_one_batch,
            gives_up_markers,
            hasty_coordinator,
        )
    },
    **{
        name: _as_simulated(name)
        for name in (
            "cuts_to_its_high_watermark",
            "counts_who_diverges",
            "never_cuts",
            "trusts_what_lost_power",
            "obeys_anybody",
            "followers_forget_producers",
        )
    },
}
