"""Two-phase commit (KIP-939): transactions without a timeout, and kept transactions."""

import asyncio
from typing import Any

import pytest

from barnabas.coordinator.transaction.metadata import (
    LAST_CLIENT_EPOCH,
    NO_TIMEOUT_MS,
    TV0,
    TV2,
    Producer,
)
from barnabas.coordinator.transaction.producers import Initialised
from barnabas.coordinator.transaction.states import TransactionState
from barnabas.protocol.errors import ErrorCode, KafkaError
from tests.support.coordinator.harness import code_of
from tests.unit.coordinator.transactions import (
    CLIENT_VERSIONS,
    EXHAUSTED,
    FIRST_ID,
    ID,
    TIMEOUT_MS,
    A,
    B,
    Transactions,
    transaction,
)

P = FIRST_ID
ONGOING = Producer(P, 0)
"""The producer of the open transaction of `kept`."""
CLIENT = Producer(P, 1)
NEXT = Producer(P, 2)


async def kept(**options: Any) -> Transactions:
    """Return a transaction that has been kept once."""
    here = await Transactions(**options).load()
    here.ongoing(A)
    assert here.keep() == Initialised(CLIENT, ongoing=ONGOING)
    return here


async def reloaded(here: Transactions) -> Transactions:
    """Return the coordinator after a fail-over."""
    here.runtime.resigned(0)
    return await here.load()


# -- transactions without a timeout


@pytest.mark.parametrize("timeout_ms", [1, TIMEOUT_MS, 900_001, 0, -1])
async def test_two_phase_transaction_has_no_timeout(timeout_ms: int) -> None:
    here = await Transactions().load()
    producer = here.init(timeout_ms=timeout_ms, two_phase=True)
    here.lead(producer, A)
    assert (here.txn.timeout_ms, here.left_ms) == (NO_TIMEOUT_MS, None)
    here.time.pass_ms(10 * NO_TIMEOUT_MS)
    await here.sweep()
    assert here.state == "Ongoing"
    await reloaded(here)
    here.time.pass_ms(10 * NO_TIMEOUT_MS)
    await here.sweep()
    assert (here.state, here.left_ms) == ("Ongoing", None)
    here.end(producer)
    assert here.state == "PrepareCommit"


async def test_later_init_gives_back_the_timeout() -> None:
    here = await Transactions().load()
    here.init(two_phase=True)
    here.lead(here.init(), A)
    assert here.left_ms == TIMEOUT_MS


async def test_init_without_keep_aborts_two_phase_transaction() -> None:
    here = await Transactions().load()
    here.lead(here.init(two_phase=True), A)
    assert code_of(lambda: here.init(two_phase=True)) == "CONCURRENT_TRANSACTIONS"
    assert here.state == "PrepareAbort"
    here.mark()
    assert here.init(two_phase=True) == Producer(P, 2)


# -- keep, and who may end it


async def test_keep_gives_the_next_epoch_and_names_the_ongoing_producer() -> None:
    here = await kept()
    assert here.keep() == Initialised(Producer(P, 2), ongoing=ONGOING)
    assert here.keep() == Initialised(Producer(P, 3), ongoing=ONGOING)
    assert (here.state, here.txn.producer, here.txn.client) == ("Ongoing", ONGOING, Producer(P, 3))
    assert here.txn.partitions == {A}
    assert here.sent == []


async def test_keep_of_nothing_is_an_ordinary_init() -> None:
    here = await Transactions().load()
    assert here.keep() == Initialised(Producer(P, 0))
    assert here.keep(timeout_ms=7) == Initialised(Producer(P, 1))
    assert (here.state, here.txn.timeout_ms) == ("Empty", 7)
    here.lead(Producer(P, 1), A)
    here.end(Producer(P, 1))
    here.mark()
    assert here.keep(two_phase=True) == Initialised(Producer(P, 3))
    assert (here.state, here.txn.timeout_ms) == ("Empty", NO_TIMEOUT_MS)


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("fails_over", [True, False])
async def test_client_ends_kept_transaction_whose_markers_bear_the_ongoing_producer(
    commits: bool, fails_over: bool
) -> None:
    here = await kept()
    if fails_over:
        await reloaded(here)
    assert here.end(CLIENT, commits=commits) == NEXT
    (markers,) = here.sent
    assert markers.producer == Producer(P, 1)
    assert (markers.committed, markers.partitions) == (commits, {A})
    assert markers.transaction_version == TV2
    if fails_over:
        await reloaded(here)
    here.mark()
    assert (here.state, here.txn.producer) == (
        "CompleteCommit" if commits else "CompleteAbort",
        NEXT,
    )
    here.lead(NEXT, B)
    assert here.txn.producer == here.txn.client == NEXT


