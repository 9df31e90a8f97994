"""KIP-609: requests that wait for the previous transaction, and partitions registered in
advance."""

import asyncio
from typing import Any

import pytest

from barnabas.coordinator.postponed import DELAY_MS
from barnabas.coordinator.transaction import waiters
from barnabas.coordinator.transaction.metadata import TV0, Producer
from barnabas.protocol.errors import ErrorCode, KafkaError
from tests.support.coordinator.harness import code_of
from tests.unit.coordinator.transactions import FIRST_ID, ID, NONE, A, B, C, Transactions

WAIT_MS = 100


async def decided(**settings: Any) -> tuple[Transactions, Producer]:
    """Return a coordinator whose markers are being written, and the producer to go on with."""
    here = await Transactions(wait_ms=WAIT_MS, **settings).load()
    return here, here.end(here.ongoing())


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def error_of(answer: "asyncio.Future[Any]") -> str:
    with pytest.raises(KafkaError) as refused:
        await answer
    return refused.value.code.name


async def test_waiting_requests_are_answered_once_markers_are_written() -> None:
    here, producer = await decided()
    waits = [here.lead(producer, A), here.add(producer, B)]
    await settle()
    assert not any(each.done() for each in waits)
    assert here.waiters.count == 2
    here.mark()
    await asyncio.gather(*waits)
    assert here.txn.partitions == {A, B}
    here.time.pass_ms(DELAY_MS)
    assert (here.waiters.count, here.time.running) == (0, 0)


async def test_init_producer_id_waits_for_end_of_fenced_transaction() -> None:
    """One InitProducerId is enough; with Kafka the client has to send it several times."""
    here = await Transactions(wait_ms=WAIT_MS).load()
    old = here.ongoing()
    answer = here.init()
    await settle()
    assert here.state == "PrepareAbort"
    here.mark()
    assert await answer == Producer(FIRST_ID, old.epoch + 2)


async def test_wake_before_waiting_task_has_begun_is_not_missed() -> None:
    """A request whose task has not begun is woken too, and does not wait for the longest time."""
    here, producer = await decided()
    answer = here.lead(producer, A)
    here.mark()
    assert await answer is None
    here.log.held = True
    fenced = here.init()
    here.log.release()
    here.mark()
    assert (await fenced).epoch == producer.epoch + 2


async def test_wait_ends_after_longest_time() -> None:
    here, producer = await decided()
    answer = here.lead(producer, A)
    await settle()
    here.time.pass_ms(WAIT_MS - 1)
    await settle()
    assert not answer.done()
    here.time.pass_ms(1)
    assert await error_of(answer) == "CONCURRENT_TRANSACTIONS"
    assert (here.waiters.count, here.waiters._waiters) == (0, {})


