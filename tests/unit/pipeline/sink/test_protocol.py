"""Commit and abort of a sink, case by case, on a model of the cluster."""

from collections.abc import Coroutine, Sequence
from typing import Any

import pytest

from barnabas.pipeline.sink.port import Fate, Pinned
from barnabas.pipeline.sink.protocol import (
    Batch,
    SinkError,
    SinkSettings,
    Winner,
    abort,
    check_owner,
    commit,
    is_task_id,
)
from barnabas.protocol.errors import ErrorCode, KafkaError
from tests.support.sink.model import Model, ModelPort
from tests.support.sink.story import run_at_once

EXACTLY = SinkSettings("sink", 60_000)
BOUNDED = EXACTLY._replace(bounded=True)
FIRST = Batch("q", 0, "d")


class Refusing(ModelPort):
    """A port whose pins are refused."""

    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

    async def pin(self, transactional_ids: Sequence[str]) -> list[Pinned | KafkaError]:
        return [KafkaError(self.code) for _ in transactional_ids]


class Sink:
    """A sink on a model."""

    def __init__(self) -> None:
        self.model = Model()

    def port(self) -> ModelPort:
        return ModelPort(self.model, "sink.driver")

    def task(self, number: int) -> Winner:
        port = self.port()
        name = f"sink.p.{number}"
        producer = self.model.init(name)
        place = run_at_once(port.write(name, producer, (0, number)))
        return Winner(name, producer, 10 + number, place, self.model.time_ms)

    def tasks(self, count: int, first: int = 0) -> list[Winner]:
        return [self.task(first + each) for each in range(count)]

    def run(self, work: Coroutine[Any, Any, None]) -> list[Fate]:
        run_at_once(work)
        return self.fates()

    def fates(self) -> list[Fate]:
        self.model.write_markers()
        return [each.fate for each in self.model.written]


@pytest.fixture
def sink() -> Sink:
    return Sink()


@pytest.mark.parametrize(
    ("transactional_id", "belongs"),
    [
        ("orders.p.0", True),
        ("orders.host-1-ab.12", True),
        ("orders.driver", False),
        ("orders.p.driver", False),
        ("orders.eu.p.0", False),
        ("orders.eu.driver", False),
        ("orders..0", False),
        ("orders.p.", False),
        ("other.p.0", False),
        ("xorders.p.0", False),
    ],
)
def test_ids_of_a_sink_are_not_those_of_a_sink_with_a_longer_name(
    transactional_id: str, belongs: bool
) -> None:
    assert is_task_id("orders", transactional_id) is belongs


def empty(sink: Sink) -> Winner:
    return Winner("sink.p.9", sink.model.init("sink.p.9"), 0, None)


class Dying(ModelPort):
    """The port of a driver that dies when it has decided."""

    async def end_decision(self, *, committed: bool) -> None:
        await super().end_decision(committed=committed)
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)


def test_empty_batch_decides_nothing(sink: Sink) -> None:
    sink.run(commit(sink.port(), EXACTLY, FIRST, [empty(sink)]))
    assert sink.model.decisions == []
    assert "sink.driver" not in sink.model.ids


@pytest.mark.parametrize("settings", [EXACTLY, BOUNDED])
@pytest.mark.parametrize("number", [0, 1])
def test_empty_batch_carries_out_the_decision_that_a_dead_driver_left(
    sink: Sink, settings: SinkSettings, number: int
) -> None:
    """Its rows stayed invisible until the next batch with rows, after the commit log had it."""
    with pytest.raises(SinkError):
        sink.run(commit(Dying(sink.model, "sink.driver"), settings, FIRST, sink.tasks(2)))
    assert sink.fates() == [Fate.OPEN] * 2
    batch = FIRST._replace(number=number)
    assert sink.run(commit(sink.port(), settings, batch, [empty(sink)])) == [Fate.COMMITTED] * 2
    assert [each.committed for each, _ in sink.model.decisions] == [True, False]


def test_empty_batch_ends_losing_attempts(sink: Sink) -> None:
    sink.task(5)
    assert sink.run(commit(sink.port(), EXACTLY, FIRST, [empty(sink)])) == [Fate.ABORTED]


def test_empty_batch_of_another_query_ends_nothing(sink: Sink) -> None:
    sink.run(commit(sink.port(), EXACTLY, FIRST, sink.tasks(1)))
    sink.task(5)
    with pytest.raises(SinkError, match="takeOverFrom=q"):
        sink.run(commit(sink.port(), EXACTLY, Batch("new", 0, None), [empty(sink)]))
    assert sink.fates() == [Fate.COMMITTED, Fate.OPEN]


@pytest.mark.parametrize("settings", [EXACTLY, BOUNDED])
def test_committed_batch_ends_losing_attempts(sink: Sink, settings: SinkSettings) -> None:
    winners = sink.tasks(2)
    sink.task(5)
    assert sink.run(commit(sink.port(), settings, FIRST, winners)) == [
        Fate.COMMITTED,
        Fate.COMMITTED,
        Fate.ABORTED,
    ]