@pytest.mark.parametrize("version", CLIENT_VERSIONS)
@pytest.mark.parametrize("commits", [True, False])
async def test_ongoing_producer_cannot_end_kept_transaction(version: int, commits: bool) -> None:
    here = await kept()
    before = here.txn
    for stale in (ONGOING, Producer(P, 2), Producer(P, 32_767)):
        code = code_of(lambda: here.end(stale, commits=commits, version=version))  # noqa: B023
        assert code == "PRODUCER_FENCED"
    other = Producer(P + 1, 0)
    code = code_of(lambda: here.end(other, commits=commits, version=version))
    assert code == "INVALID_PRODUCER_ID_MAPPING"
    assert (here.txn, here.sent) == (before, [])


async def test_only_the_latest_client_ends_kept_transaction() -> None:
    here = await kept()
    latest = here.keep().producer
    assert code_of(lambda: here.end(CLIENT)) == "PRODUCER_FENCED"
    assert here.end(latest) == Producer(P, 3)


@pytest.mark.parametrize("commits", [True, False])
async def test_repeated_end_of_kept_transaction(commits: bool) -> None:
    here = await kept()
    here.end(CLIENT, commits=commits)
    assert code_of(lambda: here.end(CLIENT, commits=commits)) == "CONCURRENT_TRANSACTIONS"
    here.mark()
    await reloaded(here)
    assert here.end(CLIENT, commits=commits) == NEXT
    assert code_of(lambda: here.end(CLIENT, commits=not commits)) == "INVALID_TXN_STATE"
    for stale in (ONGOING, Producer(P, 7)):
        assert code_of(lambda: here.end(stale, commits=commits)) == "PRODUCER_FENCED"  # noqa: B023


async def test_client_reports_no_partitions_of_kept_transaction() -> None:
    """Another process wrote it: a report of the client must not lose a marker (KIP-609)."""
    here = await kept()
    here.end(CLIENT, written=[])
    assert here.sent[-1].partitions == {A}


# -- no more partitions


async def test_kept_transaction_takes_no_partition() -> None:
    here = await kept()
    before = here.txn
    asks = (
        lambda producer: here.add(producer, B),
        lambda producer: here.lead(producer, B),
        lambda producer: here.lead(producer, A),
        lambda producer: here.verify(producer, A),
    )
    for ask in asks:
        assert code_of(lambda: ask(ONGOING)) == "PRODUCER_FENCED"  # noqa: B023
        assert code_of(lambda: ask(CLIENT)) == "INVALID_TXN_STATE"  # noqa: B023
        assert code_of(lambda: ask(Producer(P, 2))) == "PRODUCER_FENCED"  # noqa: B023
        assert code_of(lambda: ask(Producer(P + 1, 0))) == "INVALID_PRODUCER_ID_MAPPING"  # noqa: B023
    assert here.txn == before


# -- timeouts of kept transactions


async def test_keep_alone_leaves_the_timeout_as_it_is() -> None:
    here = await Transactions().load()
    here.ongoing(A)
    here.time.pass_ms(1000)
    here.keep(timeout_ms=900_000)
    assert (here.txn.timeout_ms, here.left_ms) == (TIMEOUT_MS, TIMEOUT_MS - 1000)
    await reloaded(here)
    assert here.left_ms == TIMEOUT_MS - 1000
    here.time.pass_ms(TIMEOUT_MS)
    await here.sweep()
    assert here.state == "PrepareAbort"
    here.mark()
    assert here.txn.producer == NEXT
    assert code_of(lambda: here.end(CLIENT)) == "INVALID_TXN_STATE"
    assert here.end(CLIENT, commits=False) == NEXT


@pytest.mark.parametrize("before", [False, True])
async def test_two_phase_keep_lifts_the_timeout(before: bool) -> None:
    here = await Transactions().load()
    here.ongoing(A)
    if before:
        here.keep()
    here.keep(two_phase=True)
    assert (here.txn.timeout_ms, here.left_ms) == (NO_TIMEOUT_MS, None)
    here.time.pass_ms(2 * TIMEOUT_MS)
    await here.sweep()
    await reloaded(here)
    await here.sweep()
    assert (here.state, here.left_ms) == ("Ongoing", None)


