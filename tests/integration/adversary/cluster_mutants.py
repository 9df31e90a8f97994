"""Faults that take several brokers, for the checker to find; see `mutants.py` for those of one.

Each is a patch that every broker of a cluster has, installed by `mutant_node.py` alone.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from barnabas.broker.controller import preferred, reassignment, tenure, topic_admin
from barnabas.broker.coordination.marker_sender import MarkerSender
from barnabas.broker.replication.consumer_read import ConsumerRead
from barnabas.broker.replication.in_sync import InSyncSet
from barnabas.broker.replication.in_sync_keeper import InSyncKeeper
from barnabas.broker.replication.partition import Partition
from barnabas.protocol.errors import ErrorCode
from barnabas.storage.log import Log
from barnabas.storage.producer_state import ProducerStateManager
from tests.integration.adversary.mutants import hasty_coordinator
from tests.simulation.cluster import mutants as simulated


def commits_alone() -> None:
    """A leader takes for committed what no follower has yet."""
    InSyncSet.end = lambda _, leader_end: leader_end  # type: ignore[method-assign]


def counts_the_fastest() -> None:
    """What a majority of the replicas has is committed, whoever is in sync."""

    def majority(in_sync: InSyncSet, leader_end: int) -> int:
        ends = [leader_end, *(each.log_end for each in in_sync.followers.values())]
        return sorted(ends)[len(ends) // 2]

    InSyncSet.end = majority  # type: ignore[method-assign]


def shrinks_alone() -> None:
    """A leader leaves followers out without the controller's consent (KAFKA-2729)."""
    propose = InSyncKeeper._propose

    def decide(keeper: InSyncKeeper, partition: Partition, isr: tuple[int, ...]) -> None:
        if len(isr) < len(partition.isr):
            partition.in_sync_set_changed(isr, partition.partition_epoch)
        else:
            propose(keeper, partition, isr)

    InSyncKeeper._propose = decide  # type: ignore[method-assign]


def elects_anybody() -> None:
    """Whoever is online may lead, in sync or not."""
    decide = tenure.decide

    def careless(replicas: Any, state: Any, now: Any, controller_epoch: int) -> Any:
        if state is not None and now.online.intersection(replicas):
            state = replace(state, isr=tuple(replicas))
        return decide(replicas, state, now, controller_epoch)

    for module in (preferred, reassignment, tenure, topic_admin):
        module.decide = careless  # type: ignore[attr-defined]


def never_invites() -> None:
    """Who has left the in-sync set stays out of it."""
    InSyncSet.may_join = lambda *_: False  # type: ignore[method-assign]


def shows_too_much() -> None:
    """A follower gives consumers all that it has, beyond the high watermark."""
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
    """A follower's disk has another byte than what was sent, now and then."""
    append = Log._append_replicated
    chance = random.Random(0)

    def damaging(log: Log, data: Any, batches: Any, now_ms: int) -> None:
        if log.topic.startswith("verify-") and chance.random() < 0.01:
            data = bytearray(data)
            data[-1] ^= 1
        append(log, data, batches, now_ms)

    Log._append_replicated = damaging  # type: ignore[method-assign]


def followers_miss_aborts() -> None:
    """Followers do not write down which transactions were aborted (KAFKA-5376)."""
    append, commit = Log._append_replicated, Log._commit
    following: list[Log] = []

    def follow(log: Log, *what: Any) -> None:
        following.append(log)
        try:
            append(log, *what)
        finally:
            following.pop()

    def forget(log: Log, update: Any, end_offset: int) -> None:
        if log in following:
            log.producers.commit(update, end_offset)
            log.log_end_offset = end_offset
        else:
            commit(log, update, end_offset)

    Log._append_replicated = follow  # type: ignore[method-assign]
    Log._commit = forget  # type: ignore[method-assign]


def followers_remember_one_batch() -> None:
    """Followers know the last batch of each producer, not the last five (librdkafka 4953)."""
    prepare = ProducerStateManager.prepare

    def short(producers: Any, data: Any, batches: Any, origin: Any, *more: Any) -> Any:
        update = prepare(producers, data, batches, origin, *more)
        if origin.name != "REPLICATION" or not update.entries:
            return update
        kept = tuple(each._replace(batches=each.batches[-1:]) for each in update.entries)
        return update._replace(entries=kept)

    ProducerStateManager.prepare = short  # type: ignore[method-assign]


def gives_up_markers() -> None:
    """A marker whose partition has another leader by now is taken for written."""
    written = MarkerSender.written

    def careless(sender: MarkerSender, errand: Any, code: ErrorCode) -> None:
        moved = code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE)
        written(sender, errand, ErrorCode.NONE if moved else code)

    MarkerSender.written = careless  # type: ignore[method-assign]


def _as_simulated(name: str) -> Callable[[], None]:
    """A fault that the simulation of three brokers knows as well."""

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
