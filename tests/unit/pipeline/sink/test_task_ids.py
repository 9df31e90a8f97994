"""The ids of a process: an id is used again only when its transaction is seen to be completed."""

import pytest

from barnabas.client.producing.partition_queue import ProducerIdAndEpoch
from barnabas.pipeline.sink.task_ids import TaskIds, is_completed

WROTE = ProducerIdAndEpoch(7, 3)


def test_new_ids_are_numbered_under_sink_and_process():
    ids = TaskIds("orders", "abc")
    assert [ids.take(), ids.take()] == ["orders.abc.0", "orders.abc.1"]
    assert ids.oldest() is None


@pytest.mark.parametrize("state", ["CompleteCommit", "CompleteAbort"])
def test_completed_transaction_under_later_epoch_frees_its_id(state):
    ids = TaskIds("orders", "abc")
    used = ids.take()
    ids.put_back(used, WROTE)
    assert ids.oldest() == (used, WROTE)
    assert ids.take_again(used, state, ProducerIdAndEpoch(7, 4))
    assert ids.oldest() is None


@pytest.mark.parametrize(
    ("state", "shown"),
    [
        ("CompleteCommit", ProducerIdAndEpoch(7, 2)),
        ("CompleteAbort", ProducerIdAndEpoch(7, 2)),
        ("CompleteCommit", ProducerIdAndEpoch(8, 4)),
        ("Empty", ProducerIdAndEpoch(7, 4)),
        ("Ongoing", ProducerIdAndEpoch(7, 4)),
        ("PrepareCommit", ProducerIdAndEpoch(7, 4)),
        ("PrepareAbort", ProducerIdAndEpoch(7, 4)),
        ("Dead", ProducerIdAndEpoch(7, 4)),
        ("", ProducerIdAndEpoch(-1, -1)),
    ],
)
def test_id_of_transaction_not_seen_completed_is_not_used_again(state, shown):
    assert not is_completed(WROTE, state, shown)


def test_completed_transaction_of_the_older_protocol_keeps_its_epoch():
    assert is_completed(WROTE, "CompleteCommit", WROTE)


def test_refused_id_waits_behind_the_others():
    ids = TaskIds("orders", "abc")
    first, second = ids.take(), ids.take()
    ids.put_back(first, WROTE)
    ids.put_back(second, WROTE)
    assert not ids.take_again(first, "Ongoing", WROTE)
    assert ids.oldest() == (second, WROTE)
    assert ids.take_again(second, "CompleteCommit", ProducerIdAndEpoch(7, 5))
    assert ids.oldest() == (first, WROTE)


def test_forgotten_id_is_not_offered_again():
    ids = TaskIds("orders", "abc")
    used = ids.take()
    ids.put_back(used, WROTE)
    ids.forget(used)
    assert ids.oldest() is None
