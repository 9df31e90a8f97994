"""The protocol by which a driver commits a batch of a sink exactly once. Pure: it asks a port.

Each task writes in its own transaction. The driver decides with one record in the decisions
topic, which is written in a transaction of the driver's id and names the tasks' transactions. The
end of that transaction is the only commit point; the rest can be repeated by any later driver.
docs/PIPELINE.md has the steps, and the reasons for their order.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple, NoReturn

from barnabas.operations.sinks.decisions import (
    DecidedWinner,
    DecisionError,
    SinkDecision,
    decisions_topic,
    decode,
    encode,
)
from barnabas.pipeline.errors import OneLineError
from barnabas.pipeline.sink.port import (
    End,
    Fate,
    FirstRecord,
    Identity,
    OpenTransaction,
    Place,
    SinkPort,
)
from barnabas.protocol.backoff import Backoff
from barnabas.protocol.errors import ErrorCode, KafkaError

__all__ = [
    "Batch",
    "Identity",
    "Place",
    "SinkError",
    "SinkSettings",
    "Winner",
    "abort",
    "check_owner",
    "commit",
    "decisions_topic",
    "driver_id",
    "is_task_id",
]

PATIENCE_MS: Final = 60_000
"""The time in ms for which a decided transaction may stay open in its partition's log."""
_FIRST_WAIT: Final = 0.01

ANOTHER_OWNER: Final = frozenset(
    (
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.PRODUCER_FENCED,
    )
)
"""Errors of EndTxn that leave the outcome open: the transaction was ended, or pinned again."""


class SinkError(OneLineError):
    """A batch that is not committed, or not completely: one line that says what to do."""


class Winner(NamedTuple):
    """The message of a task whose transaction is to be committed.

    `first` is the place of its first record, None without rows. `began_ms` is the time of its
    InitProducerId in ms since the epoch, -1 if unknown.
    """

    transactional_id: str
    ongoing: Identity
    rows: int
    first: Place | None
    began_ms: int = -1


class Batch(NamedTuple):
    """A batch of a query; `digest` is that of its offsets in the checkpoint, None if unreadable."""

    query_id: str
    number: int
    digest: str | None


class SinkSettings(NamedTuple):
    """The settings of a sink that its protocol needs.

    `bounded` is delivery exactly-once-bounded: no transaction is pinned. With `two_phase_tasks`
    no transaction of a task times out. `take_over_from` is the id of the query whose sink this is
    from now on.
    """

    sink_id: str
    transaction_timeout_ms: int
    bounded: bool = False
    two_phase_tasks: bool = False
    take_over_from: str | None = None


def driver_id(sink_id: str) -> str:
    """Return the transactional id of a sink's drivers."""
    return f"{sink_id}.driver"


def is_task_id(sink_id: str, transactional_id: str) -> bool:
    """Return whether an id is one of this sink's tasks: `<sinkId>.<process>.<n>`.

    The name of a process has no dot, so that the ids of a sink `a.b` are not ids of the sink `a`.
    """
    rest = transactional_id.removeprefix(f"{sink_id}.")
    process, _, number = rest.partition(".")
    return rest != transactional_id and bool(process) and number.isdecimal()


async def commit(
    port: SinkPort, settings: SinkSettings, batch: Batch, winners: Sequence[Winner]
) -> None:
    """Commit a batch: the transactions of `winners`, and no other transaction of the sink.

    A batch without rows has no decision. It may be the repetition of a batch that is decided: an
    earlier decision whose transactions are open is carried out. Returns when every winner is
    decided. Raises SinkError: then call `abort`.
    """
    await Commit(port, settings, batch, [each for each in winners if each.rows]).run()


async def abort(
    port: SinkPort, settings: SinkSettings, batch: Batch, messages: Sequence[Winner | None]
) -> None:
    """Abort the transactions of a batch whose commit failed, or was not begun.

    A transaction that a decision names is committed instead. Does nothing if another driver has
    taken over. Raises SinkError.
    """
    own = [each for each in messages if each is not None and each.rows]
    await Abort(port, settings, batch, own).run()