async def test_keep_of_two_phase_transaction_does_not_give_back_a_timeout() -> None:
    here = await Transactions().load()
    here.lead(here.init(two_phase=True), A)
    here.keep()
    assert (here.txn.timeout_ms, here.left_ms) == (NO_TIMEOUT_MS, None)


async def test_refused_pin_leaves_the_timeout() -> None:
    here = await Transactions().load()
    producer = here.ongoing(A)
    here.log.refusal = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert code_of(lambda: here.keep(two_phase=True)) == "COORDINATOR_NOT_AVAILABLE"
    here.log.refusal = None
    assert here.left_ms == TIMEOUT_MS
    assert here.txn.client == producer
    assert here.end(producer) == Producer(P, 1)


# -- busy


@pytest.mark.parametrize("commits", [True, False])
async def test_keep_is_busy_while_a_transaction_ends(commits: bool) -> None:
    here = await Transactions().load()
    producer = here.ongoing(A)
    here.end(producer, commits=commits)
    assert code_of(here.keep) == "CONCURRENT_TRANSACTIONS"
    here.mark()
    assert here.keep() == Initialised(Producer(P, 2))


async def test_steps_are_busy_while_a_keep_is_written() -> None:
    here = await Transactions().load()
    producer = here.init(timeout_ms=1000)
    here.lead(producer, A)
    here.log.held = True
    keeping = here.keep(two_phase=True)
    assert isinstance(keeping, asyncio.Future)
    here.time.pass_ms(1000)
    await here.sweep()
    for ask in (here.keep, here.init, lambda: here.end(producer), lambda: here.lead(producer, B)):
        assert code_of(ask) == "CONCURRENT_TRANSACTIONS"
    here.log.release()
    assert await keeping == Initialised(CLIENT, ongoing=producer)
    await here.sweep()
    assert here.state == "Ongoing"


# -- init without keep


async def test_init_without_keep_aborts_kept_transaction_and_fences_its_client() -> None:
    here = await kept()
    assert code_of(here.init) == "CONCURRENT_TRANSACTIONS"
    (markers,) = here.sent
    assert (markers.committed, markers.producer) == (False, Producer(P, 1))
    here.mark()
    assert code_of(lambda: here.end(CLIENT)) == "INVALID_TXN_STATE"
    assert here.init() == Producer(P, 3)
    assert code_of(lambda: here.end(CLIENT)) == "PRODUCER_FENCED"


async def test_zombie_that_resumes_does_not_abort_kept_transaction() -> None:
    """The producer that wrote the transaction goes on after a fault (KIP-360)."""
    here = await kept()
    assert code_of(lambda: here.init(ONGOING)) == "PRODUCER_FENCED"
    assert here.state == "Ongoing"
    assert code_of(lambda: here.init(CLIENT)) == "CONCURRENT_TRANSACTIONS"
    assert here.state == "PrepareAbort"


async def test_repeated_keep_of_a_client_that_names_itself_gets_the_same_answer() -> None:
    """KIP-360: the answer may have been lost."""
    here = await Transactions().load()
    producer = here.ongoing(A)
    for _ in range(2):
        assert here.keep(producer) == Initialised(CLIENT, ongoing=producer)
    assert here.keep(CLIENT) == Initialised(NEXT, ongoing=producer)
    assert code_of(lambda: here.keep(producer)) == "PRODUCER_FENCED"
    assert code_of(lambda: here.keep(Producer(P + 5, 0))) == "PRODUCER_FENCED"


# -- exhausted epochs


async def exhausted(**options: Any) -> Transactions:
    here = await Transactions(**options).write(transaction(epoch=LAST_CLIENT_EPOCH)).load()
    here.lead(EXHAUSTED, A)
    return here


