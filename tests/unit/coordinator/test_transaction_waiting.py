"""KIP-609: waiting for the transaction before, and registering partitions in advance."""

import asyncio
from typing import Any

import pytest

from barnabas.coordinator.transaction import waiting
from barnabas.coordinator.transaction.metadata import TV0, Producer
from barnabas.protocol.errors import ErrorCode, KafkaError
from tests.unit.coordinator.harness import code_of
from tests.unit.coordinator.transactions import FIRST_ID, ID, NONE, A, B, C, Transactions

WAIT_MS = 100


async def decided(**settings: Any) -> tuple[Transactions, Producer]:
    """Markers are on their way; and the producer to go on with."""
    here = await Transactions(wait_ms=WAIT_MS, **settings).load()
    return here, here.end(here.ongoing())


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def error_of(answer: "asyncio.Future[Any]") -> str:
    with pytest.raises(KafkaError) as refused:
        await answer
    return refused.value.code.name


async def test_whoever_waits_goes_on_when_the_markers_are_written() -> None:
    here, producer = await decided()
    waits = [here.lead(producer, A), here.add(producer, B)]
    await settle()
    assert not any(each.done() for each in waits)
    assert here.room.count == 2
    here.mark()
    await asyncio.gather(*waits)
    assert here.txn.partitions == {A, B}
    assert (here.room.count, here.time.running) == (0, 0)


async def test_a_new_producer_waits_for_the_end_of_the_one_it_fences() -> None:
    """One InitProducerId where Kafka's client asks several times."""
    here = await Transactions(wait_ms=WAIT_MS).load()
    old = here.ongoing()
    answer = here.init()
    await settle()
    assert here.state == "PrepareAbort"
    here.mark()
    assert await answer == Producer(FIRST_ID, old.epoch + 2)


async def test_a_wake_up_in_the_same_turn_of_the_loop_is_not_missed() -> None:
    """Nobody waits for the rest of the bound because its task had not begun."""
    here, producer = await decided()
    answer = here.lead(producer, A)
    here.mark()
    assert await answer is None
    here.log.held = True
    fenced = here.init()
    here.log.release()
    here.mark()
    assert (await fenced).epoch == producer.epoch + 2


async def test_a_wait_is_bounded() -> None:
    here, producer = await decided()
    answer = here.lead(producer, A)
    await settle()
    here.time.pass_ms(WAIT_MS - 1)
    await settle()
    assert not answer.done()
    here.time.pass_ms(1)
    assert await error_of(answer) == "CONCURRENT_TRANSACTIONS"
    assert (here.room.count, here.room._places) == (0, {})


