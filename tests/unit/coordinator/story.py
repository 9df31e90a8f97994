"""A story of one transactional id: requests, faults and crashes, on a log that commits as told."""

import asyncio
import inspect
from collections.abc import Callable
from enum import Enum
from typing import Any

from hypothesis import strategies as st

from barnabas.coordinator.transaction.metadata import TV0, TV2, Producer
from barnabas.protocol.errors import ErrorCode, KafkaError
from tests.unit.coordinator.transactions import ID, A, B, Transactions

Step = tuple[Any, ...]
VERSIONS = st.sampled_from((TV0, TV2))
REFUSALS = st.tuples(st.just("refuse"), st.sampled_from((None, ErrorCode.MESSAGE_TOO_LARGE)))
CRASHES = st.tuples(st.just("crash"), st.booleans())
EXPIRIES = st.tuples(st.just("expire"))
STEPS = st.one_of(
    st.tuples(st.just("init"), st.booleans()),
    st.tuples(st.just("add"), st.sampled_from(((A,), (B,), (A, B))), VERSIONS),
    st.tuples(st.just("stale"), VERSIONS),
    st.tuples(st.just("end"), st.booleans(), VERSIONS),
    st.tuples(st.just("mark")),
    st.tuples(st.just("hold")),
    st.tuples(st.just("release")),
    st.tuples(st.just("pass"), st.integers(1, 200)),
)


class Commits(Enum):
    """The time at which the log commits."""

    AT_ONCE = "in the call that appends"
    LATER = "after the request"
    GATHERED = "after the iteration of the event loop whose records are gathered"


class Story:
    """A coordinator, and the answers to the requests of one client."""

    def __init__(self, commits: Commits) -> None:
        self.transactions = Transactions()
        self.commits = commits
        self.is_held = False
        self.producer = Producer(-1, -1)
        self.answers: list[object] = []

    async def take(self, step: Step) -> None:
        kind, *rest = step
        log = self.transactions.log
        log.commits_at_once = not self.is_held and self.commits is not Commits.GATHERED
        log.held = self.is_held or self.commits is Commits.LATER
        work = getattr(self, "_" + kind)(*rest)
        if inspect.isawaitable(work):
            await work
        self.settle()
        # The answers that came as futures.
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    def settle(self) -> None:
        """Let the log append what it has gathered, and commit, unless the story holds it."""
        self.transactions.time.pass_ms(0)
        if not self.is_held:
            self.transactions.log.release()
            self.transactions.time.pass_ms(0)

    def _heard(self, ask: Callable[[], Any]) -> None:
        place = len(self.answers)
        self.answers.append("waits")

        def arrived(answer: Any) -> None:
            self.answers[place] = answer
            if isinstance(answer, Producer):
                self.producer = answer

        try:
            answer = ask()
        except KafkaError as error:
            arrived((error.code, error.message))
            return
        if hasattr(answer, "add_done_callback"):
            answer.add_done_callback(
                lambda done: arrived(
                    done.result()
                    if done.exception() is None
                    else (done.exception().code, done.exception().message)
                )
            )
        else:
            arrived(answer)

    def _init(self, resumes: bool) -> None:
        expected = self.producer if resumes and self.producer.epoch >= 0 else None
        self._heard(lambda: self.transactions.init(expected))

    def _add(self, partitions: tuple[Any, ...], version: int) -> None:
        ask = self.transactions.lead if version >= TV2 else self.transactions.add
        self._heard(lambda: ask(self.producer, *partitions))

    def _stale(self, version: int) -> None:
        stale = Producer(self.producer.producer_id, self.producer.epoch - 1)
        self._heard(lambda: self.transactions.end(stale, version=version))

    def _end(self, commits: bool, version: int) -> None:
        self._heard(lambda: self.transactions.end(self.producer, commits=commits, version=version))

    def _mark(self) -> None:
        if self.transactions.sent:
            self.transactions.mark()

    def _hold(self) -> None:
        self.is_held = True

    def _release(self) -> None:
        self.is_held = False

    def _refuse(self, code: ErrorCode | None) -> None:
        self.transactions.log.refusal = None if code is None else KafkaError(code)

    def _pass(self, milliseconds: int) -> None:
        self.transactions.time.pass_ms(milliseconds)

    async def _crash(self, survives: bool) -> None:
        """End the process; the records that are not committed survive together, or none does."""
        log = self.transactions.log
        self.transactions.crash()
        log.waiters.clear()
        if not survives:
            while log.end_offset > log.committed:
                log.batches.pop()
        log.refusal = None
        log.release()
        self.transactions.time.forget()
        await self.transactions.load()

    async def _expire(self) -> None:
        """Let the id expire, if it is settled and the log takes that at once."""
        # A log that refuses all the time is asked ten times a second.
        refuses = self.transactions.log.refusal is not None
        if not (self.is_held or refuses) and self.commits is Commits.AT_ONCE:
            self.transactions.time.pass_ms(self.transactions.settings.id_expiration_ms)
            await self.transactions.coordinator.expire()

    @property
    def outcome(self) -> object:
        it = self.transactions
        try:
            txn, events = it.txn, it.coordinator.events(ID)
        except KafkaError as error:
            txn = events = error.code  # type: ignore[assignment]
        return self.answers, it.sent, txn, events, it.faults