async def check_owner(port: SinkPort, settings: SinkSettings, query_id: str) -> None:
    """Raise SinkError if the sink's last decision is another query's; for a query's start."""
    stored = await port.last_decision(None)
    decision = None if stored is None else decoded(settings.sink_id, stored.value)
    if decision is not None and decision.query_id not in (query_id, settings.take_over_from):
        raise SinkError(_another_query(settings.sink_id, query_id, decision))


class Attempt:
    """The state that commit and abort of a batch share, and their steps."""

    def __init__(
        self, port: SinkPort, settings: SinkSettings, batch: Batch, own: Sequence[Winner]
    ) -> None:
        self.port = port
        self.settings = settings
        self.batch = batch
        self.own = own
        self.clients = {each.transactional_id: each.ongoing for each in own}
        """The identity that may end each of the own transactions."""
        self.listed: list[OpenTransaction] = []
        self.last: SinkDecision | None = None
        """The last decision before the own one."""
        self.offset = -1
        """The offset of the own decision."""

    async def list_open(self) -> None:
        """Step 1: list the open transactions of the sink's tasks, with their identities now."""
        self.listed = [
            each
            for each in await self.port.list_open()
            if is_task_id(self.settings.sink_id, each.transactional_id)
        ]

    async def fence(self) -> None:
        """Step 2: fence every other driver; an earlier decision is complete or aborted then."""
        await self.port.fence()

    async def write(self, decision: SinkDecision) -> None:
        """Step 4: write the decision in a transaction of the driver's id."""
        self.offset = await self.port.write_decision(encode(decision))

    async def look_back(self) -> None:
        """Step 5: read the last decision before the own record."""
        stored = await self.port.last_decision(self.offset)
        if stored is not None:
            self.last = decoded(self.settings.sink_id, stored.value)

    async def drop(self) -> None:
        """Abort the transaction of the own decision."""
        await self.port.end_decision(committed=False)

    async def abort_own(self) -> None:
        """Abort the own transactions that the last decision does not name."""
        named = self.last.named if self.last is not None else frozenset()
        ends = [
            End(each.transactional_id, self.clients[each.transactional_id], committed=False)
            for each in self.own
            if (each.transactional_id, each.ongoing) not in named
        ]
        if ends:
            await self.port.end(ends)

    async def clean(self, *decisions: SinkDecision | None) -> None:
        """Step 8: abort what was listed, with the identities of that time.

        A transaction that a decision names is left out. One with another identity now is another
        driver's: it stays, and the response is ignored.
        """
        named: set[tuple[str, Identity]] = set()
        for decision in decisions:
            named |= decision.named if decision is not None else frozenset()
        ends = [
            End(each.transactional_id, each.client, committed=False)
            for each in self.listed
            if (each.transactional_id, each.ongoing) not in named
        ]
        if ends:
            await self.port.end(ends)

    def left_over(self) -> list[DecidedWinner]:
        """Return the transactions of the last decision that were open when they were listed."""
        listed = {(each.transactional_id, each.ongoing) for each in self.listed}
        winners = self.last.winners if self.last is not None else ()
        return [each for each in winners if (each.transactional_id, each.ongoing) in listed]


