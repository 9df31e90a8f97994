"""The sink's protocol when the cluster refuses a request in the middle of a batch."""

from collections.abc import Sequence

import pytest

from barnabas.pipeline.sink.port import End, Fate
from barnabas.pipeline.sink.protocol import (
    Batch,
    SinkError,
    SinkSettings,
    Winner,
    abort,
    commit,
)
from barnabas.protocol.errors import ErrorCode, KafkaError
from tests.support.sink.model import Model, ModelPort
from tests.support.sink.story import run_at_once

BATCH = Batch("query", 0, None)
SETTINGS = SinkSettings("sink", 60_000)


async def written(port: ModelPort, transactional_id: str) -> Winner:
    """Write a task's rows, and return its message."""
    identity = await port.init(transactional_id)
    place = await port.write(transactional_id, identity, "rows")
    return Winner(transactional_id, identity, 1, place)


class FencedAfterDecision(ModelPort):
    """A port whose answer to the decision is lost: another driver has fenced this one since.

    The leader of the decisions topic then answers no reads.
    """

    async def end_decision(self, *, committed: bool) -> None:
        if committed:
            await super().end_decision(committed=True)
            self.model.init(self.driver)
        raise KafkaError(ErrorCode.PRODUCER_FENCED)

    async def decision_fate(self, offset: int) -> Fate:  # noqa: ARG002
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)


def test_winners_stay_open_while_the_fate_of_the_decision_is_unknown() -> None:
    port = FencedAfterDecision(Model(), "sink.driver")
    winner = run_at_once(written(port, "sink.p.0"))
    with pytest.raises(SinkError, match="may be committed"):
        run_at_once(commit(port, SETTINGS, BATCH, [winner]))
    assert port.model.decisions[-1][0].fate is Fate.COMMITTED
    assert port.model.written[0].committed is None


class NoCleaning(ModelPort):
    """A port that loses its coordinators when a transaction is to be aborted."""

    async def end(self, ends: Sequence[End]) -> list[KafkaError | None]:
        if not ends[0].committed:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return await super().end(ends)


def test_committed_batch_does_not_fail_because_the_cleaning_does() -> None:
    port = NoCleaning(Model(), "sink.driver")
    run_at_once(written(port, "sink.p.0"))
    winner = run_at_once(written(port, "sink.p.1"))
    run_at_once(commit(port, SETTINGS, BATCH, [winner]))
    assert [each.committed for each in port.model.written] == [None, True]


@pytest.mark.parametrize(("query", "outcome"), [("other", None), ("query", False), ("", False)])
def test_abort_of_another_query_leaves_the_transactions_of_the_owner(
    query: str, outcome: bool | None
) -> None:
    port = ModelPort(Model(), "sink.driver")
    run_at_once(commit(port, SETTINGS, BATCH, [run_at_once(written(port, "sink.p.0"))]))
    run_at_once(written(port, "sink.p.1"))
    own = run_at_once(written(port, "sink.q.0"))
    run_at_once(port.pin([own.transactional_id]))
    run_at_once(abort(port, SETTINGS, Batch(query, 0, None), [own]))
    assert [each.committed for each in port.model.written] == [True, outcome, False]
