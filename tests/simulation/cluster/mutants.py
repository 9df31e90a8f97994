"""Faults that other brokers have had, or could have, as patches: the simulation must find each."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from barnabas.broker.controller import election, leader_moves
from barnabas.broker.controller.receiver import ControlReceiver
from barnabas.broker.metadata.znodes import LeaderAndIsr
from barnabas.broker.replication import follower
from barnabas.broker.replication.fetcher import Fetcher
from barnabas.broker.replication.follower import Following
from barnabas.broker.replication.follower_read import FollowerRead
from barnabas.broker.replication.partition import Partition
from barnabas.coordinator.hosted import Hosted
from barnabas.protocol.errors import ErrorCode
from barnabas.storage import log_manager
from barnabas.storage.producer_state import ProducerStateManager

Mutant = Callable[[], AbstractContextManager[object]]


def cuts_to_its_high_watermark() -> AbstractContextManager[object]:
    """KIP-101: a new follower forgets what it does not know to be committed."""
    add = Fetcher.add

    def forgetful(self: Fetcher, following: Following) -> None:
        add(self, following)
        log = following.partition.log
        if log.high_watermark < log.log_end_offset:
            self._carry_out(following, follower.Truncate(log.high_watermark))

    return patch.object(Fetcher, "add", forgetful)


def believes_the_cache() -> AbstractContextManager[object]:
    """PostgreSQL's fsyncgate: what a failed fsync left in the page cache passes for written."""
    return patch.object(log_manager, "DOUBT", ".nobody-looks-for-this")


def counts_who_diverges() -> AbstractContextManager[object]:
    """KAFKA-13141: a follower whose log is another one's is taken to have what it asks after."""
    look = FollowerRead._look

    def credulous(self: FollowerRead, fetched: Any, partition: Partition) -> Any:
        partition.require_leader(fetched.wanted.current_leader_epoch)
        self._take_position(fetched, partition)
        return look(self, fetched, partition)

    return patch.object(FollowerRead, "_look", credulous)


def never_cuts() -> AbstractContextManager[object]:
    """KIP-279: what diverges stays, and the next records are put behind it."""

    def deaf(_log: Any, answer: Any) -> follower.Step:
        if answer.diverging_epoch.epoch >= 0:
            return follower.Append(follower.NOTHING)
        return follower.Append(answer.records or follower.NOTHING)

    return patch("barnabas.broker.replication.fetcher.judge", deaf)


def trusts_what_lost_power() -> AbstractContextManager[object]:
    """KIP-966: who comes back without the end of its log is in sync as before."""

    def credulous(state: LeaderAndIsr, *_: object, **__: object) -> object:
        return state.isr, ()

    return patch.object(election, "_after_restarts", credulous)


def obeys_anybody() -> AbstractContextManager[object]:
    """KAFKA-7235: messages for an earlier run of a broker, or of an earlier controller, count."""
    return patch.object(ControlReceiver, "_fence", lambda *_: ErrorCode.NONE)


def goes_home_in_the_same_epoch() -> AbstractContextManager[object]:
    """A leadership is given back without a new epoch: the old leader may still think it has it."""
    elect = leader_moves.elect_preferred

    def thrifty(*args: Any) -> LeaderAndIsr:
        elected = elect(*args)
        return replace(elected, leader_epoch=elected.leader_epoch - 1)

    return patch.object(leader_moves, "elect_preferred", thrifty)


def followers_forget_producers() -> AbstractContextManager[object]:
    """librdkafka 4953: what followers append says nothing to them about its producer."""
    prepare = ProducerStateManager.prepare

    def deaf(self: ProducerStateManager, data: Any, batches: Any, origin: Any, *more: Any) -> Any:
        plain = [] if origin.name == "REPLICATION" else batches
        return prepare(self, data, plain, origin, *more)

    return patch.object(ProducerStateManager, "prepare", deaf)


def refuses_when_deposed() -> AbstractContextManager[object]:
    """A coordinator that is cut off ends the producer of a transaction that its successor began."""
    return patch.object(Hosted, "_as_known", lambda _self, refusal: refusal)


MUTANTS: dict[str, Mutant] = {
    mutant.__name__: mutant
    for mutant in (
        believes_the_cache,
        cuts_to_its_high_watermark,
        counts_who_diverges,
        never_cuts,
        trusts_what_lost_power,
        obeys_anybody,
        followers_forget_producers,
        goes_home_in_the_same_epoch,
        refuses_when_deposed,
    )
}