@pytest.mark.parametrize("fails_over", [True, False])
async def test_keep_at_last_epoch_of_the_ongoing_producer(fails_over: bool) -> None:
    here = await exhausted()
    client = Producer(FIRST_ID, 0)
    assert here.keep() == Initialised(client, ongoing=EXHAUSTED)
    if fails_over:
        await reloaded(here)
    assert code_of(lambda: here.end(EXHAUSTED)) == "PRODUCER_FENCED"
    assert code_of(lambda: here.lead(EXHAUSTED, B)) == "PRODUCER_FENCED"
    assert code_of(lambda: here.lead(client, B)) == "INVALID_TXN_STATE"
    assert here.keep() == Initialised(Producer(FIRST_ID, 1), ongoing=EXHAUSTED)
    assert here.end(Producer(FIRST_ID, 1)) == Producer(FIRST_ID, 2)
    assert here.sent[-1].producer == Producer(EXHAUSTED.producer_id, 32_767)
    here.mark()
    assert here.txn.producer == Producer(FIRST_ID, 2)
    assert here.end(Producer(FIRST_ID, 1)) == Producer(FIRST_ID, 2)


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("fails_over", [True, False])
async def test_end_at_last_epoch_of_the_client_knows_three_producer_ids(
    commits: bool, fails_over: bool
) -> None:
    old, last, following = 7, Producer(8, LAST_CLIENT_EPOCH), Producer(FIRST_ID, 0)
    here = await kept_at(last)
    assert code_of(lambda: here.end(Producer(old, 5), commits=commits)) == "PRODUCER_FENCED"
    assert here.end(last, commits=commits) == following
    assert (here.txn.previous_producer_id, here.txn.producer_id, here.txn.next_producer_id) == (
        last.producer_id,
        old,
        following.producer_id,
    )
    if fails_over:
        await reloaded(here)
    assert here.sent[-1].producer == Producer(old, 6)
    assert code_of(lambda: here.end(last, commits=commits)) == "CONCURRENT_TRANSACTIONS"
    here.mark()
    assert here.txn.producer == following
    assert here.end(last, commits=commits) == following
    assert code_of(lambda: here.end(last, commits=not commits)) == "INVALID_TXN_STATE"
    assert code_of(lambda: here.end(Producer(old, 5))) == "INVALID_PRODUCER_ID_MAPPING"
    assert here.init(last) == following


async def kept_at(client: Producer, *, version: int = TV2) -> Transactions:
    """Return a transaction of producer 7:5 that is kept for `client`."""
    return (
        await Transactions(version=version)
        .write(
            transaction(
                TransactionState.ONGOING,
                5,
                producer_id=7,
                partitions=frozenset([A]),
                client_version=TV2,
                next_producer_id=client.producer_id,
                next_epoch=client.epoch,
                timeout_ms=NO_TIMEOUT_MS,
            )
        )
        .load()
    )


async def test_keep_at_last_epoch_of_the_client_gives_another_producer_id() -> None:
    last = Producer(8, LAST_CLIENT_EPOCH)
    here = await kept_at(last)
    following = Initialised(Producer(FIRST_ID, 0), ongoing=Producer(7, 5))
    assert here.keep(last) == following
    assert here.keep(last) == following
    assert here.keep() == Initialised(Producer(FIRST_ID, 1), ongoing=Producer(7, 5))
    assert code_of(lambda: here.keep(last)) == "PRODUCER_FENCED"
    assert here.end(Producer(FIRST_ID, 1)) == Producer(FIRST_ID, 2)
    assert here.sent[-1].producer == Producer(7, 6)


async def test_keep_at_last_epoch_waits_for_fetch_of_producer_ids() -> None:
    here = await exhausted()
    here.ids.dry = True
    assert await here.keep() == Initialised(Producer(FIRST_ID, 0), ongoing=EXHAUSTED)


async def test_abort_at_last_epoch_of_the_client_fences_it() -> None:
    last = Producer(8, LAST_CLIENT_EPOCH)
    here = await kept_at(last)
    assert code_of(here.init) == "CONCURRENT_TRANSACTIONS"
    here.mark()
    assert here.txn.producer == Producer(FIRST_ID, 0)
    assert code_of(lambda: here.end(last)) == "INVALID_TXN_STATE"
    assert here.init() == Producer(FIRST_ID, 1)


# -- levels of transaction.version, and older clients


@pytest.mark.parametrize("version", [0, 1])
async def test_two_phase_commit_needs_transaction_version_2(version: int) -> None:
    here = await Transactions(version=version).load()
    producer = here.ongoing(A, version=TV0)
    before = here.txn
    for ask in (here.keep, lambda: here.keep(two_phase=True), lambda: here.init(two_phase=True)):
        assert code_of(ask) == "UNSUPPORTED_VERSION"
    assert here.txn == before
    here.end(producer, version=TV0)


