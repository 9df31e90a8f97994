"""Steps that repeat: a coordinator with remembered requests has the same log, answers and state."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.coordinator.soon import map_answer
from barnabas.coordinator.transaction.ending import EndTxn
from barnabas.coordinator.transaction.metadata import LAST_CLIENT_EPOCH, TV0, TV2, Producer
from barnabas.coordinator.transaction.partitions import AddPartitions
from barnabas.coordinator.transaction.producers import InitProducerId
from barnabas.coordinator.transaction.records import TransactionRecord
from barnabas.coordinator.transaction.repeated import MOST_STEPS, RepeatedStep
from barnabas.coordinator.transaction.states import TransactionState
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.java_hash import partition_for
from barnabas.protocol.topic_partition import TopicPartition
from tests.support.mutants import cases, finds, hunt
from tests.unit.coordinator.story import (
    CRASHES,
    EXPIRIES,
    REFUSALS,
    STEPS,
    VERSIONS,
    Commits,
    Step,
    Story,
)
from tests.unit.coordinator.transactions import FIRST_ID, ID, A, B, Transactions, transaction

AB = (A, B)
MANY = tuple(TopicPartition("many", index) for index in range(9))
AGAIN, ASK = RepeatedStep.again, RepeatedStep._ask


class Repeating(Story):
    """A story in which some requests come from a client that sends them again and again."""

    def __init__(self, *, remembers: bool) -> None:
        super().__init__(Commits.AT_ONCE)
        self.remembers = remembers
        self.served = 0
        """The requests that were served as repeated ones."""
        self.connection = 1
        self.owner: str | None = None
        self.former = self.producer
        """The client before the present one."""
        self._known: dict[object, Any] = {}

    def _repeated(self, key: object, request: Any, commits: bool, ask: Callable[[], Any]) -> None:
        known = self._known.get(key) if self.remembers else None
        if known is None:
            self._known[key] = self.transactions.coordinator.repeated(request)
        elif (served := self.transactions.again(known, self.producer, commits)) is not None:
            self.served += 1
            # A client of the older protocol goes on with the same producer.
            same = self.producer if isinstance(request, EndTxn) else None
            self._heard(lambda: served or same)
            return
        self._heard(ask)

    def _add(self, partitions: tuple[Any, ...], version: int) -> None:
        coordinator, producer = self.transactions.coordinator, self.producer
        connection = self.connection if version < TV2 else None
        request = AddPartitions(ID, producer, partitions, version, connection, self.owner)
        self._repeated(
            (partitions, version, connection, self.owner),
            request,
            False,
            lambda: coordinator.add_partitions(request),
        )

    def _end(self, commits: bool, version: int) -> None:
        coordinator, producer = self.transactions.coordinator, self.producer
        request = EndTxn(ID, producer, commits, version, None, self.connection, self.owner)
        self._repeated(
            (version, self.connection, self.owner),
            request,
            commits,
            lambda: coordinator.end(request),
        )

    def _again(self, count: int, version: int) -> None:
        """Let transactions follow each other."""
        for _ in range(count):
            self._add((A,), version)
            self._end(True, version)
            self._mark()

    def _init(self, resumes: bool) -> None:
        self.former = self.producer
        expected = self.producer if resumes and self.producer.epoch >= 0 else None
        asked = InitProducerId(ID, 60_000, expected, "host", principal=self.owner)
        coordinator = self.transactions.coordinator
        self._heard(lambda: map_answer(coordinator.init_producer_id(asked), lambda it: it.producer))

    def _keep(self, two_phase: bool) -> None:
        self.former = self.producer
        self._heard(lambda: self.transactions.keep(two_phase=two_phase))

    def _former(self, *step: Any) -> None:
        """Let the client before ask."""
        now, self.producer = self.producer, self.former
        getattr(self, "_" + step[0])(*step[1:])
        self.producer = now

    def _client(self, name: str, value: Any) -> None:
        """Change the client's connection or owner."""
        setattr(self, name, value)

    def _broker(self, name: str, value: Any) -> None:
        """Change what the coordinator meets; see `Transactions`."""
        setattr(self.transactions, name, value)

    async def _crash(self, survives: bool) -> None:
        await super()._crash(survives)
        self.postpone_nothing()

    async def _expire(self) -> None:
        if self.transactions.log.refusal is None:
            # A refused record would be tried again for days.
            await super()._expire()

    def postpone_nothing(self) -> None:
        """Let the order of records be that of the steps; see `test_postponed_records`."""
        self.transactions.hosted.postponed.refused = True

    @property
    def outcome(self) -> object:
        entry = self.transactions.table.ids.get(ID)
        state = entry and (
            entry.pending,
            entry.deadline_ms,
            entry.latest_use,
            entry.refused_end,
            entry.witness and (entry.witness.asked, set(entry.witness.told)),
        )
        return super().outcome, state, self.transactions.log.records


