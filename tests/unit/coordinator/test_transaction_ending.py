"""EndTxn in both protocols (KIP-98; KIP-890 part 2), and what follows a decision."""

import pytest

from barnabas.coordinator.transaction.ending import (
    COMPLETION_RETRY_MS,
    NEWER_CLIENTS,
    OLDER_CLIENTS,
    EndTxnReply,
    Epoch,
    Replies,
)
from barnabas.coordinator.transaction.metadata import (
    LAST_CLIENT_EPOCH,
    TV0,
    TV2,
    Markers,
    Producer,
)
from barnabas.coordinator.transaction.partitions import AddPartitions
from barnabas.coordinator.transaction.producers import InitProducerId
from barnabas.coordinator.transaction.states import TransactionState
from barnabas.protocol.errors import ErrorCode, KafkaError
from tests.support.coordinator.harness import code_of
from tests.unit.coordinator.transactions import (
    CLIENT_VERSIONS,
    EXHAUSTED,
    FIRST_ID,
    TIMEOUT_MS,
    WRITE_TIMEOUT_MS,
    A,
    B,
    Transactions,
    transaction,
)

EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
PREPARE_COMMIT, PREPARE_ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
COMMITTED, ABORTED = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT
OLD, EPOCH = EXHAUSTED.producer_id, 5
LATER, INVALID, FENCED = "CONCURRENT_TRANSACTIONS", "INVALID_TXN_STATE", "PRODUCER_FENCED"
SAME, NEXT = Producer(OLD, EPOCH), Producer(OLD, EPOCH + 1)


async def standing(state: TransactionState) -> Transactions:
    open_ = state in (ONGOING, PREPARE_COMMIT, PREPARE_ABORT)
    partitions = frozenset({A, B}) if open_ else frozenset()
    log = transaction(state, EPOCH, partitions=partitions, start_ms=1, client_version=TV2)
    return await Transactions().write(log).load()


def said(here: Transactions, epoch: int, commits: bool, version: int) -> object:
    """Return the answer, or the name of the error."""
    try:
        return here.end(Producer(OLD, epoch), commits=commits, version=version)
    except KafkaError as error:
        return error.code.name


@pytest.mark.parametrize(
    ("state", "commit", "abort"),
    [
        (EMPTY, INVALID, INVALID),
        (ONGOING, SAME, SAME),
        (PREPARE_COMMIT, LATER, LATER),
        (PREPARE_ABORT, LATER, LATER),
        (COMMITTED, SAME, INVALID),
        (ABORTED, INVALID, SAME),
    ],
)
async def test_replies_of_older_protocol_match_kafka(
    state: TransactionState, commit: object, abort: object
) -> None:
    """As in Kafka 4.4: the same epoch means the same transaction."""
    for commits, answer in ((True, commit), (False, abort)):
        here = await standing(state)
        before = here.txn
        assert said(here, EPOCH, commits, TV0) == answer
        if state is not ONGOING:
            assert here.txn == before, "asking again changes nothing"
        for other in (EPOCH - 1, EPOCH + 1):
            assert said(await standing(state), other, commits, TV0) == FENCED


@pytest.mark.parametrize(
    ("state", "commit", "abort", "commit_again", "abort_again"),
    [
        (EMPTY, INVALID, NEXT, FENCED, FENCED),
        (ONGOING, NEXT, NEXT, FENCED, FENCED),
        (PREPARE_COMMIT, LATER, LATER, LATER, LATER),
        (PREPARE_ABORT, LATER, LATER, LATER, LATER),
        (COMMITTED, INVALID, NEXT, SAME, INVALID),
        (ABORTED, INVALID, NEXT, INVALID, SAME),
    ],
)
async def test_replies_of_newer_protocol_match_kafka(
    state: TransactionState,
    commit: object,
    abort: object,
    commit_again: object,
    abort_again: object,
) -> None:
    """As in Kafka 4.4: the current epoch means the current transaction, even if it has no
    partitions; the previous epoch means the previous transaction."""
    for commits, answer, again in ((True, commit, commit_again), (False, abort, abort_again)):
        assert said(await standing(state), EPOCH, commits, TV2) == answer
        here = await standing(state)
        before = here.txn
        assert said(here, EPOCH - 1, commits, TV2) == again
        assert here.txn == before, "asking again changes nothing"
        other = LATER if state in (PREPARE_COMMIT, PREPARE_ABORT) else FENCED
        for epoch in (EPOCH - 2, EPOCH + 1):
            assert said(await standing(state), epoch, commits, TV2) == other