class Commit(Attempt):
    """The commit of a batch."""

    async def run(self) -> None:
        """Carry out the steps; raises SinkError."""
        try:
            decision = await self.reach_decision()
        except KafkaError as error:
            # Without a final response the cluster is not asked again: `abort` follows.
            if not error.code.retriable:
                await self.refuse(self._told(error), error)
            raise SinkError(f"{self._batch} is not committed: {error}") from error
        if decision is not None:
            await carry_out(self.port, self.settings.sink_id, decision)
        if decision is None or decision is not self.last:
            # The rows are visible. What stays open is listed with the next batch.
            with suppress(KafkaError):
                await self.clean(self.last, decision)

    async def reach_decision(self) -> SinkDecision | None:
        """Steps 1 to 6: return the decision about the batch, another driver's if it stands.

        None for a batch without rows that is not decided.
        """
        await self.list_open()
        if not (self.own or self.listed):
            return None
        await self.fence()
        await self.hold()
        decision = self.decision()
        await self.write(decision)
        await self.look_back()
        if self.last is not None and await self.is_decided(self.last):
            with suppress(KafkaError):
                await self.drop()
            await self.abort_own()
            return self.last
        if not self.own:
            with suppress(KafkaError):
                await self.drop()
            return None
        await self.decide()
        return decision

    def decision(self) -> SinkDecision:
        """Return the decision that commits the own transactions."""
        winners = []
        for each in self.own:
            assert each.first is not None
            client = self.clients[each.transactional_id]
            winners.append(
                DecidedWinner(each.transactional_id, each.ongoing, client, each.rows, each.first)
            )
        return SinkDecision(*self.batch, tuple(winners))

    async def hold(self) -> None:
        """Step 3: pin every own transaction, so that no timeout and no older request ends it."""
        if self.settings.bounded:
            await self._check_open()
            return
        answers = await self.port.pin([each.transactional_id for each in self.own])
        missing: list[Winner] = []
        for winner, answer in zip(self.own, answers, strict=True):
            if isinstance(answer, KafkaError):
                continue
            if answer.ongoing == winner.ongoing:
                self.clients[winner.transactional_id] = answer.client
            else:
                missing.append(winner)
        for answer in answers:
            if isinstance(answer, KafkaError):
                raise answer
        if missing:
            await self.refuse(self._ended_early(missing))

    async def _check_open(self) -> None:
        """Check that every own transaction is open, with half of its time left."""
        rows = await self.port.describe([each.transactional_id for each in self.own])
        half_ms = self.settings.transaction_timeout_ms // 2
        now_ms = self.port.now_ms()
        missing, late = [], []
        for winner, row in zip(self.own, rows, strict=True):
            if row is None or row.ongoing != winner.ongoing:
                missing.append(winner)
            elif not self.settings.two_phase_tasks and now_ms - row.started_ms > half_ms:
                late.append(winner)
        if missing:
            await self.refuse(self._ended_early(missing))
        if late:
            await self.refuse(
                f"{self._batch} is not committed: {_tasks(late)} used more than half of "
                f"transactionTimeout={self.settings.transaction_timeout_ms} ms; "
                f"{_SHORTER_OR_LONGER}"
            )

    async def is_decided(self, last: SinkDecision) -> bool:
        """Judge the last decision: return whether it is the one about this batch.

        Earlier decisions are carried out first: nothing open is named by an older one.
        """
        sink, query = self.settings.sink_id, self.batch.query_id
        if last.query_id != query:
            if last.query_id != self.settings.take_over_from:
                await self.refuse(_another_query(sink, query, last))
            await carry_out(self.port, sink, last)
            return False
        if last.number < self.batch.number:
            if left_over := self.left_over():
                await carry_out(self.port, sink, last._replace(winners=tuple(left_over)))
            return False
        same_offsets = None in (last.digest, self.batch.digest) or last.digest == self.batch.digest
        if last.number == self.batch.number and same_offsets:
            return True
        why = (
            f"batch {last.number} is the last that sink {sink} has decided"
            if last.number > self.batch.number
            else f"sink {sink} has decided this batch with other offsets"
        )
        return await self.refuse(
            f"{self._batch} is not committed: {why}. Another driver runs this query, or its "
            "checkpoint is an old copy: stop the other one, or start with a new checkpoint and "
            f"takeOverFrom={query}"
        )

    async def decide(self) -> None:
        """Step 6: commit the own decision. This is the only commit point."""
        try:
            await self.port.end_decision(committed=True)
        except KafkaError as error:
            if error.code.retriable:
                raise SinkError(
                    f"{self._batch} may be committed: {error}. Start the query again, it asks first"
                ) from error
            # An earlier request may have had no response: only the log tells.
            try:
                fate = await self._decision_fate()
            except KafkaError as unread:
                raise SinkError(
                    f"{self._batch} may be committed: its decision cannot be read, {unread}. "
                    "Start the query again, it asks first"
                ) from unread
            if fate is Fate.COMMITTED:
                return
            if fate is Fate.ABORTED:
                await self.refuse(self._told(error), error)
            raise SinkError(
                f"{self._batch} may be committed: the decision's record is {fate.value}. Start "
                "the query again, it asks first"
            ) from error

    async def _decision_fate(self) -> Fate:
        deadline = self.port.now_ms() + PATIENCE_MS
        backoff = Backoff(_FIRST_WAIT)
        while True:
            fate = await self.port.decision_fate(self.offset)
            if fate is not Fate.OPEN or self.port.now_ms() > deadline:
                return fate
            await self.port.sleep(backoff.failed())

    async def refuse(self, text: str, cause: Exception | None = None) -> NoReturn:
        """Drop the own decision, abort the own transactions and raise SinkError."""
        if self.offset >= 0:
            with suppress(KafkaError):
                await self.drop()
        with suppress(KafkaError):
            await self.abort_own()
        raise SinkError(text) from cause

    # -- texts -----------------------------------------------------------------------------------

    @property
    def _batch(self) -> str:
        return f"batch {self.batch.number} of query {self.batch.query_id}"

    def _told(self, error: KafkaError) -> str:
        code = error.code
        if code in ANOTHER_OWNER:
            return (
                f"{self._batch} is not committed: another driver of sink "
                f"{self.settings.sink_id} has taken over ({code.name}). Stop one of them"
            )
        if not self.settings.bounded and code in _NO_TWO_PHASE:
            return (
                f"{self._batch} is not committed: delivery=exactly-once needs "
                "transaction.two.phase.commit.enable=true at the brokers and transaction.version "
                f"2 ({code.name}). Set them, or choose delivery=exactly-once-bounded"
            )
        return f"{self._batch} is not committed: {error}"

    def _ended_early(self, missing: Sequence[Winner]) -> str:
        began = [each.began_ms for each in missing if each.began_ms >= 0]
        age = f" after {(self.port.now_ms() - min(began)) / 1000:.0f} s" if began else ""
        return (
            f"{self._batch} is not committed: the transactions of {_tasks(missing)} were ended "
            f"before the decision{age}, transactionTimeout is "
            f"{self.settings.transaction_timeout_ms} ms; {_SHORTER_OR_LONGER}"
        )