async def told(steps: list[Step], *, remembers: bool) -> Repeating:
    story = Repeating(remembers=remembers)
    await story.transactions.load()
    story.postpone_nothing()
    for step in [("init", False), *steps, ("refuse", None), ("release",)]:
        await story.take(step)
    return story


def same(steps: list[Step]) -> int:
    """Tell a story twice, compare, and return how many requests were served as repeated ones."""
    one, other = (asyncio.run(told(steps, remembers=remembers)) for remembers in (True, False))
    assert one.outcome == other.outcome
    assert not other.served
    return one.served


def step(kind: str, *arguments: Any) -> st.SearchStrategy[Step]:
    return st.tuples(st.just(kind), *arguments)


EXTRA = st.one_of(
    step("again", st.integers(1, 3), VERSIONS),
    step("broker", st.sampled_from(("leads", "refuses_ends")), st.booleans()),
    step("broker", st.just("version"), VERSIONS),
    step("broker", st.just("verification"), st.sampled_from((None, "leaders ask"))),
    step("client", st.just("connection"), st.integers(1, 3)),
    step("client", st.just("owner"), st.sampled_from((None, "User:a", "User:b"))),
    step("keep", st.booleans()),
    step("add", st.just(MANY), VERSIONS),
    step("former", st.just("add"), st.just((A,)), VERSIONS),
    step("former", st.just("end"), st.booleans(), VERSIONS),
)


@settings(max_examples=400, deadline=None)
@given(st.lists(STEPS | EXTRA | REFUSALS | CRASHES | EXPIRIES, max_size=30))
def test_repeated_steps_change_nothing(steps: list[Step]) -> None:
    same(steps)


LEADS: Step = ("broker", "leads", True)
KNOWN: list[Step] = [
    LEADS, ("add", (), TV0), ("add", AB, TV0), ("end", True, TV0), ("again", 2, TV0),
    ("again", 2, TV2),
]  # fmt: skip
ADDS_AB = ("add", AB, TV0)
ADDS, ADDS_B, ENDS = ("add", (A,), TV0), ("add", (B,), TV0), ("end", True, TV0)
FORMER_ADDS, FORMER_ENDS = ("former", *ADDS), ("former", *ENDS)
LATER = [ADDS, ("pass", 7), ("add", AB, TV0)]
FEATURE = [("again", 3, TV0), ("broker", "version", 0), ("again", 1, TV0)]
CONNECTIONS = [("client", "connection", 2), ADDS, ("client", "connection", 1)]
FIRST_OWNER, SECOND_OWNER = ("client", "owner", "User:a"), ("client", "owner", "User:b")
RESUMES = [FIRST_OWNER, ("init", False), ("client", "owner", None), ADDS, ENDS]
REQUIRE_OWNER = "entry.require_owner(request.principal)"
IS_PRODUCER = "producer != (producer_id, epoch) or "
OF_SHAPE = "producer_id, timeout_ms, state, "
SENDS = "if table.send_markers(_new(Markers, markers), now_ms)"