@pytest.mark.parametrize("commits", [True, False])
async def test_zombie_does_not_get_epoch_of_older_protocol_successor(
    commits: bool,
) -> None:
    """Unlike Kafka 4.4, which takes the request for a repeated EndTxn of the zombie."""
    here = await Transactions().load()
    zombie = here.init()
    _, successor = here.completed(commits=commits, version=TV0)
    assert successor == Producer(zombie.producer_id, zombie.epoch + 1)
    assert code_of(lambda: here.end(zombie, commits=commits)) == FENCED
    await here.load()
    assert code_of(lambda: here.end(zombie, commits=commits)) == FENCED
    here.add(successor, A)
    assert here.end(successor, commits=commits, version=TV0) == successor


@pytest.mark.parametrize("version", CLIENT_VERSIONS)
@pytest.mark.parametrize("state", [EMPTY, ONGOING, COMMITTED, ABORTED])
async def test_end_txn_of_other_producer_id_is_refused(
    state: TransactionState, version: int
) -> None:
    here = await standing(state)
    stranger = Producer(OLD + 1, EPOCH)
    assert code_of(lambda: here.end(stranger, version=version)) == "INVALID_PRODUCER_ID_MAPPING"


async def test_older_protocol_checks_producer_before_pending_step() -> None:
    """As in Kafka 4.4: only TV2 looks at pending steps first."""
    here = await Transactions().load()
    producer = here.ongoing()
    here.log.held = True
    here.lead(producer, B)
    stranger, stale = Producer(7, 0), Producer(FIRST_ID, 9)
    assert code_of(lambda: here.end(stranger, version=TV0)) == "INVALID_PRODUCER_ID_MAPPING"
    assert code_of(lambda: here.end(stale, version=TV0)) == FENCED
    assert code_of(lambda: here.end(producer, version=TV0)) == LATER
    for each in (stranger, stale, producer):
        assert code_of(lambda p=each: here.end(p, version=TV2)) == LATER


STATES = [EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMMITTED, ABORTED]
EPOCHS = {Epoch.CURRENT: EPOCH, Epoch.PREVIOUS: EPOCH - 1, Epoch.OTHER: EPOCH + 1}
ENDED = {EndTxnReply.DECIDE: NEXT, EndTxnReply.REPEAT: SAME}


@pytest.mark.parametrize("version", CLIENT_VERSIONS)
@pytest.mark.parametrize("epoch", Epoch)
@pytest.mark.parametrize(
    "state", [EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMMITTED, ABORTED]
)
async def test_replies_to_end_txn_are_those_of_the_table(
    state: TransactionState, epoch: Epoch, version: int
) -> None:
    """The two tests above compare the same cases with the answers of Kafka 4.4."""
    table = NEWER_CLIENTS if version == TV2 else OLDER_CLIENTS
    fenced = Replies(EndTxnReply.FENCED, EndTxnReply.FENCED)
    replies = table.get((state, epoch), fenced)
    for commits, reply in ((True, replies.commit), (False, replies.abort)):
        ended = (
            SAME if version < TV2 and reply is EndTxnReply.DECIDE else ENDED.get(reply, reply.value)
        )
        assert said(await standing(state), EPOCHS[epoch], commits, version) == ended


def test_table_of_replies_has_a_row_for_every_current_epoch() -> None:
    for table in (OLDER_CLIENTS, NEWER_CLIENTS):
        assert {state for state, epoch in table if epoch is Epoch.CURRENT} == set(STATES)


# -- what a decision does ------------------------------------------------------------------------


@pytest.mark.parametrize("commits", [True, False])
async def test_a_decision_of_the_older_protocol_keeps_the_epoch(commits: bool) -> None:
    here = await Transactions().load()
    producer = here.ongoing(A, B, version=TV0)
    assert here.end(producer, commits=commits, version=TV0) == producer
    (markers,) = here.sent
    assert (markers.producer, markers.committed) == (producer, commits)
    assert markers.partitions == {A, B}
    assert markers.transaction_version == TV0
    assert here.state == ("PrepareCommit" if commits else "PrepareAbort")
    here.mark()
    assert here.state == ("CompleteCommit" if commits else "CompleteAbort")
    assert here.txn.partitions == frozenset()
    assert here.txn.producer == producer


@pytest.mark.parametrize("commits", [True, False])
async def test_a_decision_of_the_newer_protocol_uses_up_the_epoch(commits: bool) -> None:
    """As in Kafka 4.4: the epoch is bumped when PREPARE is logged, and markers carry the bumped
    epoch."""
    here = await Transactions().load()
    producer = here.ongoing(A, B)
    after = here.end(producer, commits=commits)
    assert after == Producer(producer.producer_id, producer.epoch + 1)
    (markers,) = here.sent
    assert (markers.producer, markers.committed, markers.transaction_version) == (
        after,
        commits,
        TV2,
    )
    assert (here.txn.epoch, here.txn.last_epoch) == (after.epoch, producer.epoch)
    here.mark()
    assert here.txn.producer == after
    assert here.end(producer, commits=commits) == after, "the answer was lost"
    assert here.lead(after, A) is None, "and it goes on"
    assert here.txn.state is ONGOING


