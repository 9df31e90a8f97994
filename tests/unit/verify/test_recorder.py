"""The outcome of an operation in the history."""

import json
from io import StringIO

import pytest

from barnabas.client.cluster import Cluster
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.verify.history import History
from barnabas.verify.wire.recorder import OperationFailed, Recorder


@pytest.mark.parametrize(
    ("answers", "outcome"),
    [
        ([ErrorCode.INVALID_PRODUCER_EPOCH], "fail"),
        ([ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.INVALID_PRODUCER_EPOCH], "fail"),
        ([ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.INVALID_PRODUCER_EPOCH], "info"),
        ([ErrorCode.NOT_COORDINATOR, ErrorCode.INVALID_TXN_STATE], "info"),
    ],
)
async def test_not_leader_error_leaves_the_outcome_unknown(
    answers: list[ErrorCode], outcome: str
) -> None:
    file = StringIO()
    recorder = Recorder(History(file, lambda: 0.0), Cluster("127.0.0.1:1"), "w")
    left = list(answers)

    async def work() -> None:
        raise KafkaError(left.pop(0))

    with pytest.raises(OperationFailed):
        await recorder.do("send", {}, work, lambda _: {})
    assert json.loads(file.getvalue().splitlines()[-1])["type"] == outcome
