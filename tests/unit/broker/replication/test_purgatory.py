"""Offset waiters are called once, in order, and only when their offset is reached."""

from barnabas.broker.replication.purgatory import OffsetWaiters
from barnabas.protocol.errors import ErrorCode, KafkaError


def test_waiters_are_called_in_the_order_of_their_offsets() -> None:
    waiters, woken = OffsetWaiters(), []
    for offset in (7, 3, 5, 3):
        waiters.add(offset, lambda error, offset=offset: woken.append((offset, error)))
    waiters.reached(5)
    assert woken == [(3, None), (3, None), (5, None)]
    assert len(waiters) == 1
    waiters.reached(7)
    assert woken[-1] == (7, None)
    assert not waiters


def test_failure_calls_every_waiter_once() -> None:
    waiters, woken = OffsetWaiters(), []
    waiters.add(2, woken.append)
    waiters.add(1, woken.append)
    error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    waiters.fail(error)
    assert woken == [error, error]
    waiters.reached(10)
    assert len(woken) == 2


def test_waiter_may_add_another_while_it_is_called() -> None:
    waiters, woken = OffsetWaiters(), []
    waiters.add(1, lambda _error: waiters.add(2, woken.append))
    waiters.reached(1)
    assert woken == []
    waiters.reached(2)
    assert woken == [None]