@cases(
    "story",
    ([("expire",), ADDS], (AGAIN, "entry is None or ")),
    ([("init", False), FORMER_ADDS], (AGAIN, IS_PRODUCER)),
    ([("init", False), ADDS, FORMER_ENDS],),
    ([*CONNECTIONS, ADDS_AB], (AGAIN, "entry.admit(_new(Producer, producer), connection)", "pass")),
    ([*CONNECTIONS, ENDS], (AGAIN, "entry.latest_use != ", "entry.latest_use == ")),
    ([("again", 1, TV2)], (AGAIN, "connection is not None and ")),
    (FEATURE, (AGAIN, "table.transaction_version()", "0")),
    ([("again", 3, TV0), ADDS, ("end", False, TV0)], (AGAIN, "version, committed", "version, 1")),
    (RESUMES, (AGAIN, OF_SHAPE + "partitions, distance, rest, version", "version")),
    ([("broker", "leads", False), ADDS, ENDS], (AGAIN, SENDS + ":", SENDS + " or True:")),
    (
        [("broker", "refuses_ends", True), ADDS, ENDS, ("pass", 200)],
        (AGAIN, "table.marked(self._id, following)", "pass"),
    ),
    ([FIRST_OWNER, ("init", False), SECOND_OWNER, ADDS] * 2, (ASK, REQUIRE_OWNER, "pass")),
    ([SECOND_OWNER, ADDS, ENDS, FIRST_OWNER, ("init", False), ADDS, SECOND_OWNER, ENDS],),
    ([("broker", "leads", False), ADDS, ENDS, ADDS], (ASK, "entry.require_free()", "pass")),
    ([ADDS, ("keep", False), ("former", *ADDS_AB)], (ASK, "entry.require(txn.producer)", "pass")),
    ([ADDS, ADDS], (ASK, " or partitions.issuperset(request.partitions)")),
    ([ADDS, ("keep", False), FORMER_ENDS], (ASK, "reply is not EndTxnReply.DECIDE or ")),
    (LATER, (AGAIN, "if state is not _ONGOING", "if True")),
    ([("end", False, TV2)], (ASK, "0 < len(partitions)", "len(partitions)")),
)  # fmt: skip
def test_known_requests_change_nothing_either(story: list[Step]) -> None:
    assert same(KNOWN + story)


@cases(
    "story, served",
    ([("again", 5, TV0)], 8),
    ([("again", 5, TV2)], 8),
    ([LEADS, ("again", 5, TV0)], 8),
    ([LEADS, ("again", 5, TV2)], 8),
    # The partitions were added to the transaction before, which was over.
    ([("again", 2, TV0), ("add", MANY, TV0), ("again", 2, TV0)], 4),
    (
        [("add", MANY, TV0), ENDS, ("mark",)] * 3, 0,
        (ASK, "len(target.partitions) > FEW or "), (ASK, "<= FEW", "<= 99"),
    ),
)  # fmt: skip
def test_transactions_of_few_partitions_that_follow_each_other_repeat(
    story: list[Step], served: int
) -> None:
    assert same(story) == served


WRITES = "if not _write(hosted, target, epoch, start_ms, last_epoch, now)"


@finds(AGAIN, WRITES + ":", WRITES + " and False:")
async def test_replay_that_fails_ends_the_service() -> None:
    for fails_after in (0, 1):
        story = await told([LEADS, ("again", 2, TV0)], remembers=True)
        here = story.transactions
        if fails_after:
            story._add((A,), TV0)
        here.shard.replay = _fail  # type: ignore[method-assign]
        story.answers.clear()
        story._end(True, TV0) if fails_after else story._add((A,), TV0)
        assert story.answers == [(ErrorCode.NOT_COORDINATOR, None)]
        assert len(here.faults) == 1


def _fail(*_: object) -> None:
    raise ValueError("a bug")


