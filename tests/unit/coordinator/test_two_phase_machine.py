"""Any sequence of requests, timeouts, crashes and fail-overs of one transactional id.

Answers, state and markers are those of a model that knows the rules of KIP-939 and no log.

A step may be cut off by a crash: its record is lost or survives, and its answer is lost.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from barnabas.coordinator.transaction.metadata import (
    LAST_CLIENT_EPOCH,
    NO_TIMEOUT_MS,
    TV2,
    Producer,
)
from barnabas.coordinator.transaction.producers import Initialised, InitProducerId
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.topic_partition import TopicPartition
from tests.unit.coordinator.transactions import ID, TIMEOUT_MS, Ids, Transactions, transaction

BUSY, FENCED, STATE = "CONCURRENT_TRANSACTIONS", "PRODUCER_FENCED", "INVALID_TXN_STATE"
STRANGER = frozenset((FENCED, "INVALID_PRODUCER_ID_MAPPING"))
"""A former producer id is either still known or not."""
PARTITIONS = [TopicPartition("a", 0), TopicPartition("b", 0)]
FATES = st.sampled_from(["answered"] * 4 + ["lost", "survives"])
"""A step is answered, or a crash comes before its answer and its record is lost or survives."""
BACK = st.integers(0, 3)
"""The producer that asks: the latest that was given out, the one before, ..."""


class Model:
    """The transactional id by the rules of the KIP."""

    def __init__(self, client: Producer, ids: Ids) -> None:
        self.client = client
        self.given = [client]
        self._ids = ids
        self.phase = "empty"
        """empty, open, deciding or done"""
        self.writer: Producer | None = None
        """The producer of the open transaction."""
        self.partitions: set[TopicPartition] = set()
        self.timeout_ms = TIMEOUT_MS
        self.began_ms = 0
        self.commits = False
        self.ended_by: Producer | None = None
        """The client that the latest end has used up."""

    @property
    def kept(self) -> bool:
        return self.phase == "open" and self.writer != self.client

    def bump(self) -> None:
        """Give the id's client the next epoch."""
        epoch = self.client.epoch + 1
        if epoch > LAST_CLIENT_EPOCH:
            self.client = Producer(self._ids.last, 0)
        else:
            self.client = self.client._replace(epoch=epoch)
        self.given.append(self.client)

    def init(self, two_phase: bool) -> object:
        if self.phase == "deciding":
            return BUSY
        if self.phase == "open":
            self.decide(commits=False)
            return BUSY
        self.bump()
        self.phase, self.ended_by = "empty", None
        self.timeout_ms = NO_TIMEOUT_MS if two_phase else TIMEOUT_MS
        return Initialised(self.client)

    def keep(self, two_phase: bool) -> object:
        if self.phase != "open":
            return self.init(two_phase)
        self.bump()
        if two_phase:
            self.timeout_ms = NO_TIMEOUT_MS
        return Initialised(self.client, self.writer)

    def lead(self, producer: Producer, partition: TopicPartition, now_ms: int) -> object:
        if self.phase == "deciding":
            return BUSY
        if producer != self.client:
            return STRANGER
        if self.kept:
            return STATE
        if self.phase != "open":
            self.phase, self.writer, self.partitions = "open", producer, set()
            self.began_ms = now_ms
        self.partitions.add(partition)
        return None

    def end(self, producer: Producer, commits: bool) -> object:
        if self.phase == "deciding":
            return BUSY
        if self.phase == "open":
            if producer != self.client:
                return STRANGER
            self.decide(commits=commits)
            return self.client
        if self.phase == "done" and producer == self.ended_by:
            return self.client if commits == self.commits else STATE
        if producer != self.client:
            return STRANGER
        if commits:
            return STATE
        # The abort of a transaction without partitions has no markers to wait for.
        self.decide(commits=False)
        self.phase = "done"
        return self.client

    def decide(self, *, commits: bool) -> None:
        self.phase, self.commits, self.ended_by = "deciding", commits, self.client
        self.bump()

    def sweep(self, now_ms: int) -> None:
        timeless = self.timeout_ms == NO_TIMEOUT_MS
        if self.phase == "open" and not timeless and now_ms >= self.began_ms + self.timeout_ms:
            self.decide(commits=False)