async def test_steps_in_between_do_not_make_the_wait_longer() -> None:
    here, producer = await decided()
    answer = here.lead(producer, A)
    await settle()
    here.time.pass_ms(WAIT_MS // 2)
    here.room.wake(ID)
    await settle()
    assert not answer.done(), "still busy: it waits on"
    here.time.pass_ms(WAIT_MS // 2)
    assert await error_of(answer) == "CONCURRENT_TRANSACTIONS"


async def test_who_was_woken_too_early_is_woken_again() -> None:
    here, producer = await decided()
    answer = here.lead(producer, A)
    here.room.wake(ID)
    await settle()
    assert not answer.done()
    here.mark()
    assert await answer is None


async def test_only_what_is_busy_is_waited_for() -> None:
    here = await Transactions(wait_ms=WAIT_MS).load()
    producer = here.init()
    stranger = producer._replace(producer_id=7)
    assert code_of(lambda: here.lead(stranger, A)) == "INVALID_PRODUCER_ID_MAPPING"
    assert here.lead(producer, A) is None


async def test_switched_off_nobody_waits() -> None:
    here, producer = await decided()
    here.wait_ms = 0
    assert code_of(lambda: here.lead(producer, A)) == "CONCURRENT_TRANSACTIONS"
    here.mark()
    here.lead(producer, A)
    here.log.held = True
    answer = here.init()
    here.log.release()
    assert await error_of(answer) == "CONCURRENT_TRANSACTIONS"


async def test_the_crowd_is_capped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "MAX_WAITERS", 2)
    here, producer = await decided()
    waits = [here.lead(producer, A) for _ in range(2)]
    await settle()
    assert code_of(lambda: here.lead(producer, A)) == "CONCURRENT_TRANSACTIONS"
    here.mark()
    await asyncio.gather(*waits)
    after = here.end(producer)
    waits = [here.lead(after, A), here.lead(after, A)]
    await settle()
    assert here.room.count == 2, "who has gone makes room"
    here.mark()
    await asyncio.gather(*waits)


async def test_the_cap_holds_where_many_come_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """All in one turn of the loop, before any of them has begun to wait."""
    monkeypatch.setattr(waiting, "MAX_WAITERS", 2)
    here, producer = await decided()
    waits = [here.lead(producer, A) for _ in range(2)]
    assert code_of(lambda: here.lead(producer, A)) == "CONCURRENT_TRANSACTIONS"
    for each in waits:
        each.cancel()
    await settle()
    assert here.room.count == 0


async def test_a_closed_connection_leaves_the_queue() -> None:
    """Its answer is cancelled. Many that come and go while markers cannot be written must not
    fill the memory."""
    here, producer = await decided()
    for _ in range(50):
        answer = here.lead(producer, A)
        await settle()
        answer.cancel()
        await settle()
    assert (here.room.count, here.room._places, here.time.running) == (0, {}, 0)
    last = here.lead(producer, B)
    here.mark()
    assert await last is None
    assert here.txn.partitions == {B}, "the one that hung up has added nothing"


async def test_who_was_fenced_meanwhile_hears_so_on_waking() -> None:
    here, producer = await decided()
    answer = here.lead(producer, A)
    await settle()
    here.mark()
    # The newer producer is quicker than the one that was woken.
    here.init()
    assert await error_of(answer) == "PRODUCER_FENCED"


async def test_a_coordinator_that_resigns_sends_everybody_away() -> None:
    here, producer = await decided()
    answer = here.lead(producer, A)
    await settle()
    here.runtime.resigned(0)
    here.room.wake_all()
    assert await error_of(answer) == "NOT_COORDINATOR"
    assert here.room.count == 0


async def test_a_step_that_lands_late_is_seen_through() -> None:
    """A fencing is answered with CONCURRENT_TRANSACTIONS when it is committed; then one waits."""
    here = await Transactions(wait_ms=WAIT_MS).load()
    here.ongoing()
    here.log.held = True
    answer = here.init()
    here.log.release()
    await settle()
    assert not answer.done()
    here.mark()
    assert await answer == Producer(FIRST_ID, 2)


async def test_a_refused_step_wakes_whoever_waits() -> None:
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


async def test_partitions_that_nobody_wrote_to_need_no_marker() -> None:
    here = await Transactions().load()
    producer = here.ongoing(A, B, C, version=TV0)
    here.end(producer, version=TV0, written=[A])
    assert here.sent[0].partitions == {A}
    assert here.txn.partitions == {A}


async def test_what_the_client_does_not_say_needs_all_markers() -> None:
    here = await Transactions().load()
    here.end(here.ongoing(A, B, version=TV0), version=TV0)
    assert here.sent[0].partitions == {A, B}


async def test_nothing_written_is_over_at_once() -> None:
    here = await Transactions().load()
    producer = here.ongoing(A, B, version=TV0)
    assert here.end(producer, version=TV0, written=[]) == producer
    assert (here.state, here.sent) == ("CompleteCommit", [])


async def test_what_was_never_registered_gets_no_marker() -> None:
    here = await Transactions().load()
    here.end(here.ongoing(A, version=TV0), version=TV0, written=[A, C])
    assert here.sent[0].partitions == {A}


async def test_a_marker_is_never_left_out_where_a_leader_has_asked() -> None:
    """Whatever the client says: its batch may have been written, or be about to be."""
    here = await Transactions().load()
    producer = here.ongoing(A, B, C, version=TV0)
    here.verify(producer, B)
    here.end(producer, version=TV0, written=[A])
    assert here.sent[0].partitions == {A, B}


async def test_a_marker_is_never_left_out_where_a_leader_has_added() -> None:
    here = await Transactions().load()
    producer = here.init()
    here.add(producer, A, B)
    here.lead(producer, B)
    here.lead(producer, C)
    here.end(producer, written=[A])
    assert here.sent[0].partitions == {A, B, C}


async def test_what_leaders_asked_is_of_this_transaction_only() -> None:
    here = await Transactions().load()
    producer = here.ongoing(A, B, version=TV0)
    here.verify(producer, B)
    here.end(producer, version=TV0, written=[A])
    here.mark()
    here.add(producer, A, B)
    here.end(producer, version=TV0, written=[A])
    assert here.sent[1].partitions == {A}


async def test_what_leaders_asked_is_forgotten_with_the_transaction() -> None:
    here = await Transactions().load()
    producer = here.ongoing(A, version=TV0)
    here.verify(producer, A)
    assert here.shard.ledger.witnessed(ID) == {A}
    here.end(producer, version=TV0)
    assert here.shard.ledger.witnessed(ID) is None


async def test_a_coordinator_that_was_elected_meanwhile_leaves_no_marker_out() -> None:
    """Leaders may have asked the one before."""
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


async def test_nobody_may_write_where_an_end_under_way_leaves_the_marker_out() -> None:
    """The leader would be told that the transaction is open, and no marker would ever come."""
    here = await Transactions().load()
    producer = here.ongoing(A, B, version=TV0)
    here.log.held = True
    answer = here.end(producer, version=TV0, written=[A])
    assert here.verify(producer, A, B) == {A: NONE, B: "TRANSACTION_ABORTABLE"}
    here.log.release()
    await answer
    assert here.sent[0].partitions == {A}


async def test_a_refused_end_forgets_nothing_of_what_leaders_asked() -> None:
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


async def test_a_timeout_marks_everything() -> None:
    here = await Transactions().load()
    here.ongoing(A, B, version=TV0)
    here.time.pass_ms(60_000)
    await here.sweep()
    assert here.sent[0].partitions == {A, B}