def test_abort_ends_every_transaction_of_the_sink(sink: Sink) -> None:
    messages = [sink.task(0), None]
    sink.task(5)
    assert sink.run(abort(sink.port(), EXACTLY, FIRST, messages)) == [Fate.ABORTED] * 2


def test_bounded_abort_ends_own_transactions_alone(sink: Sink) -> None:
    messages = [sink.task(0), None]
    sink.task(5)
    assert sink.run(abort(sink.port(), BOUNDED, FIRST, messages)) == [Fate.ABORTED, Fate.OPEN]


@pytest.mark.parametrize("settings", [EXACTLY, BOUNDED])
def test_abort_after_the_decision_does_not_undo_it(sink: Sink, settings: SinkSettings) -> None:
    winners = sink.tasks(2)
    sink.run(commit(sink.port(), settings, FIRST, winners))
    assert sink.run(abort(sink.port(), settings, FIRST, winners)) == [Fate.COMMITTED] * 2


def test_winner_ended_by_its_timeout_is_told_with_its_age(sink: Sink) -> None:
    winners = sink.tasks(2)
    sink.model.expire()
    with pytest.raises(SinkError, match=r"sink\.p\.0 \(10 rows\), sink\.p\.1 .* after 1000 s, "):
        sink.run(commit(sink.port(), EXACTLY, FIRST, winners))


def test_bounded_batch_needs_half_of_its_time(sink: Sink) -> None:
    winners = sink.tasks(1)
    settings = BOUNDED._replace(transaction_timeout_ms=-1_000)
    with pytest.raises(SinkError, match="more than half of transactionTimeout"):
        sink.run(commit(sink.port(), settings, FIRST, winners))
    assert sink.fates() == [Fate.ABORTED]
    winners = sink.tasks(1, first=1)
    sink.run(commit(sink.port(), settings._replace(two_phase_tasks=True), FIRST, winners))


def test_bounded_loss_is_found_when_the_decision_is_carried_out(sink: Sink) -> None:
    class Slow(ModelPort):
        async def end_decision(self, *, committed: bool) -> None:
            await super().end_decision(committed=committed)
            sink.model.expire()
            sink.model.write_markers()

    with pytest.raises(SinkError, match=r"is decided, but sink\.p\.0 \(10 rows\).*--accept"):
        sink.run(commit(Slow(sink.model, "sink.driver"), BOUNDED, FIRST, sink.tasks(1)))


@pytest.mark.parametrize(
    "code", [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_VERSION]
)
def test_missing_two_phase_commit_is_named(sink: Sink, code: ErrorCode) -> None:
    port = Refusing(sink.model, "sink.driver")
    port.code = code
    with pytest.raises(SinkError, match=r"transaction\.two\.phase\.commit\.enable=true"):
        sink.run(commit(port, EXACTLY, FIRST, sink.tasks(2)))
    assert sink.fates() == [Fate.ABORTED] * 2


def test_decision_without_an_answer_leaves_its_transactions_open(sink: Sink) -> None:
    class Silent(ModelPort):
        async def end_decision(self, *, committed: bool) -> None:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"committed={committed}")

    with pytest.raises(SinkError, match="may be committed"):
        sink.run(commit(Silent(sink.model, "sink.driver"), EXACTLY, FIRST, sink.tasks(2)))
    assert sink.fates() == [Fate.OPEN] * 2


def test_reused_id_is_left_to_its_new_transaction(sink: Sink) -> None:
    winners = sink.tasks(2)
    sink.task(1)
    with pytest.raises(SinkError, match=r"sink\.p\.1"):
        sink.run(commit(sink.port(), EXACTLY, FIRST, winners))
    assert sink.fates() == [Fate.ABORTED, Fate.ABORTED, Fate.OPEN]


def test_owner_is_checked_before_a_query_writes(sink: Sink) -> None:
    run_at_once(check_owner(sink.port(), EXACTLY, "new"))
    sink.run(commit(sink.port(), EXACTLY, FIRST, sink.tasks(1)))
    run_at_once(check_owner(sink.port(), EXACTLY, "q"))
    with pytest.raises(SinkError, match="takeOverFrom=q"):
        run_at_once(check_owner(sink.port(), EXACTLY, "new"))
    run_at_once(check_owner(sink.port(), EXACTLY._replace(take_over_from="q"), "new"))


def test_foreign_record_among_the_decisions_is_refused(sink: Sink) -> None:
    port = sink.port()
    run_at_once(port.fence())
    run_at_once(port.write_decision(b"hello"))
    run_at_once(port.end_decision(committed=True))
    with pytest.raises(SinkError, match="is no decision: it is not JSON"):
        sink.run(commit(sink.port(), EXACTLY, FIRST, sink.tasks(1)))


def test_taking_over_carries_out_the_old_decision_first(sink: Sink) -> None:
    with pytest.raises(SinkError):
        sink.run(commit(Dying(sink.model, "sink.driver"), EXACTLY, FIRST, sink.tasks(2)))
    winners = sink.tasks(1, first=2)
    settings = EXACTLY._replace(take_over_from="q")
    assert (
        sink.run(commit(sink.port(), settings, Batch("new", 0, None), winners))
        == [Fate.COMMITTED] * 3
    )