class KeptTransactions(RuleBasedStateMachine):
    """A coordinator beside its model."""

    @initialize(left=st.integers(0, 4))
    def begin(self, left: int) -> None:
        """Begin `left` epochs before the last one of the first producer id."""
        self.loop = asyncio.new_event_loop()
        first = transaction(epoch=LAST_CLIENT_EPOCH - left)
        self.here = self.run(Transactions().write(first).load())
        self.model = Model(first.producer, self.here.ids)

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.loop.close()

    def run(self, story: Any) -> Any:
        return self.loop.run_until_complete(story)

    def producer(self, back: int) -> Producer:
        given = self.model.given
        return given[max(len(given) - 1 - back, 0)]

    def step(self, fate: str, ask: Callable[[], Any], expect: Callable[[], object]) -> None:
        """Send a request, and compare its answer with the model's."""

        async def asked() -> object:
            try:
                return ask()
            except KafkaError as error:
                return error.code.name

        if fate == "answered":
            self.compare(self.run(asked()), expect())
            return
        log, sent = self.here.log, list(self.here.sent)
        log.held, known = True, len(log.batches)
        unwritten = bool(self.here.hosted.postponed.records)
        answer = self.run(asked())
        if isinstance(answer, asyncio.Future):
            answer.cancel()
        self.here.crash()
        log.waiters.clear()
        if fate == "lost":
            del log.batches[known:]
        log.release()
        self.here.sent[:] = sent
        if fate == "survives" and len(log.batches) > known:
            expect()
        elif unwritten:
            # The log does not show that every marker is written.
            self.model.phase = "deciding"
        self.run(self.here.load())
        self.here.time.pass_ms(0)

    def compare(self, answer: object, expected: object) -> None:
        if isinstance(expected, frozenset):
            assert answer in expected
        else:
            assert answer == expected

    @rule(fate=FATES, two_phase=st.booleans())
    def init(self, fate: str, two_phase: bool) -> None:
        request = InitProducerId(ID, TIMEOUT_MS, None, "host", two_phase)
        self.step(
            fate,
            lambda: self.here.coordinator.init_producer_id(request),
            lambda: self.model.init(two_phase),
        )

    @rule(fate=FATES, two_phase=st.booleans())
    def keep(self, fate: str, two_phase: bool) -> None:
        self.step(
            fate,
            lambda: self.here.keep(two_phase=two_phase),
            lambda: self.model.keep(two_phase),
        )

    @rule(fate=FATES, back=BACK, partition=st.sampled_from(PARTITIONS))
    def lead(self, fate: str, back: int, partition: TopicPartition) -> None:
        producer, now_ms = self.producer(back), self.here.time.passed_ms
        self.step(
            fate,
            lambda: self.here.lead(producer, partition),
            lambda: self.model.lead(producer, partition, now_ms),
        )

    @rule(fate=FATES, back=BACK, commits=st.booleans())
    def end(self, fate: str, back: int, commits: bool) -> None:
        producer = self.producer(back)
        self.step(
            fate,
            lambda: self.here.end(producer, commits=commits),
            lambda: self.model.end(producer, commits),
        )

    @rule()
    def mark(self) -> None:
        if self.model.phase == "deciding":
            self.here.mark()
            self.model.phase = "done"

    @rule(milliseconds=st.sampled_from([TIMEOUT_MS // 2, TIMEOUT_MS, 2 * TIMEOUT_MS]))
    def wait(self, milliseconds: int) -> None:
        self.here.time.pass_ms(milliseconds)
        self.run(self.here.sweep())
        self.model.sweep(self.here.time.passed_ms)

    @rule()
    def fail_over(self) -> None:
        self.here.runtime.resigned(0)
        self.run(self.here.load())

    @invariant()
    def shows_what_the_model_has(self) -> None:
        if not hasattr(self, "here"):
            return
        txn, model = self.here.txn, self.model
        assert self.here.faults == []
        assert (txn.next_producer if model.phase == "deciding" else txn.client) == model.client
        assert txn.is_kept == model.kept
        assert self.here.coordinator.kept() == model.kept
        if model.phase == "open":
            assert model.writer is not None
            assert (txn.state.value, txn.producer) == ("Ongoing", model.writer)
            assert (txn.partitions, txn.timeout_ms) == (model.partitions, model.timeout_ms)
            left_ms = self.here.left_ms
            assert (left_ms is None) == (model.timeout_ms == NO_TIMEOUT_MS)
        elif model.phase == "deciding":
            self._markers_bear_the_writer()
        elif model.phase == "done":
            assert txn.state.value == ("CompleteCommit" if model.commits else "CompleteAbort")
            assert txn.producer == model.client
        else:
            assert (txn.state.value, txn.producer) == ("Empty", model.client)

    def _markers_bear_the_writer(self) -> None:
        markers, model = self.here.sent[-1], self.model
        assert model.writer is not None
        assert markers.producer == model.writer._replace(epoch=model.writer.epoch + 1)
        assert (markers.committed, markers.partitions) == (model.commits, model.partitions)
        assert markers.transaction_version == TV2


TestKeptTransactions = KeptTransactions.TestCase
TestKeptTransactions.settings = settings(max_examples=60, stateful_step_count=40)