class Abort(Attempt):
    """The abort of a batch."""

    async def run(self) -> None:
        """Carry out the steps; raises SinkError."""
        try:
            if await self._look():
                await self._end()
        except KafkaError as error:
            # A fenced driver leaves the rest to the one that has taken over.
            if error.code not in ANOTHER_OWNER:
                raise SinkError(
                    f"batch {self.batch.number} of query {self.batch.query_id} is not aborted: "
                    f"{error}. The next start of the query aborts it"
                ) from error

    async def _look(self) -> bool:
        """Find out what is open and decided; return whether there is anything to end."""
        if not self.settings.bounded:
            await self.list_open()
        if not (self.listed or self.own):
            return False
        await self.fence()
        await self.write(SinkDecision(*self.batch, ()))
        await self.look_back()
        await self.drop()
        return True

    async def _end(self) -> None:
        if self.settings.bounded:
            await self.abort_own()
            return
        if self._is_of_another_query():
            # The owner of the sink may be in the middle of a batch. The identities are those of
            # the list: a commit that failed may have pinned.
            own = {(each.transactional_id, each.ongoing) for each in self.own}
            self.listed = [
                each for each in self.listed if (each.transactional_id, each.ongoing) in own
            ]
        await self.clean(self.last)
        await finish(self.port, self.left_over())

    def _is_of_another_query(self) -> bool:
        """Whether the sink belongs to another query; False if the query's id is unknown."""
        if self.last is None or not self.batch.query_id:
            return False
        return self.last.query_id not in (self.batch.query_id, self.settings.take_over_from)


# -- after the decision --------------------------------------------------------------------------


class SinkOutcome(NamedTuple):
    """The decided transactions that could not be committed."""

    lost: list[DecidedWinner]
    unknown: list[DecidedWinner]
    """The log no longer has their first records."""