async def test_abort_without_partitions_sends_no_markers() -> None:
    """KAFKA-18464: it uses up an epoch all the same."""
    here = await Transactions().load()
    producer = here.init()
    after = here.end(producer, commits=False)
    assert after.epoch == producer.epoch + 1
    assert (here.state, here.sent) == ("CompleteAbort", [])
    assert here.txn.start_ms == here.time.now_ms()
    assert here.end(after, commits=False).epoch == after.epoch + 1


@pytest.mark.parametrize("commits", [True, False])
async def test_the_last_epoch_ends_with_another_producer_id(commits: bool) -> None:
    """As in Kafka 4.4: PREPARE at 32767 with the next id, COMPLETE (next id, 0)."""
    log = transaction(ONGOING, LAST_CLIENT_EPOCH, partitions=frozenset({A}), start_ms=1)
    here = await Transactions().write(log).load()
    after = here.end(EXHAUSTED, commits=commits)
    assert after == Producer(FIRST_ID, 0)
    assert (here.txn.producer, here.txn.next_producer_id) == (
        Producer(OLD, LAST_CLIENT_EPOCH + 1),
        FIRST_ID,
    )
    assert here.sent[0].producer == Producer(OLD, LAST_CLIENT_EPOCH + 1)
    assert code_of(lambda: here.end(after, commits=commits)) == LATER, "with the next id, but early"
    await here.load()
    assert here.sent[1] == here.sent[0], "rolled forward after a fail-over"
    here.mark()
    assert here.txn.producer == after
    assert (here.txn.last_epoch, here.txn.previous_producer_id) == (LAST_CLIENT_EPOCH, OLD)
    assert here.txn.next_producer_id == -1
    await here.load()
    assert here.end(EXHAUSTED, commits=commits) == after, "retry detection across the rotation"
    assert said(here, LAST_CLIENT_EPOCH, not commits, TV2) == INVALID
    assert said(here, LAST_CLIENT_EPOCH - 1, commits, TV2) == "INVALID_PRODUCER_ID_MAPPING"
    assert here.init(EXHAUSTED) == after, "KIP-360 across the rotation"
    here.lead(after, A)
    assert code_of(lambda: here.end(EXHAUSTED, commits=commits)) == "INVALID_PRODUCER_ID_MAPPING"


@pytest.mark.parametrize("level", [0, 1, 2])
async def test_the_next_producer_id_outlives_the_coordinator_that_chose_it(level: int) -> None:
    """A client that learned of level 2 may end its transaction when the cluster is below it."""
    log = transaction(ONGOING, LAST_CLIENT_EPOCH, partitions=frozenset({A}), start_ms=1)
    here = await Transactions(version=level).write(log).load()
    after = here.end(EXHAUSTED)
    for _ in range(2):
        await here.load()
        here.mark()
        assert here.txn.producer == after
    assert here.lead(after, A) is None


async def test_the_older_protocol_needs_no_other_id_at_the_last_epoch() -> None:
    log = transaction(ONGOING, LAST_CLIENT_EPOCH, partitions=frozenset({A}), start_ms=1)
    here = await Transactions().write(log).load()
    assert here.end(EXHAUSTED, version=TV0) == EXHAUSTED
    here.mark()
    assert here.txn.producer == EXHAUSTED


async def test_a_commit_never_follows_an_abort_of_the_same_transaction() -> None:
    """The decided outcome stands, also while its markers are on their way."""
    for version in CLIENT_VERSIONS:
        here = await Transactions().load()
        producer = here.ongoing(version=version)
        here.end(producer, commits=False, version=version)
        assert code_of(lambda h=here, p=producer, v=version: h.end(p, version=v)) == LATER
        here.mark()
        assert code_of(lambda h=here, p=producer, v=version: h.end(p, version=v)) == INVALID


# -- slow and failing logs -----------------------------------------------------------------------


async def test_late_commit_times_out_answer_but_not_decision() -> None:
    """The answer times out; the decision does not."""
    here = await Transactions().load()
    producer = here.ongoing()
    here.log.held = True
    answer = here.end(producer)
    here.time.pass_ms(WRITE_TIMEOUT_MS)
    with pytest.raises(KafkaError) as late:
        await answer
    assert late.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert here.sent == [], "no marker before the decision is committed"
    assert code_of(lambda: here.end(producer, commits=False)) == LATER
    here.log.release()
    assert here.state == "PrepareCommit"
    here.mark()
    assert here.end(producer) == Producer(FIRST_ID, 1)


