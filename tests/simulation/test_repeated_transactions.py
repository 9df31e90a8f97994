"""Requests about transactions that repeat (AddPartitionsToTxn of clients and leaders, EndTxn and
WriteTxnMarkers): histories of a broker that remembers them and of one that does not."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, patch

from barnabas.broker.handlers import add_partitions_to_txn as adding
from barnabas.broker.handlers import end_txn as ending
from barnabas.broker.handlers import write_txn_markers as marking
from barnabas.broker.server import repeats
from barnabas.broker.server.repeats import FEW, Repeats
from barnabas.broker.transactions import marker_sender
from barnabas.broker.transactions.marker_sender import MarkerSender
from barnabas.broker.transactions.marker_writer import MarkerWriter
from barnabas.coordinator.transaction import partitions as rules
from barnabas.coordinator.transaction.repeated import RepeatedStep
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import end_txn, write_txn_markers
from barnabas.protocol.steps import at_once
from barnabas.protocol.template import Templates
from barnabas.protocol.topic_partition import TopicPartition
from tests.simulation.repeats.batches import batch
from tests.simulation.repeats.twins import frame, message
from tests.simulation.repeats.world import (
    T0,
    T1,
    U0,
    Marker,
    Step,
    World,
    asks,
    do,
    happens,
    marker,
    markers_of,
    world,
)
from tests.support.mutants import cases, finds, hunt

V0 = TopicPartition("v", 0)
MISSING_TOPIC = do("delete", "t", wait_s=5)


def question(*asked: Any, **fields: Any) -> Step:
    return do("question", *asked, **fields)


# -- questions of leaders --------------------------------------------------------------------------

OF_X, OF_OTHER = asks("x", T0), asks("another id", T0)
ABOVE = asks("x", T0, epochs=1)
BOTH_ADD = asks("x", T0, T1, adds=True)
ADD_X, END_X = do("add", "x", T0, T1), do("end", "x").says("NONE")
ASKED = [
    step
    for who in ("x", "another id")
    for step in (do("add", who, T0, U0).says("NONE"), question(asks(who, T0)).slow)
]
"""Both producers are in a transaction, as a leader knows."""


def pending(*partitions: TopicPartition) -> Any:
    """Return the step by which the transaction of `x` is about to have these partitions only."""

    def change(it: World) -> None:
        for side in it.pair.sides:
            coordinator = side.broker._coordination.transactions.coordinator
            entry = next(coordinator._runtime.served())[1].ids["x"]
            left = entry.txn._replace(partitions=frozenset(partitions))
            entry.pending = left if partitions else None

    return change


@cases(
    "story",
    (
        [
            question(OF_X).quick, question(OF_X, OF_OTHER).quick, END_X, do("add", "x", T0),
            question(OF_X).quick,
        ],
    ),
    (
        [
            *[question(each).slow for each in (
                asks("x", T1), asks("stranger", T0), asks("x", T0, principal="User:a"),
                asks("x", T0, adds=True), asks("x", T0, U0),
            )],
            question(asks("x", T0, U0)).quick, question(OF_X).quick,
        ],
    ),
    (
        [
            question(ABOVE).slow, question(OF_OTHER, ABOVE).slow,
            END_X, question(OF_X).slow, do("add", "x", U0), question(OF_X).slow,
            question(OF_OTHER, OF_X).slow, do("init", "x"), do("add", "x", T0),
            question(asks("x", T0, epochs=-1)).slow, question(OF_X).quick,
        ],
        (rules.verify_all, "if any(answers.values()):", "if False:"),
    ),
    (
        [pending(U0), question(OF_X).slow, pending()],
        (rules._answers, "txn.partitions if pending is None else", "txn.partitions if True else"),
    ),
    (
        [
            END_X, question(BOTH_ADD).slow, END_X, question(BOTH_ADD).quick, END_X,
            question(BOTH_ADD, OF_OTHER).slow, question(OF_OTHER, BOTH_ADD).slow,
            question(asks("x", T0, T1, adds=True, epochs=-1)).slow,
        ],
        (adding._verify_again, "elif len(asked) > 1:", "elif False:"),
    ),
    ([question().slow], (Repeats._serve_by_element, "if not 0 < count <= FEW:", "if count > FEW:")),
    # Another client's questions are forgotten.
    (
        [
            question(OF_X, client=b"broker-2").slow, question(OF_X, client=b"broker-2").quick,
            question(OF_OTHER, client=b"broker-2").slow,
        ],
        (Repeats._learn_elements, " or head != self._head"),
    ),
    (
        [MISSING_TOPIC, question(OF_X).slow],
        (adding._verify_again, "if None in [cache", "if False and [cache"),
        (Repeats._serve_by_element, "if answers is None:", "if False:"),
    ),
)  # fmt: skip
def test_question_about_a_known_transaction_is_answered(story: list[Any]) -> None:
    happens(*ASKED, *story)


@finds(rules._answers, "if txn.state in PREPARED:", "if False:")
def test_transaction_that_waits_for_markers_is_refused() -> None:
    with (
        world(*ASKED) as it,
        patch.object(marker_sender, "AT_ONCE", 0),
        patch.object(MarkerSender, "_send_due"),
    ):
        it.tell(END_X, question(OF_X).slow)


def odd_bytes(whole: bytes, on: int, *known: Any) -> list[Any]:
    """Return steps that send other bytes than a request, which is known again behind each. The
    wrong ones may close the connection."""
    header = 8 + 2 + len("broker-0") + 1
    wrong = [
        *[whole[:size] for size in range(header, len(whole))],
        whole + b"\0",
        whole[:-1] + b"\1",
    ]
    return [
        step for each in wrong for step in (do("exchange", each, on=on, answers=0).slow, *known)
    ]


@finds(Templates.find_at, "if size <= left:", "if True:")
@finds(Repeats._serve_by_element, "not data.startswith(self._head, _CONTENT_AT) or ")
@finds(Repeats._serve_by_element, " or len(data) == at")
@finds(Repeats._serve_by_element, "if data[at:] != form.request.behind:", "if False:")
@finds(Repeats._learn_elements, "if data[body:] != encode(request, self._version):", "if False:")
def test_other_bytes_of_questions_are_left_to_the_handler() -> None:
    known = question(OF_X), question(OF_X).quick
    with world(*ASKED, known[1], question(OF_X, client=b"broker-3").slow, known[0]) as it:
        asked = {"client": b"broker-1", "transactions": it.questions(OF_X)}
        it.tell(*odd_bytes(frame("add_partitions_to_txn", 5, **asked), 1, *known))
        it.tell(question(asks("x", U0), behind=b"\0").slow, question(asks("x", U0)).slow)


@finds(Repeats._has_room, "self._templates.count >= most or ")
def test_connection_remembers_a_bounded_number_of_questions() -> None:
    with patch.multiple(repeats, MOST_ELEMENTS=1, COST_OF_ELEMENT=9):
        happens(*ASKED, question(OF_OTHER).slow, question(OF_X).quick)


@finds(adding._verified_again, "version != VERIFICATIONS.version or ")
@finds(
    adding._verified_again,
    "or any(_any_refused(each.topic_results) for each in response.results_by_transaction)",
)
def test_older_version_and_refused_questions_are_not_remembered() -> None:
    refused, older = question(asks("x", T1)), question(OF_X, version=4)
    first = do("add", "x", T0), refused.slow, refused.slow, do("add", "x", T1)
    happens(*first, refused.slow, refused.quick, older.slow, older.slow)


# -- clients ---------------------------------------------------------------------------------------

ADD_V = do("add", "x", T0, V0)
NEXT_Y = [question(asks("y", T0, adds=True)), do("end", "y").quick]


@cases(
    "story",
    ([do("init", "x"), ADD_X.slow, END_X.slow, *2 * [ADD_X.quick, END_X.quick]],),
    # An answer to a request that the client sends again, and a producer that is fenced.
    (
        [
            do("init", "y"), NEXT_Y[0], do("end", "y").slow, *NEXT_Y, NEXT_Y[0],
            do("end", "y", commit=False).quick, *NEXT_Y, do("end", "y", epochs=-1).says("NONE"),
            do("end", "y", epochs=-3).says("PRODUCER_FENCED"),
        ],
    ),
    (
        [*2 * [ADD_V.slow, do("end", "x").slow], do("create", "v"), ADD_V.slow],
        (adding.again, "or _any_refused(response.results_by_topic_v3_and_below)"),
    ),
    (
        [*2 * [do("add", "x", U0), END_X], do("delete", "u", wait_s=5), do("add", "x", U0).slow],
        (RepeatedStep._find, "or None in [partition(*each) for each in self._named]"),
        (RepeatedStep.again, "or self._changes != self._metadata.topic_changes"),
    ),
    (
        [do("init", "x"), *3 * [do("add", "x", T0, group_id="g").slow, END_X]],
        (adding.again, "request.group_id is not None or "),
    ),
)  # fmt: skip
def test_client_repeats_its_transactions(story: list[Step]) -> None:
    happens(*story)


@cases(
    "code, written",
    (47, None, (ending.again, "response.error_code or ")),
    (0, [], (ending.again, " or request.written is not None")),
)
def test_end_of_which_the_answer_says_less_than_the_coordinator_is_not_remembered(
    code: int, written: Any
) -> None:
    asked = {"transactional_id": "x", "producer_id": 1, "producer_epoch": 0, "committed": True}
    request = message(end_txn.API.request, **asked, written=written)
    context: Any = SimpleNamespace(api_version=4, connection_id=1, owner=None)
    assert ending.again(Mock(), request, context, end_txn.EndTxnResponse(error_code=code)) is None


# -- markers ---------------------------------------------------------------------------------------

LONG = TopicPartition("a-long-name", 0)
LATER, BROKEN = 5, OSError(5, "broken")


def mark(*markers: Marker, **fields: Any) -> Step:
    return do("mark", *markers, **fields)


def opens(*places: TopicPartition, producer_id: int = 1000, epoch: int = 4) -> list[Step]:
    """Return steps that begin transactions of a producer, which nothing verifies."""
    fields = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": 0}
    records = batch(transactional=True, **fields)
    return [do("write", records, *each, transactional_id="m").says("NONE") for each in places]


def newest_epoch(epoch: int) -> Any:
    def change(it: World) -> None:
        for side in it.pair.sides:
            side.broker._coordination.transactions.origins._newest_epoch = epoch

    return change


def forget_connections(it: World) -> None:
    for side in it.pair.sides:
        side.broker._coordination.transactions.origins._newest_connections.clear()


def break_disk(it: World) -> None:
    for side in it.pair.sides:
        side.partition().log.log_dir.failure = BROKEN
    writer = it.pair.fast.broker._coordination.transactions.writer
    assert not writer.accepts([(T0, marker()[1])], 0)


def one(*fields: Any, on: int = 2, **named: Any) -> Step:
    return mark(marker(*fields, **named), on=on)


# The topic of the coordinators has to be there, whose epochs a marker may have.
OF_BROKERS, MARK, MARK_LONG, NINTH = do("of_brokers"), one(), one(at=LONG), one(coordinator=9)
T0_LAST = mark(marker(2000, U0), marker())
BEGINS = [do("create", "a-long-name"), do("init", "x"), mark(), OF_BROKERS]


@cases(
    "story",
    (
        [
            MARK_LONG.slow, *opens(T0, U0, LONG), MARK.quick, one(at=U0, committed=False).quick,
            *opens(T0, producer_id=2000), mark(marker(2000), marker(at=LONG)).quick,
        ],
    ),
    (
        [
            MARK_LONG.slow, one(coordinator=1).slow, one(version=2).slow, one(-1).slow,
            mark(marker(), marker(at=("v", 0))).slow,
        ],
        (marking._write_again, " or producer_id < 0"),
    ),
    (
        [newest_epoch(9), NINTH.slow, NINTH.quick, newest_epoch(0), NINTH.slow],
        (marking._write_again, "not origins.has_epoch(coordinator_epoch) or "),
    ),
    # A fenced marker alone and among others.
    (
        [
            *opens(T0, U0, epoch=LATER), *opens(U0, producer_id=2000), MARK.slow,
            mark(marker(2000, U0), marker()).slow, *opens(LONG, epoch=LATER), MARK_LONG.slow,
            one(2000, LONG).slow, one(3000, LONG).quick,
        ],
        (marking._write_again, "not writer.accepts(markers, now_ms)", "False"),
        (marking._write_again, "not writer.put(*each, now_ms)", "writer.put(*each, now_ms) > 1"),
        (marking.again, "or results[0].partitions[0].error_code"),
        (MarkerWriter.accepts, "except KafkaError: return False", "except KafkaError: pass"),
    ),
    # Two markers of one producer for one partition.
    (
        [*opens(T0), mark(marker(epoch=LATER), marker()).slow],
        (MarkerWriter.accepts, "len(asked) == len(markers)", "True"),
    ),
    (
        [
            do("lead", isr=[0, 1], replicas=[0, 1]), MARK.slow, T0_LAST.slow,
            do("lead", leader=1, leader_epoch=2, isr=[1], replicas=[0, 1]), MARK.slow,
        ],
        (MarkerWriter.accepts, "or not partition.standing.commits_at_once"),
    ),
    (
        [do("lead", "u", isr=[]), one(at=U0).slow, mark(marker(), marker(2000, U0)).slow],
        (MarkerWriter.accepts, "or partition.is_under_min_isr"),
    ),
    (
        [break_disk, MARK.slow],
        (MarkerWriter.accepts, "or partition.log.log_dir.failure is not None"),
    ),
    ([do("delete"), MARK.slow, T0_LAST.slow], (MarkerWriter.accepts, "partition is None or ")),
    # A later connection of the coordinator; a request that is served again outdates earlier ones.
    (
        [
            MARK.quick, *[one(on=3)] * 2, MARK.slow, forget_connections, one(on=3).quick, MARK.slow,
        ],
        (marking._write_again, "origins.is_outdated(context) or "),
    ),
    (
        [do("of_brokers", are=False), *[MARK_LONG.slow] * 2],
        (marking.again, " or not context.inter_broker"),
    ),
    (
        [mark(*map(marker, range(FEW))).quick, mark(*map(marker, range(FEW + 1))).slow],
        (Repeats._serve_by_element, " <= FEW"),
    ),
)  # fmt: skip
def test_known_marker_is_written_while_it_is_accepted(story: list[Any]) -> None:
    known = MARK.slow, one(at=U0).slow
    happens(*BEGINS, *known, *story, transaction_partition_verification_enable="false")


def test_other_bytes_of_markers_are_left_to_the_handler() -> None:
    whole = frame("write_txn_markers", 2, client=b"broker-0", markers=markers_of(marker()))
    known = MARK, OF_BROKERS, MARK, MARK.quick
    other = mark(marker(), client=b"broker-2").slow
    happens(*BEGINS, MARK.slow, MARK.quick, *odd_bytes(whole, 2, *known), other)


@finds(marking.again, "context.api_version != MARKERS.version or ")
def test_markers_of_an_older_version_are_not_remembered() -> None:
    request = message(write_txn_markers.API.request, markers=markers_of(marker()))
    answer = at_once(marking._results(request, ErrorCode.NONE))
    older: Any = SimpleNamespace(api_version=1, inter_broker=True)
    nothing: Any = None
    assert marking.again(nothing, nothing, False, request, older, answer) is None


@finds(marking.again, "len(topics) != 1 or ")
@finds(marking.again, "len(topics[0].partition_indexes) != 1", "False")
def test_marker_for_several_partitions_or_none_is_left_to_the_handler() -> None:
    t0, twice, u0, none = [
        {"name": name, "partition_indexes": at}
        for name, at in (("t", [0]), ("t", [0, 0]), ("u", [0]), ("t", []))
    ]
    (one,) = markers_of(marker())
    for topics in ([t0, u0], [twice], [none], []):
        asked = do("ask", "write_txn_markers", 2, on=2, markers=[one | {"topics": topics}])
        happens(*BEGINS, MARK.slow, asked.slow, asked.slow)


test_missing_check_is_found = hunt(globals())