@finds(AGAIN, " or epoch + self._bumps > LAST_CLIENT_EPOCH")
async def test_last_epoch_is_left_to_the_general_way() -> None:
    """The next step needs another producer id, and no client has the epoch above."""
    for epoch in (LAST_CLIENT_EPOCH, LAST_CLIENT_EPOCH + 1):
        open_now = transaction(TransactionState.ONGOING, epoch, partitions=frozenset({A}))
        here = await Transactions().write(open_now).load()
        producer = Producer(FIRST_ID - 1, epoch)
        ends = here.coordinator.repeated(EndTxn(ID, producer, True, TV2, None, 1))
        assert here.again(ends, producer) is None
        adds = here.coordinator.repeated(AddPartitions(ID, producer, (B,), TV2))
        assert here.again(adds, producer) == (() if epoch == LAST_CLIENT_EPOCH else None)
        assert here.state == "Ongoing"


@finds(AGAIN, " or epoch + self._bumps > LAST_CLIENT_EPOCH")
async def test_epoch_that_no_client_has_is_refused() -> None:
    """The state has the same shape as before."""
    empty = transaction(TransactionState.EMPTY, LAST_CLIENT_EPOCH)
    here = await Transactions().write(empty).load()
    producer = Producer(FIRST_ID - 1, LAST_CLIENT_EPOCH)
    adds = here.coordinator.repeated(AddPartitions(ID, producer, (A,), TV0))
    for _ in range(2):
        assert here.again(adds, producer) == ()
        here.end(producer, commits=False, version=TV0)
        here.mark()
    above = Producer(FIRST_ID - 1, LAST_CLIENT_EPOCH + 1)
    here.table.replay(TransactionRecord(ID, here.txn._replace(epoch=above.epoch)))
    assert here.again(adds, above) is None


@finds(AGAIN, " and table.settings.fences_older_connections")
async def test_guard_of_older_connections_may_be_off() -> None:
    here = await Transactions(fences_older_connections=False).load()
    producer = here.init()
    for connection in (2, 1):
        add = AddPartitions(ID, producer, (A,), TV0, connection)
        for request in (add, EndTxn(ID, producer, True, TV0, None, connection)):
            assert here.again(here.coordinator.repeated(request), producer) == ()
        here.mark()
    assert here.table.ids[ID].latest_use is None


@finds(ASK, "len(self._steps) >= MOST_STEPS", "False")
async def test_few_steps_are_remembered() -> None:
    here = await Transactions().load()
    producer = here.init()
    ends = here.coordinator.repeated(EndTxn(ID, producer, True, TV0, None, 1))
    for number in range(2 * MOST_STEPS):
        here.add(producer, TopicPartition("t", number))
        assert here.again(ends, producer) == ()
        here.mark()
        assert len(ends._steps) <= MOST_STEPS


@finds(AGAIN, "or self._changes != self._metadata.topic_changes")
@finds(AGAIN, "or not hosted.serving")
async def test_shard_is_looked_for_where_it_is() -> None:
    """After another election, and when the transaction topic has got more partitions."""
    here = await Transactions().load()
    producer, partitions = here.init(), [1]
    here.coordinator.partitions = lambda: partitions[0]
    metadata = here.coordinator.metadata = SimpleNamespace(
        topic_changes=0, partition=lambda *_: "known"
    )
    adds = here.coordinator.repeated(AddPartitions(ID, producer, (A,), TV2))
    assert here.again(adds, producer) == ()
    old = here.hosted
    await here.load()
    assert here.hosted is not old
    here.end(producer)
    here.mark()
    assert here.again(adds, here.txn.producer) == ()
    here.end(here.txn.producer)
    here.mark()
    producer = here.txn.producer
    partitions[0] = next(each for each in range(2, 99) if partition_for(ID, each))
    metadata.topic_changes += 1
    assert here.again(adds, producer) is None
    partitions[0] = 1
    assert here.again(adds, producer) == ()


test_missing_check_is_found = hunt(globals())