async def test_early_wake_does_not_extend_wait() -> None:
    here, producer = await decided()
    answer = here.lead(producer, A)
    await settle()
    here.time.pass_ms(WAIT_MS // 2)
    here.waiters.wake(ID)
    await settle()
    assert not answer.done(), "still busy: it waits on"
    here.time.pass_ms(WAIT_MS // 2)
    assert await error_of(answer) == "CONCURRENT_TRANSACTIONS"


async def test_request_woken_too_early_is_woken_again() -> None:
    here, producer = await decided()
    answer = here.lead(producer, A)
    here.waiters.wake(ID)
    await settle()
    assert not answer.done()
    here.mark()
    assert await answer is None


async def test_request_for_free_id_does_not_wait() -> None:
    here = await Transactions(wait_ms=WAIT_MS).load()
    producer = here.init()
    stranger = producer._replace(producer_id=7)
    assert code_of(lambda: here.lead(stranger, A)) == "INVALID_PRODUCER_ID_MAPPING"
    assert here.lead(producer, A) is None


async def test_wait_of_zero_refuses_at_once() -> None:
    here, producer = await decided()
    here.wait_ms = 0
    assert code_of(lambda: here.lead(producer, A)) == "CONCURRENT_TRANSACTIONS"
    here.mark()
    here.lead(producer, A)
    here.log.held = True
    answer = here.init()
    here.log.release()
    assert await error_of(answer) == "CONCURRENT_TRANSACTIONS"


async def test_number_of_waiting_requests_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiters, "MAX_WAITERS", 2)
    here, producer = await decided()
    waits = [here.lead(producer, A) for _ in range(2)]
    await settle()
    assert code_of(lambda: here.lead(producer, A)) == "CONCURRENT_TRANSACTIONS"
    here.mark()
    await asyncio.gather(*waits)
    after = here.end(producer)
    waits = [here.lead(after, A), here.lead(after, A)]
    await settle()
    assert here.waiters.count == 2, "who has gone makes room"
    here.mark()
    await asyncio.gather(*waits)


async def test_limit_counts_requests_that_arrive_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """The requests arrive in one iteration of the event loop, before any of them has begun to
    wait."""
    monkeypatch.setattr(waiters, "MAX_WAITERS", 2)
    here, producer = await decided()
    waits = [here.lead(producer, A) for _ in range(2)]
    assert code_of(lambda: here.lead(producer, A)) == "CONCURRENT_TRANSACTIONS"
    for each in waits:
        each.cancel()
    await settle()
    assert here.waiters.count == 0


async def test_cancelled_request_stops_waiting() -> None:
    """A closed connection cancels its answer. Requests that come and go while markers cannot be
    written must not fill the memory."""
    here, producer = await decided()
    for _ in range(50):
        answer = here.lead(producer, A)
        await settle()
        answer.cancel()
        await settle()
    assert (here.waiters.count, here.waiters._waiters, here.time.running) == (0, {}, 0)
    last = here.lead(producer, B)
    here.mark()
    assert await last is None
    assert here.txn.partitions == {B}, "the one that hung up has added nothing"


async def test_producer_fenced_while_waiting_gets_producer_fenced() -> None:
    here, producer = await decided()
    answer = here.lead(producer, A)
    await settle()
    here.mark()
    # The newer producer is quicker than the one that was woken.
    here.init()
    assert await error_of(answer) == "PRODUCER_FENCED"


async def test_resignation_answers_waiting_requests_with_not_coordinator() -> None:
    here, producer = await decided()
    answer = here.lead(producer, A)
    await settle()
    here.runtime.resigned(0)
    here.waiters.wake_all()
    assert await error_of(answer) == "NOT_COORDINATOR"
    assert here.waiters.count == 0


async def test_fencing_that_is_committed_late_waits_for_markers() -> None:
    """The fencing answers CONCURRENT_TRANSACTIONS only when it is committed; the wait begins
    then."""
    here = await Transactions(wait_ms=WAIT_MS).load()
    here.ongoing()
    here.log.held = True
    answer = here.init()
    here.log.release()
    await settle()
    assert not answer.done()
    here.mark()
    assert await answer == Producer(FIRST_ID, 2)


async def test_committed_step_wakes_waiting_request() -> None:
    here = await Transactions(wait_ms=WAIT_MS).load()
    producer = here.ongoing()
    here.log.held = True
    adding = here.lead(producer, B)
    answer = here.lead(producer, C)
    await settle()
    here.log.release()
    await asyncio.gather(adding, answer)
    assert here.txn.partitions == {A, B, C}


# -- registered in advance -----------------------------------------------------------------------


async def test_registered_partitions_without_writes_get_no_marker() -> None:
    here = await Transactions().load()
    producer = here.ongoing(A, B, C, version=TV0)
    here.end(producer, version=TV0, written=[A])
    assert here.sent[0].partitions == {A}
    assert here.txn.partitions == {A}


async def test_end_without_list_of_writes_marks_every_partition() -> None:
    here = await Transactions().load()
    here.end(here.ongoing(A, B, version=TV0), version=TV0)
    assert here.sent[0].partitions == {A, B}


async def test_end_without_writes_completes_at_once() -> None:
    here = await Transactions().load()
    producer = here.ongoing(A, B, version=TV0)
    assert here.end(producer, version=TV0, written=[]) == producer
    assert (here.state, here.sent) == ("CompleteCommit", [])


async def test_unregistered_partition_gets_no_marker() -> None:
    here = await Transactions().load()
    here.end(here.ongoing(A, version=TV0), version=TV0, written=[A, C])
    assert here.sent[0].partitions == {A}


async def test_partition_that_its_leader_verified_gets_marker() -> None:
    """The client's report lacks the partition, but its batch may have been written, or be about to
    be."""
    here = await Transactions().load()
    producer = here.ongoing(A, B, C, version=TV0)
    here.verify(producer, B)
    here.end(producer, version=TV0, written=[A])
    assert here.sent[0].partitions == {A, B}


async def test_partition_that_its_leader_added_gets_marker() -> None:
    here = await Transactions().load()
    producer = here.init()
    here.add(producer, A, B)
    here.lead(producer, B)
    here.lead(producer, C)
    here.end(producer, written=[A])
    assert here.sent[0].partitions == {A, B, C}


async def test_witnessed_partitions_belong_to_one_transaction() -> None:
    here = await Transactions().load()
    producer = here.ongoing(A, B, version=TV0)
    here.verify(producer, B)
    here.end(producer, version=TV0, written=[A])
    here.mark()
    here.add(producer, A, B)
    here.end(producer, version=TV0, written=[A])
    assert here.sent[1].partitions == {A}


async def test_witnessed_partitions_are_forgotten_at_end() -> None:
    here = await Transactions().load()
    producer = here.ongoing(A, version=TV0)
    here.verify(producer, A)
    assert here.table.witnessed(here.table.ids[ID]) == {A}
    here.end(producer, version=TV0)
    assert here.table.witnessed(here.table.ids[ID]) is None


async def test_coordinator_elected_during_transaction_marks_every_partition() -> None:
    """Leaders may have asked the previous coordinator."""
    here = await Transactions().load()
    producer = here.ongoing(A, B, version=TV0)
    await here.load()
    here.add(producer, C)
    here.end(producer, version=TV0, written=[A])
    assert here.sent[0].partitions == {A, B, C}
    here.mark()
    here.add(producer, A, B)
    here.end(producer, version=TV0, written=[A])
    assert here.sent[1].partitions == {A}, "the next one began here"


async def test_verification_fails_where_pending_end_writes_no_marker() -> None:
    """The leader would be told that the transaction is open, and no marker would ever come."""
    here = await Transactions().load()
    producer = here.ongoing(A, B, version=TV0)
    here.log.held = True
    answer = here.end(producer, version=TV0, written=[A])
    assert here.verify(producer, A, B) == {A: NONE, B: "TRANSACTION_ABORTABLE"}
    here.log.release()
    await answer
    assert here.sent[0].partitions == {A}


async def test_refused_end_keeps_witnessed_partitions() -> None:
    here = await Transactions().load()
    producer = here.ongoing(A, B, version=TV0)
    here.verify(producer, B)
    here.log.refusal = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert code_of(lambda: here.end(producer, version=TV0, written=[])) == (
        "COORDINATOR_NOT_AVAILABLE"
    )
    here.log.refusal = None
    here.end(producer, version=TV0, written=[])
    assert here.sent[0].partitions == {B}


async def test_without_verification_every_registered_partition_gets_its_marker() -> None:
    """With transaction.partition.verification.enable=false leaders do not ask the coordinator: the
    report of a client cannot be checked, and a partition without its marker blocks its readers."""
    here = Transactions()
    here.verification = None
    await here.load()
    producer = here.ongoing(A, B, version=TV0)
    here.end(producer, version=TV0, written=[A])
    assert here.sent[0].partitions == {A, B}


@pytest.mark.parametrize("again", [None, object()])
async def test_a_change_of_verification_during_a_transaction_marks_every_partition(
    again: object | None,
) -> None:
    """Leaders may have written without asking in between."""
    here = await Transactions().load()
    producer = here.ongoing(A, B, version=TV0)
    here.verification = again
    here.end(producer, version=TV0, written=[A])
    assert here.sent[0].partitions == {A, B}


async def test_verification_that_begins_during_a_transaction_marks_every_partition() -> None:
    here = Transactions()
    here.verification = None
    await here.load()
    producer = here.ongoing(A, B, version=TV0)
    here.verification = object()
    here.end(producer, version=TV0, written=[A])
    assert here.sent[0].partitions == {A, B}
    here.mark()
    here.add(producer, A, B)
    here.end(producer, version=TV0, written=[A])
    assert here.sent[1].partitions == {A}, "the next one was verified from its beginning"


async def test_timeout_marks_every_partition() -> None:
    here = await Transactions().load()
    here.ongoing(A, B, version=TV0)
    here.time.pass_ms(60_000)
    await here.sweep()
    assert here.sent[0].partitions == {A, B}


async def test_id_that_is_freed_by_the_request_itself_is_asked_for_again_at_once() -> None:
    """InitProducerId aborts the open transaction, and the markers of its partitions are written in
    the same call: nothing wakes the request later."""
    here = await Transactions(wait_ms=WAIT_MS).load()
    here.ongoing(A)
    here.table.send_markers = lambda markers, _: here.coordinator.markers_written(
        markers.transactional_id, markers.producer
    )
    answer = here.init()
    for _ in range(10):
        await asyncio.sleep(0)
    assert answer.done()
    assert (answer.result(), here.state) == (Producer(FIRST_ID, 2), "Empty")
    assert here.time.running == 0