async def test_refused_decision_leaves_transaction_open() -> None:
    here = await Transactions().load()
    producer = here.ongoing()
    here.log.refusal = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert code_of(lambda: here.end(producer)) == "COORDINATOR_NOT_AVAILABLE"
    here.log.refusal = None
    assert (here.state, here.sent) == ("Ongoing", [])
    assert here.end(producer, commits=False) == Producer(FIRST_ID, 1)


async def test_a_completion_that_the_log_refuses_is_written_later() -> None:
    """KAFKA-9777: the transaction must not stay in PREPARE."""
    here = await Transactions().load()
    here.end(here.ongoing())
    here.log.refusal = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    here.mark()
    here.time.pass_ms(3 * COMPLETION_RETRY_MS)
    assert here.state == "PrepareCommit"
    assert here.coordinator.refused_ends() == 1
    here.log.refusal = None
    here.time.pass_ms(COMPLETION_RETRY_MS)
    assert here.state == "CompleteCommit"
    assert here.coordinator.refused_ends() == 0
    assert here.time.running == 0


async def test_an_empty_abort_that_cannot_be_completed_is_completed_later() -> None:
    here = await Transactions().load()
    producer = here.init()
    here.log.held = True
    answer = here.end(producer, commits=False)
    here.log.refusal = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    here.log.release()
    assert await answer == Producer(FIRST_ID, 1)
    assert here.state == "PrepareAbort"
    here.log.refusal = None
    here.time.pass_ms(COMPLETION_RETRY_MS)
    assert here.state == "CompleteAbort"


async def test_markers_of_another_transaction_complete_nothing() -> None:
    here = await Transactions().load()
    producer = here.ongoing()
    here.coordinator.markers_written("x", producer)
    here.coordinator.markers_written("stranger", producer)
    assert here.state == "Ongoing"
    after = here.end(producer)
    here.coordinator.markers_written("x", producer)
    assert here.state == "PrepareCommit"
    here.log.held = True
    written = here.log.record_count
    here.coordinator.markers_written("x", after)
    here.coordinator.markers_written("x", after)
    assert here.log.record_count == written + 1, "once"
    here.log.release()
    here.mark()
    assert here.state == "CompleteCommit"


async def test_markers_written_after_resignation_complete_nothing() -> None:
    here = await Transactions().load()
    here.end(here.ongoing())
    here.runtime.resigned(0)
    here.mark()
    await here.load()
    assert here.state == "PrepareCommit"
    assert len(here.sent) == 2


async def test_failed_completion_reports_no_unretrieved_exception() -> None:
    """Otherwise the event loop reports an exception that was never retrieved."""
    import asyncio
    import gc

    here = await Transactions().load()
    heard: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context))
    here.end(here.ongoing())
    here.log.held = True
    here.mark()
    here.time.pass_ms(WRITE_TIMEOUT_MS)
    await asyncio.sleep(0)
    here.runtime.resigned(0)
    gc.collect()
    assert heard == []


async def test_markers_in_the_call_of_the_decision_complete_the_transaction() -> None:
    here = await Transactions().load()
    sent: list[str] = []

    def write(markers: Markers, _now_ms: int) -> None:
        sent.append(here.state)
        here.coordinator.markers_written(markers.transactional_id, markers.producer)

    here.table.send_markers = write
    goes_on = here.end(here.ongoing())
    assert (goes_on, here.state, sent) == (
        Producer(FIRST_ID, 1),
        "CompleteCommit",
        ["PrepareCommit"],
    )
    here.log.held = True
    adding = here.lead(goes_on, A)
    here.log.release()
    await adding
    here.log.held = True
    ending = here.end(goes_on, commits=False)
    assert (here.state, sent) == ("Ongoing", ["PrepareCommit"]), "a marker follows the commit"
    here.log.release()
    assert (here.state, sent[1:]) == ("CompleteAbort", ["PrepareAbort"])
    assert await ending == Producer(FIRST_ID, 2)


async def test_sweep_of_many_transactions_lets_the_event_loop_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = await Transactions().load()
    for number in range(20):
        asked = InitProducerId(f"x{number}", TIMEOUT_MS, None, "host")
        producer = here.coordinator.init_producer_id(asked).producer  # type: ignore[union-attr]
        here.coordinator.add_partitions(AddPartitions(f"x{number}", producer, (A,), TV0, 1))
    here.time.pass_ms(TIMEOUT_MS)
    sent: list[int] = []

    async def pause() -> None:
        sent.append(len(here.sent))

    monkeypatch.setattr(here.time, "pause", pause)
    await here.sweep()
    assert sent == [0, 8, 16]
    assert len(here.sent) == 20
