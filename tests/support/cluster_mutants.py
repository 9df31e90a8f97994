"""Known or possible faults of brokers as patches; the simulation must find each."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from barnabas.broker.cluster.control_receiver import ControlReceiver
from barnabas.broker.cluster.znodes import LeaderAndIsr
from barnabas.broker.controller import leader_moves
from barnabas.broker.controller.rules import leader_election as election
from barnabas.broker.replication.follower import follower_state as rules
from barnabas.broker.replication.follower.fetcher import Fetcher
from barnabas.broker.replication.follower.follower_state import FollowerState
from barnabas.broker.replication.leader.follower_read import FollowerRead
from barnabas.broker.replication.partition import Partition
from barnabas.broker.transactions.verification_request import Answers, VerificationRequest
from barnabas.coordinator.group.consumer import reconciliation, sessions
from barnabas.coordinator.group.consumer.group import ConsumerMember
from barnabas.coordinator.hosted_shard import HostedShard
from barnabas.protocol.errors import ErrorCode
from barnabas.storage.opening import log_manager
from barnabas.storage.producers.state import ProducerStateManager

Mutant = Callable[[], AbstractContextManager[object]]


def cuts_to_its_high_watermark() -> AbstractContextManager[object]:
    """KIP-101: a new follower truncates its log to its high watermark."""
    add = Fetcher.add

    def forgetful(self: Fetcher, follower: FollowerState) -> None:
        add(self, follower)
        log = follower.partition.log
        if log.high_watermark < log.log_end_offset:
            self._apply_step(follower, rules.Truncation(log.high_watermark))

    return patch.object(Fetcher, "add", forgetful)


def believes_the_cache() -> AbstractContextManager[object]:
    """PostgreSQL's fsyncgate: data that a failed fsync left in the page cache counts as written."""
    return patch.object(log_manager, "DOUBT", ".never-looked-for")


def counts_who_diverges() -> AbstractContextManager[object]:
    """KAFKA-13141: the fetch position of a diverging follower counts as replicated."""
    look = FollowerRead._look

    def credulous(self: FollowerRead, fetched: Any, partition: Partition) -> Any:
        partition.require_leader(fetched.wanted.current_leader_epoch)
        self._take_position(fetched, partition)
        return look(self, fetched, partition)

    return patch.object(FollowerRead, "_look", credulous)


def forgets_quiet_followers() -> AbstractContextManager[object]:
    """A partition counts as read though its follower left the ISR during the request."""
    return patch.object(FollowerRead, "_must_fetch_again", lambda *_: False)


def never_cuts() -> AbstractContextManager[object]:
    """KIP-279: a diverging log is not truncated, and the next records are appended to it."""

    def deaf(_log: Any, answer: Any) -> rules.Step:
        if answer.diverging_epoch.epoch >= 0:
            return rules.Append(rules.NOTHING)
        return rules.Append(answer.records or rules.NOTHING)

    return patch("barnabas.broker.replication.follower.fetcher.judge", deaf)


def trusts_what_lost_power() -> AbstractContextManager[object]:
    """KIP-966: a broker that restarts without the end of its log stays in sync."""

    def credulous(state: LeaderAndIsr, *_: object, **__: object) -> object:
        return state.isr, ()

    return patch.object(election, "_after_restarts", credulous)


def obeys_anybody() -> AbstractContextManager[object]:
    """KAFKA-7235: messages for an earlier run of a broker, or of an earlier controller, are
    accepted."""
    return patch.object(ControlReceiver, "_fence", lambda *_: ErrorCode.NONE)


def goes_home_in_the_same_epoch() -> AbstractContextManager[object]:
    """Leadership returns to a preferred replica without a new epoch: the old leader may go on
    leading."""
    elect = leader_moves.elect_preferred  # type: ignore[attr-defined]

    def thrifty(*args: Any) -> LeaderAndIsr:
        elected = elect(*args)
        return replace(elected, leader_epoch=elected.leader_epoch - 1)

    return patch.object(leader_moves, "elect_preferred", thrifty)


def followers_forget_producers() -> AbstractContextManager[object]:
    """librdkafka 4953: followers have no producer state of the records that they append."""
    prepare = ProducerStateManager.prepare

    def deaf(self: ProducerStateManager, data: Any, batches: Any, origin: Any, *more: Any) -> Any:
        plain = [] if origin.name == "REPLICATION" else batches
        return prepare(self, data, plain, origin, *more)

    return patch.object(ProducerStateManager, "prepare", deaf)


def refuses_when_deposed() -> AbstractContextManager[object]:
    """A deposed coordinator refuses the producer of a transaction that its successor began."""
    return patch.object(HostedShard, "_unless_replaced", lambda _self, refusal: refusal)


def believes_a_lost_answer() -> AbstractContextManager[object]:
    """A verification whose response is lost counts as successful: a record may be in a partition
    that is not in the transaction, and waits for its marker for ever."""
    all_with = VerificationRequest.all_with

    def hopeful(self: VerificationRequest, code: ErrorCode) -> Answers:
        lost = code is ErrorCode.NETWORK_EXCEPTION
        return all_with(self, ErrorCode.NONE if lost else code)

    return patch.object(VerificationRequest, "all_with", hopeful)


def shares_what_is_not_given_up() -> AbstractContextManager[object]:
    """A member of a consumer group gets a partition that another one still reads."""
    towards = reconciliation._towards

    def hasty(*known: Any) -> ConsumerMember:
        member, target, epoch, owned, _, subscribed = known
        return towards(member, target, epoch, owned, lambda *_: True, subscribed)

    return patch.object(reconciliation, "_towards", hasty)


def forgets_sessions() -> AbstractContextManager[object]:
    """A new coordinator waits for the members of consumer groups without an end."""
    return patch.object(sessions, "resume", lambda *_: None)


MUTANTS: dict[str, Mutant] = {
    mutant.__name__: mutant
    for mutant in (
        believes_a_lost_answer,
        believes_the_cache,
        cuts_to_its_high_watermark,
        counts_who_diverges,
        forgets_quiet_followers,
        never_cuts,
        trusts_what_lost_power,
        obeys_anybody,
        followers_forget_producers,
        goes_home_in_the_same_epoch,
        refuses_when_deposed,
        shares_what_is_not_given_up,
        forgets_sessions,
    )
}