@pytest.mark.parametrize("epoch", [1, LAST_CLIENT_EPOCH])
async def test_kept_transaction_outlives_a_downgrade(epoch: int) -> None:
    here = await kept_at(Producer(8, epoch), version=0)
    await reloaded(here)
    assert here.txn.client == Producer(8, epoch)
    assert code_of(here.init) == "CONCURRENT_TRANSACTIONS"
    await reloaded(here)
    assert here.sent[-1].producer == Producer(7, 6)
    here.mark()
    assert here.txn.producer == Producer(8, epoch + 1)
    assert code_of(lambda: here.end(Producer(8, epoch), version=TV0)) == "PRODUCER_FENCED"
    after = Producer(FIRST_ID, 0) if epoch == LAST_CLIENT_EPOCH else Producer(8, epoch + 2)
    assert here.init() == after


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("version", CLIENT_VERSIONS)
async def test_kept_transaction_can_be_ended_after_a_downgrade(level: int, version: int) -> None:
    here = await kept()
    here.version = level
    assert code_of(here.keep) == "UNSUPPORTED_VERSION"
    await reloaded(here)
    after = here.end(CLIENT, version=version)
    await reloaded(here)
    assert here.sent[-1].producer == Producer(P, 1)
    here.mark()
    assert (here.state, here.txn.producer) == ("CompleteCommit", after)


@pytest.mark.parametrize("commits", [True, False])
async def test_older_end_txn_ends_kept_transaction_and_goes_on_with_the_client(
    commits: bool,
) -> None:
    here = await kept()
    assert here.end(CLIENT, commits=commits, version=TV0) == CLIENT
    assert here.sent[-1].producer == Producer(P, 1)
    busy = code_of(lambda: here.end(CLIENT, commits=commits, version=TV0))
    assert busy == "CONCURRENT_TRANSACTIONS"
    here.mark()
    assert here.end(CLIENT, commits=commits, version=TV0) == CLIENT
    opposite = code_of(lambda: here.end(CLIENT, commits=not commits, version=TV0))
    assert opposite == "INVALID_TXN_STATE"
    here.add(CLIENT, B)
    assert here.txn.producer == CLIENT


async def test_guard_of_connections_leaves_kept_transaction_alone() -> None:
    """The process that ends it is another one, whose connection may be older."""
    here = await Transactions().load()
    producer = here.init()
    here.add(producer, A, connection=9)
    here.keep()
    assert here.end(CLIENT, version=TV0, connection=1) == CLIENT
    busy = code_of(lambda: here.end(CLIENT, version=TV0, connection=0))
    assert busy == "CONCURRENT_TRANSACTIONS"


# -- the log, and operators


async def test_log_has_the_client_in_the_tags_of_kafka() -> None:
    here = await kept()
    assert (here.txn.next_producer_id, here.txn.next_epoch) == CLIENT
    here.end(CLIENT)
    assert (here.txn.next_producer_id, here.txn.next_epoch) == NEXT
    here.mark()
    assert (here.txn.next_producer_id, here.txn.next_epoch) == (-1, -1)


async def test_events_name_the_keep() -> None:
    here = await kept()
    here.keep(two_phase=True)
    known = here.coordinator.events(ID)
    assert known.client_host == "keeper"
    assert [event.text for event in known.events[-2:]] == [
        f"InitProducerId keeps the transaction for client {P}:1",
        f"InitProducerId keeps the transaction for client {P}:2, without a timeout",
    ]


async def test_refused_client_is_not_shown_as_the_keeper() -> None:
    here = await kept()
    assert code_of(lambda: here.init(ONGOING)) == "PRODUCER_FENCED"
    assert code_of(lambda: here.init(Producer(P + 5, 0))) == "PRODUCER_FENCED"
    assert here.coordinator.events(ID).client_host == "keeper"
    assert code_of(here.init) == "CONCURRENT_TRANSACTIONS"
    assert here.coordinator.events(ID).client_host == "host"


async def test_kept_transaction_never_expires() -> None:
    here = await kept(id_expiration_ms=1)
    here.keep(two_phase=True)
    here.time.pass_ms(10_000)
    await here.coordinator.expire()
    assert here.state == "Ongoing"


async def test_metrics_count_kept_transactions_and_their_age() -> None:
    here = await Transactions().load()
    here.ongoing(A)
    assert (here.coordinator.kept(), here.coordinator.oldest_kept_ms()) == (0, 0)
    here.time.pass_ms(1000)
    here.keep()
    for _ in range(2):
        assert (here.coordinator.kept(), here.coordinator.oldest_kept_ms()) == (1, 1000)
        await reloaded(here)
    here.end(CLIENT)
    assert (here.coordinator.kept(), here.coordinator.oldest_kept_ms()) == (0, 0)
