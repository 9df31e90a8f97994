"""Guards and expectations against their rules in the plainest form: one table for each question."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.protocol.errors import KafkaError
from barnabas.protocol.records.batch import NO_SEQUENCE
from barnabas.protocol.records.claim import Claim
from barnabas.storage.origin import Origin
from barnabas.storage.producers.entry import ProducerStateEntry
from barnabas.storage.producers.verification import UNVERIFIED, Opener, VerificationGuard
from tests.unit.storage.producer_bench import header, load
from tests.unit.storage.verifying_leader import Leader

PRODUCERS = 1, 2
REFUSED = "INVALID_TXN_STATE"
LATE = "OUT_OF_ORDER_SEQUENCE_NUMBER"
STALE = "INVALID_PRODUCER_EPOCH"
FOREIGN = "INVALID_PRODUCER_ID_MAPPING"
T = TypeVar("T")


@dataclass
class Waiting:
    """A verification in progress."""

    guard: VerificationGuard
    opener: Opener
    epoch: int
    lowest: int
    expected: bool
    swept: bool = False


@dataclass
class Model:
    """Tables of the verifications in progress, of openers and of all guards, beside a log."""

    leader: Leader = field(default_factory=Leader)
    waiting: dict[int, Waiting] = field(default_factory=dict)
    openers: dict[int, Opener] = field(default_factory=dict)
    guards: list[VerificationGuard] = field(default_factory=list)
    written: list[VerificationGuard] = field(default_factory=list)

    def entry(self, producer: int) -> ProducerStateEntry:
        return self.leader.state.entry(producer) or ProducerStateEntry(producer)

    def is_new(self, guard: VerificationGuard) -> bool:
        new = all(guard is not each for each in self.guards)
        self.guards.append(guard)
        return new

    def begin(self, producer: int, key: str, epoch: int, newer: bool, sequence: int) -> None:
        claim = Claim(key, producer, epoch, sequence, newer)
        entry, waiting = self.entry(producer), self.waiting.get(producer)
        opener, refusal = self.openers.get(producer), "NONE"
        if epoch < entry.producer_epoch:
            refusal = STALE
        elif is_open(entry, epoch) and opener is not None and opener.transactional_id != key:
            refusal = FOREIGN
        outcome, guard = tried(lambda: self.leader.state.begin_verification(claim))
        assert outcome == refusal
        if refusal != "NONE":
            return
        if is_open(entry, epoch) and self.openers.get(producer) == Opener(key, newer, None):
            assert guard is None
            return
        assert guard is not None
        if (
            waiting is None
            or waiting.opener.transactional_id != key
            or (waiting.expected and (waiting.epoch, waiting.opener[1]) != (epoch, newer))
        ):
            assert self.is_new(guard)
            assert not guard.answered
            claimed = Opener(key, newer, None)
            self.waiting[producer] = Waiting(guard, claimed, epoch, sequence, False)
            return
        assert guard is waiting.guard
        assert guard.answered is waiting.expected
        if epoch > waiting.epoch:
            waiting.epoch, waiting.lowest = epoch, sequence
        elif epoch == waiting.epoch:
            waiting.lowest = min(waiting.lowest, sequence)

    def expect(self, producer: int, key: str, epoch: int) -> None:
        entry, waiting = self.entry(producer), self.waiting.get(producer)
        guard = self.leader.state.expect(Claim(key, producer, epoch, NO_SEQUENCE, False), 0)
        if (
            entry.current_txn_first_offset is not None
            or epoch < entry.producer_epoch
            or (waiting is not None and not waiting.expected)
        ):
            assert guard is None
            return
        assert guard is not None
        assert self.is_new(guard)
        self.waiting[producer] = Waiting(guard, Opener(key, False, None), epoch, 2**31, True)

    def send(
        self, producer: int, epoch: int, number: int, sequence: int, transactional: bool
    ) -> None:
        """Send the next batch of a known producer, or one with `sequence` of an unknown one, with
        the current guard (0), an earlier one, none or UNVERIFIED."""
        entry, waiting = self.entry(producer), self.waiting.get(producer)
        known = self.leader.state.entry(producer) is not None
        if known:
            sequence = entry.last_sequence + 1 if epoch == entry.producer_epoch else 0
        guard = self.guard(waiting, number) if transactional else None
        current = waiting is not None and guard is waiting.guard
        batch = header(sequence, producer_id=producer, epoch=epoch, transactional=transactional)
        before = list(self.leader.state)
        outcome, repeated = tried(lambda: self.leader.append(batch, guard))
        assert repeated is None
        if outcome != "NONE":
            assert list(self.leader.state) == before
        first_offset = entry.current_txn_first_offset
        lowest = 2**31
        if not known and waiting is not None:
            lowest = 0 if waiting.opener.epoch_per_transaction else waiting.lowest
        if epoch < entry.producer_epoch:
            assert outcome == STALE
        elif sequence > lowest:
            assert outcome == LATE
        elif (first_offset is not None and not transactional) or (
            transactional
            and not is_open(entry, epoch)
            and not current
            and (guard is not UNVERIFIED or first_offset is not None)
        ):
            assert outcome == REFUSED
        else:
            assert outcome == "NONE"
            if current and waiting is not None:
                self.openers[producer] = self.waiting.pop(producer).opener
                self.written.append(waiting.guard)

    def guard(self, waiting: Waiting | None, number: int) -> VerificationGuard | None:
        if number == 0:
            return None if waiting is None else waiting.guard
        if number < len(self.guards) + 1:
            return self.guards[-number]
        return UNVERIFIED if number % 2 else None

    def replicate(self, producer: int) -> None:
        entry = self.entry(producer)
        batch = header(
            entry.last_sequence + 1,
            producer_id=producer,
            epoch=max(entry.producer_epoch, 0),
            transactional=True,
        )
        self.leader.append(batch, UNVERIFIED, Origin.REPLICATION)

    def mark(self, producer: int, epoch: int) -> None:
        stale = epoch < self.entry(producer).producer_epoch
        outcome, _ = tried(lambda: self.leader.mark(epoch, producer_id=producer))
        assert outcome == (STALE if stale else "NONE")
        if not stale:
            self.waiting.pop(producer, None)
            self.openers.pop(producer, None)

    def lead(self) -> None:
        self.leader.state.forget_expected()
        self.waiting = {key: each for key, each in self.waiting.items() if not each.expected}

    def sweep(self) -> None:
        for _ in self.leader.state.expire(0, 1000):
            pass
        self.waiting = {key: each for key, each in self.waiting.items() if not each.swept}
        for each in self.waiting.values():
            each.swept = True

    def void(self, number: int) -> None:
        """Let the coordinator take an expectation back."""
        expected = [each for each in self.guards if each.answered]
        if expected:
            guard = expected[number % len(expected)]
            guard.void()
            self.drop(guard)

    def forget(self, producer: int, number: int) -> None:
        if self.guards:
            guard = self.guards[number % len(self.guards)]
            self.leader.state.forget_verification(producer, guard)
            waiting = self.waiting.get(producer)
            if waiting is not None and waiting.guard is guard:
                del self.waiting[producer]

    def drop(self, guard: VerificationGuard) -> None:
        self.waiting = {key: w for key, w in self.waiting.items() if w.guard is not guard}

    def restart(self) -> None:
        self.leader = Leader(load(self.leader.state, windows_known=True).state)
        self.waiting.clear()
        self.openers.clear()

    def check(self) -> None:
        state = self.leader.state
        for producer in PRODUCERS:
            waiting = self.waiting.get(producer)
            assert self.leader.opener(producer) == self.openers.get(producer)
            for epoch in (0, 1):
                for opener in (Opener("x", False, None), Opener("y", False, None)):
                    told = state.expected(producer, epoch, opener)
                    if waiting is None or not waiting.expected:
                        assert told is None
                    else:
                        same = (waiting.epoch, waiting.opener) == (epoch, opener)
                        assert told is (waiting.guard if same else None)
        for guard in self.guards:
            assert guard.written is any(guard is each for each in self.written)
        assert all(each.verification is not None for each in state._unlogged.values())
        assert not state._unlogged.keys() & state.entries.keys()


def tried(step: Callable[[], T]) -> tuple[str, T | None]:
    """Return the name of the error code, and the result."""
    try:
        return "NONE", step()
    except KafkaError as error:
        return error.code.name, None


def is_open(entry: ProducerStateEntry, epoch: int) -> bool:
    """Return whether the transaction of this epoch is open."""
    return entry.current_txn_first_offset is not None and entry.producer_epoch == epoch


producers, epochs = st.sampled_from((1, 1, *PRODUCERS)), st.integers(0, 1)
keys, sequences, numbers = st.sampled_from("xy"), st.integers(0, 2), st.integers(0, 5)
STEPS = st.one_of(
    st.tuples(st.just("begin"), st.just(1), st.just("x"), epochs, st.booleans(), sequences),
    st.tuples(st.just("begin"), producers, keys, epochs, st.booleans(), sequences),
    st.tuples(st.just("expect"), producers, keys, epochs),
    st.tuples(st.just("send"), producers, epochs, numbers, sequences, st.booleans()),
    st.tuples(st.just("send"), producers, epochs, st.just(0), sequences, st.just(True)),
    st.tuples(st.just("replicate"), producers),
    st.tuples(st.just("mark"), producers, epochs),
    st.tuples(st.just("void"), numbers),
    st.tuples(st.just("forget"), producers, numbers),
    st.tuples(st.sampled_from(["lead", "sweep", "restart"])),
)


@settings(max_examples=1000)
@given(st.lists(STEPS, min_size=4, max_size=40))
def test_verifications_are_those_of_the_plain_tables(steps: list[tuple[object, ...]]) -> None:
    model = Model()
    for name, *arguments in steps:
        getattr(model, str(name))(*arguments)
        model.check()