async def carry_out(port: SinkPort, sink_id: str, decision: SinkDecision) -> None:
    """Step 7: commit the transactions of a decision; raises SinkError for lost ones."""
    batch = f"batch {decision.number} of query {decision.query_id}"
    try:
        outcome = await finish(port, decision.winners)
    except KafkaError as error:
        raise SinkError(
            f"{batch} is decided, but not all of its rows are visible yet: {error}. Start the "
            f"query again, or run: barnabas pipeline recover {sink_id}"
        ) from error
    if not (outcome.lost or outcome.unknown):
        return
    told = []
    if outcome.lost:
        told.append(f"{_tasks(outcome.lost)} were aborted by another client or by their timeout")
    if outcome.unknown:
        told.append(f"the log no longer tells the outcome of {_tasks(outcome.unknown)}")
    raise SinkError(
        f"{batch} is decided, but {' and '.join(told)}. Go on without these rows by `barnabas "
        f"pipeline recover {sink_id} --accept`, or write the batch again, the other tasks' rows "
        "twice, by --rewrite"
    )


async def finish(port: SinkPort, winners: Sequence[DecidedWinner]) -> SinkOutcome:
    """Commit decided transactions until none is open; raises KafkaError."""
    clients = {each.transactional_id: each.client for each in winners}
    outcome = SinkOutcome([], [])
    pending = list(winners)
    deadline = port.now_ms() + PATIENCE_MS
    backoff = Backoff(_FIRST_WAIT)
    while pending:
        again: list[DecidedWinner] = []
        doubtful: list[DecidedWinner] = []
        error: KafkaError | None = None
        ends = [
            End(each.transactional_id, clients[each.transactional_id], True) for each in pending
        ]
        for winner, answer in zip(pending, await port.end(ends), strict=True):
            if answer is None:
                continue
            error = answer
            if answer.code in ANOTHER_OWNER:
                doubtful.append(winner)
            elif answer.code.retriable:
                again.append(winner)
            else:
                raise answer
        if doubtful:
            again += await _ask_log(port, doubtful, clients, outcome)
        if again:
            if error is not None and port.now_ms() > deadline:
                raise error
            await port.sleep(backoff.failed())
        pending = again
    return outcome


async def _ask_log(
    port: SinkPort,
    doubtful: Sequence[DecidedWinner],
    clients: dict[str, Identity],
    outcome: SinkOutcome,
) -> list[DecidedWinner]:
    """Return the transactions that are still open, and note who may end them now.

    A late repetition of a pin may have changed the client's identity after the decision.
    """
    fates = await port.fates([FirstRecord(each.first, each.ongoing) for each in doubtful])
    still_open = []
    for winner, fate in zip(doubtful, fates, strict=True):
        if fate is Fate.OPEN:
            still_open.append(winner)
        elif fate is Fate.ABORTED:
            outcome.lost.append(winner)
        elif fate is Fate.GONE:
            outcome.unknown.append(winner)
    if still_open:
        rows = await port.describe([each.transactional_id for each in still_open])
        for winner, row in zip(still_open, rows, strict=True):
            if row is not None and row.ongoing == winner.ongoing:
                clients[winner.transactional_id] = row.client
    return still_open


# -- texts ---------------------------------------------------------------------------------------

_NO_TWO_PHASE: Final = frozenset(
    (
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
    )
)
_SHORTER_OR_LONGER: Final = (
    "make batches smaller (maxOffsetsPerTrigger), or transactionTimeout longer, up to the "
    "brokers' transaction.max.timeout.ms"
)
_NAMED_TASKS: Final = 5


def _tasks(rows: Sequence[Winner | DecidedWinner]) -> str:
    """Return the tasks' ids with their rows, the first few by name."""
    named = ", ".join(f"{each.transactional_id} ({each.rows} rows)" for each in rows[:_NAMED_TASKS])
    more = len(rows) - _NAMED_TASKS
    return f"{named} and {more} more tasks" if more > 0 else named


def _another_query(sink_id: str, query_id: str, last: SinkDecision) -> str:
    return (
        f"sink {sink_id} belongs to query {last.query_id}, which decided batch {last.number}; "
        f"this is query {query_id}. Choose another sinkId, or start with "
        f"takeOverFrom={last.query_id} if that query never runs again"
    )


def decoded(sink_id: str, value: bytes) -> SinkDecision:
    """Return the decision of a record; raises SinkError."""
    try:
        return decode(value)
    except DecisionError as error:
        raise SinkError(
            f"a record in {decisions_topic(sink_id)} is no decision: {error}. The topic belongs "
            "to the sink alone: choose another sinkId"
        ) from error
