"""Steps that repeat: a coordinator with remembered requests has the same log, answers and state."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.coordinator.soon import map_answer
from barnabas.coordinator.transaction.ending import EndTxn
from barnabas.coordinator.transaction.metadata import LAST_CLIENT_EPOCH, TV0, TV2, Producer
from barnabas.coordinator.transaction.partitions import AddPartitions
from barnabas.coordinator.transaction.producers import InitProducerId
from barnabas.coordinator.transaction.records import TransactionRecord
from barnabas.coordinator.transaction.repeated import RepeatedAdd, RepeatedEnd
from barnabas.coordinator.transaction.states import TransactionState
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.java_hash import partition_for
from barnabas.protocol.topic_partition import TopicPartition
from tests.support.mutants import Mutant, require_found
from tests.unit.coordinator.story import CRASHES, EXPIRIES, REFUSALS, STEPS, Commits, Step, Story
from tests.unit.coordinator.transactions import (
    FIRST_ID,
    ID,
    A,
    B,
    Transactions,
    transaction,
)

MANY = tuple(TopicPartition("many", index) for index in range(9))
OWNERS = (None, "User:a", "User:b")


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

    def _repeated(
        self, key: object, make: Callable[[], Any], serve: Callable[[Any], Any], ask: Any
    ) -> None:
        known = self._known.get(key) if self.remembers else None
        if known is None:
            self._known[key] = make()
        elif served := serve(known):
            self.served += 1
            self._heard(lambda: None if served is True else served)
            return
        self._heard(ask)

    def _add(self, partitions: tuple[Any, ...], version: int) -> None:
        coordinator, producer = self.transactions.coordinator, self.producer
        connection = self.connection if version < TV2 else None
        request = AddPartitions(ID, producer, partitions, version, connection, self.owner)
        self._repeated(
            (partitions, version, connection, self.owner),
            lambda: coordinator.repeated_add(request),
            lambda known: known.add(producer),
            lambda: coordinator.add_partitions(request),
        )

    def _end(self, commits: bool, version: int) -> None:
        coordinator, producer = self.transactions.coordinator, self.producer
        request = EndTxn(ID, producer, commits, version, None, self.connection, self.owner)
        self._repeated(
            (version, self.connection, self.owner),
            lambda: coordinator.repeated_end(request),
            lambda known: known.end(producer, commits),
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
        self._heard(
            lambda: map_answer(
                self.transactions.coordinator.init_producer_id(asked), lambda given: given.producer
            )
        )

    def _former(self, *step: Any) -> None:
        """Let the client before ask."""
        now, self.producer = self.producer, self.former
        getattr(self, "_" + step[0])(*step[1:])
        self.producer = now

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

    def _refuse_ends(self, refuses: bool) -> None:
        self.transactions.refuses_ends = refuses

    def _led(self, leads: bool) -> None:
        self.transactions.leads = leads

    def _feature(self, version: int) -> None:
        self.transactions.version = version

    def _connect(self, number: int) -> None:
        self.connection = number

    def _log_in(self, owner: str | None) -> None:
        self.owner = owner

    def _keep(self, two_phase: bool) -> None:
        self.former = self.producer
        self._heard(lambda: self.transactions.keep(two_phase=two_phase))

    def _ask_leaders(self, asked: bool) -> None:
        self.transactions.verification = object() if asked else None

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


EXTRA = st.one_of(
    st.tuples(st.just("again"), st.integers(1, 3), st.sampled_from((TV0, TV2))),
    st.tuples(st.just("led"), st.booleans()),
    st.tuples(st.just("feature"), st.sampled_from((TV0, TV2))),
    st.tuples(st.just("connect"), st.integers(1, 3)),
    st.tuples(st.just("log_in"), st.sampled_from(OWNERS)),
    st.tuples(st.just("keep"), st.booleans()),
    st.tuples(st.just("ask_leaders"), st.booleans()),
    st.tuples(st.just("add"), st.just(MANY), st.sampled_from((TV0, TV2))),
    st.tuples(st.just("refuse_ends"), st.booleans()),
    st.tuples(st.just("former"), st.just("add"), st.just((A,)), st.sampled_from((TV0, TV2))),
    st.tuples(st.just("former"), st.just("end"), st.booleans(), st.sampled_from((TV0, TV2))),
)


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


@settings(max_examples=400, deadline=None)
@given(st.lists(STEPS | EXTRA | REFUSALS | CRASHES | EXPIRIES, max_size=30))
def test_repeated_steps_change_nothing(steps: list[Step]) -> None:
    same(steps)


@pytest.mark.parametrize("version", [TV0, TV2])
@pytest.mark.parametrize("leads", [True, False])
def test_transactions_that_follow_each_other_repeat(leads: bool, version: int) -> None:
    assert same([("led", leads), ("again", 5, version)]) == 8


def test_request_that_is_left_to_the_general_way_leaves_no_trace() -> None:
    """The next one had the partitions added to the transaction before, which was over."""
    assert same([("again", 2, TV0), ("add", MANY, TV0), ("again", 2, TV0)]) == 4


def test_transactions_of_many_partitions_are_left_to_the_general_way() -> None:
    story = [("add", MANY, TV0), ("end", True, TV0), ("mark",)]
    assert same(story * 3) == 0


async def test_replay_that_fails_ends_the_service() -> None:
    for fails_after in (0, 1):
        story = await told([("led", True), ("again", 2, TV0)], remembers=True)
        here = story.transactions
        if fails_after:
            story._add((A,), TV0)
        here.shard.replay = _fail  # type: ignore[method-assign]
        story.answers.clear()
        (story._end if fails_after else story._add)(*((True,) if fails_after else ((A,),)), TV0)
        assert story.answers == [(ErrorCode.NOT_COORDINATOR, None)]
        assert len(here.faults) == 1


def _fail(*_: object) -> None:
    raise ValueError("a bug")


async def test_last_epoch_is_left_to_the_general_way() -> None:
    """The next step needs another producer id, and no client has the epoch above."""
    for epoch in (LAST_CLIENT_EPOCH, LAST_CLIENT_EPOCH + 1):
        open_now = transaction(TransactionState.ONGOING, epoch, partitions=frozenset({A}))
        here = await Transactions().write(open_now).load()
        producer = Producer(FIRST_ID - 1, epoch)
        ends = here.coordinator.repeated_end(EndTxn(ID, producer, True, TV2, None, 1))
        assert ends.end(producer, True) is None
        adds = here.coordinator.repeated_add(AddPartitions(ID, producer, (A,), TV2))
        assert adds.add(producer) is (epoch == LAST_CLIENT_EPOCH)
        assert here.state == "Ongoing"


async def test_epoch_that_no_client_has_is_refused() -> None:
    """The state has the same shape as before."""
    empty = transaction(TransactionState.EMPTY, LAST_CLIENT_EPOCH)
    here = await Transactions().write(empty).load()
    producer = Producer(FIRST_ID - 1, LAST_CLIENT_EPOCH)
    adds = here.coordinator.repeated_add(AddPartitions(ID, producer, (A,), TV0))
    for _ in range(2):
        assert adds.add(producer)
        here.end(producer, commits=False, version=TV0)
        here.mark()
    above = Producer(FIRST_ID - 1, LAST_CLIENT_EPOCH + 1)
    here.table.replay(TransactionRecord(ID, here.txn._replace(epoch=above.epoch)))
    assert not adds.add(above)


async def test_guard_of_older_connections_may_be_off() -> None:
    here = await Transactions(fences_older_connections=False).load()
    producer = here.init()
    for connection in (2, 1):
        adds = here.coordinator.repeated_add(AddPartitions(ID, producer, (A,), TV0, connection))
        assert adds.add(producer)
        end = EndTxn(ID, producer, True, TV0, None, connection)
        assert here.coordinator.repeated_end(end).end(producer, True)
        here.mark()
    assert here.table.ids[ID].latest_use is None


async def test_shard_is_looked_for_where_it_is() -> None:
    """After another election, and when the transaction topic has got more partitions."""
    here = await Transactions().load()
    producer, partitions = here.init(), [1]
    here.coordinator.partitions = lambda: partitions[0]
    adds = here.coordinator.repeated_add(AddPartitions(ID, producer, (A,), TV2))
    assert adds.add(producer)
    old = here.hosted
    await here.load()
    assert here.hosted is not old
    assert adds.add(producer)
    partitions[0] = next(each for each in range(2, 99) if partition_for(ID, each))
    assert not adds.add(producer)
    partitions[0] = 1
    assert adds.add(producer)


# -- each check, removed once ----------------------------------------------------------------------

ADD, ASK_ADD, END, ASK_END = RepeatedAdd.add, RepeatedAdd._ask, RepeatedEnd.end, RepeatedEnd._ask
KNOWN: list[Step] = [
    ("led", True),
    ("add", (), TV0),
    ("add", (A, B), TV0),
    ("end", True, TV0),
    ("again", 2, TV0),
    ("again", 2, TV2),
]
LATER: list[Step] = [("add", (A,), TV0), ("pass", 7), ("add", (A, B), TV0)]
OLDER: list[Step] = [("again", 3, TV0)]
QUIET, FOUND = RepeatedAdd._quiet, "test_shard_is_looked_for_where_it_is"
LOST = "test_replay_that_fails_ends_the_service"
LAST = "test_last_epoch_is_left_to_the_general_way"
OFF = "test_guard_of_older_connections_may_be_off"
AB = (A, B)
FOUND_BY_STORIES: tuple[tuple[Any, str, str, list[Step]], ...] = (
    (ADD, "entry is None or ", "", [("expire",), ("add", (A,), TV0)]),
    (END, "entry is None or ", "", [("expire",), ("end", True, TV0)]),
    (
        ADD,
        "producer != (producer_id, epoch) or ",
        "",
        [("init", False), ("former", "add", (A,), TV0)],
    ),
    (
        END,
        "producer != (producer_id, epoch) or ",
        "",
        [("init", False), ("add", (A,), TV0), ("former", "end", True, TV0)],
    ),
    (
        ADD,
        "entry.admit(producer, request.connection)",
        "pass",
        [("connect", 2), ("add", (A,), TV0), ("connect", 1), ("add", (A,), TV0)],
    ),
    (
        END,
        "entry.admit(producer, self._request.connection)",
        "pass",
        [("connect", 2), ("add", (A,), TV0), ("connect", 1), ("end", True, TV0)],
    ),
    (ADD, "request.connection is not None and ", "", [("again", 1, TV2)]),
    (END, "not self._bumps and ", "", [("again", 1, TV2)]),
    (ADD, ", table.transaction_version()", ", 0", [*OLDER, ("feature", 0), ("again", 1, TV0)]),
    (END, ", table.transaction_version()", ", 0", [*OLDER, ("feature", 0), ("again", 1, TV0)]),
    (END, "committed, table", "True, table", [*OLDER, ("add", (A,), TV0), ("end", False, TV0)]),
    (ADD, "_shape(txn), ", "", [("add", (B,), TV0), ("add", (A,), TV0)]),
    (END, "_shape(txn), ", "", [("add", (B,), TV0), ("end", True, TV0)]),
    (ADD, "if request.client_version:", "if False:", [("add", (A,), TV0), ("add", (A,), TV2)]),
    (
        END,
        "if table.send_markers(_new(Markers, markers)):",
        "if table.send_markers(_new(Markers, markers)) or True:",
        [("led", False), ("add", (A,), TV0), ("end", True, TV0)],
    ),
    (
        END,
        "table.marked(self._id, following)",
        "pass",
        [("refuse_ends", True), ("add", (A,), TV0), ("end", True, TV0), ("pass", 200)],
    ),
    (
        ASK_ADD,
        "entry.require_owner(request.principal)",
        "pass",
        [("log_in", "User:a"), ("init", False), ("log_in", "User:b"), ("add", (A,), TV0)] * 2,
    ),
    (
        ASK_END,
        "entry.require_owner(request.principal)",
        "pass",
        [
            ("log_in", "User:b"),
            ("add", (A,), TV0),
            ("end", True, TV0),
            ("log_in", "User:a"),
            ("init", False),
            ("add", (A,), TV0),
            ("log_in", "User:b"),
            ("end", True, TV0),
        ],
    ),
    (
        ASK_ADD,
        "entry.require_free()",
        "pass",
        [("led", False), ("add", (A,), TV0), ("end", True, TV0), ("add", (A,), TV0)],
    ),
    (
        ASK_ADD,
        "entry.require(txn.producer)",
        "pass",
        [("add", (A,), TV0), ("keep", False), ("former", "add", (A,), TV0)],
    ),
    (
        ASK_ADD,
        "txn.partitions.issuperset(request.partitions)",
        "True",
        [
            ("add", AB, TV0),
            ("end", True, TV0),
            ("add", (A,), TV0),
            ("add", AB, TV0),
        ],
    ),
    (
        ASK_END,
        "reply is not Reply.DECIDE or ",
        "",
        [("add", (A,), TV0), ("keep", False), ("former", "end", True, TV0)],
    ),
    (ASK_ADD, "not begins and ", "", [("add", (), TV0)] * 2),
    (
        ADD,
        "now_ms if begins else start_ms",
        "now_ms",
        [("add", (A,), TV0), ("pass", 7), ("add", AB, TV0)],
    ),
    (ADD, "if begins:", "if True:", [("add", (A,), TV0), ("pass", 7), ("add", AB, TV0)]),
    (ASK_END, "0 < len(partitions)", "len(partitions)", [("end", False, TV2)]),
)
MUTANTS = (
    *(Mutant(of, old, new, "same", (KNOWN + story,)) for of, old, new, story in FOUND_BY_STORIES),
    Mutant(QUIET, " or total != self._total", "", FOUND),
    Mutant(QUIET, " or not hosted.serving", "", FOUND),
    Mutant(ADD, " and table.settings.fences_older_connections", "", OFF),
    Mutant(END, " and table.settings.fences_older_connections", "", OFF),
    Mutant(ADD, " or epoch > LAST_CLIENT_EPOCH", "", "test_epoch_that_no_client_has_is_refused"),
    Mutant(END, " or epoch >= LAST_CLIENT_EPOCH", "", LAST),
    Mutant(
        ADD,
        "if not hosted.put(record, encoded, now):",
        "if not hosted.put(record, encoded, now) and False:",
        LOST,
    ),
    Mutant(
        END,
        "if not hosted.put(record, encoded, now):",
        "if not hosted.put(record, encoded, now) and False:",
        LOST,
    ),
    Mutant(
        ASK_ADD,
        "if len(target.partitions) > FEW:",
        "if False:",
        "test_transactions_of_many_partitions_are_left_to_the_general_way",
    ),
    Mutant(
        ASK_END,
        "<= FEW",
        "<= 99",
        "test_transactions_of_many_partitions_are_left_to_the_general_way",
    ),
)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.title)
def test_missing_check_is_found(mutant: Mutant) -> None:
    if mutant.found_by == "same":
        same(*mutant.arguments)
    require_found(mutant, globals())
