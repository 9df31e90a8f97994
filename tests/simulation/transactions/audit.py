"""The invariants of the simulated transactions, after every event and at the end."""

from typing import TYPE_CHECKING, Any

from barnabas.coordinator.transaction.metadata import (
    LAST_CLIENT_EPOCH,
    TV2,
    Producer,
    TransactionMetadata,
)
from barnabas.coordinator.transaction.producers import Initialised
from barnabas.coordinator.transaction.records import decode_record
from barnabas.coordinator.transaction.states import (
    COMPLETED,
    PREPARED,
    SETTLED,
    TRANSITIONS,
    TransactionState,
)
from barnabas.protocol.records.batch import read_header
from barnabas.protocol.records.record import iter_records
from tests.simulation.transactions.broker import Brokers

if TYPE_CHECKING:
    from tests.simulation.transactions.client import Client

_OUTCOME = {
    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
}


class Audit:
    """The audit of one coordinator and its partitions, by the committed records."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._seen = 0
        self._known: dict[str, TransactionMetadata] = {}
        self._holders: dict[Producer, str] = {}
        self.story: list[str] = []
        """The events so far, for the message of a failure."""

    def look(self) -> None:
        """Check the invariants after an event."""
        assert not self._brokers.faults, self._brokers.faults
        log = self._brokers.log
        while self._seen < len(log.batches):
            batch = log.batches[self._seen]
            header = read_header(batch)
            if header.next_offset > log.committed:
                return
            self._seen += 1
            for record in iter_records(batch, 0, header):
                decoded = decode_record(record.key or b"", record.value)
                assert decoded is not None
                assert decoded.value is not None
                self._step(decoded.value)

    def _step(self, after: TransactionMetadata) -> None:
        before = self._known.get(after.transactional_id)
        self._known[after.transactional_id] = after
        if before is None:
            return
        assert after.state in TRANSITIONS[before.state], f"{before.state} -> {after.state}"
        if before.client.producer_id == after.client.producer_id:
            assert after.client.epoch >= before.client.epoch, "an epoch went back"
        else:
            assert after.client.epoch == 0, "another producer id begins with epoch 0"
            assert before.client.epoch >= LAST_CLIENT_EPOCH, "a producer id was changed too early"
        if before.state is TransactionState.ONGOING:
            bumps = after.state in PREPARED and (before.is_kept or after.client_version >= TV2)
            ongoing = before.producer._replace(epoch=before.epoch + bumps)
            fenced = before.producer._replace(epoch=before.epoch + 1)
            assert after.producer in (ongoing, fenced), "the producer of open records changed"
            assert after.state in PREPARED or after.producer == before.producer
        if before.state in PREPARED:
            assert after.state is _OUTCOME[before.state], "a decided outcome changed"
            self._completed(before)

    def _completed(self, decided: TransactionMetadata) -> None:
        committed = decided.state is TransactionState.PREPARE_COMMIT
        for place, partition in self._brokers.partitions.items():
            entry = partition.producers.entry(decided.producer_id)
            assert entry is None or entry.current_txn_first_offset is None, (
                f"{decided.transactional_id} is complete, but open in {place}"
            )
            if place in decided.partitions:
                assert partition.markers[decided.producer_id] == (decided.epoch, committed), (
                    f"{decided.transactional_id} is complete without a marker in {place}"
                )

    def answered(self, client: "Client", what: str, result: Any) -> None:
        """Record a broker's response to a client, which may be lost on the way."""
        if isinstance(result, Initialised):
            result = result.producer
        if isinstance(result, Producer) and not what.startswith("end"):
            assert result.epoch <= LAST_CLIENT_EPOCH, "an epoch that no producer may have"
            holder = self._holders.setdefault(result, client.name)
            assert holder == client.name, f"{result} is {holder}'s and {client.name}'s"

    # -- at the end ------------------------------------------------------------------------------

    def judge(self, clients: list["Client"]) -> None:
        """Check the invariants at the end of the history."""
        for key, txn in self._known.items():
            assert txn.state in SETTLED, f"{key} is left in {txn.state.value}"
            assert txn.state not in COMPLETED or not txn.partitions
        for place, partition in self._brokers.partitions.items():
            assert partition.producers.first_unstable_offset is None, f"a reader hangs in {place}"
        for client in clients:
            assert client.task.cancelled() or client.task.exception() is None
            ended = client.ended or "was fenced"
            for begun in client.transactions:
                outcomes = [
                    self._brokers.partitions[place].outcomes.get(value)
                    for place, value in begun.acknowledged
                ]
                found = self._found(begun.name)
                assert None not in outcomes, f"{begun.name} ({ended}) has lost acknowledged records"
                assert len(found) <= 1, f"{begun.name} ({ended}) is torn"
                if begun.told is not None:
                    assert found <= {begun.told}, f"{begun.name} ({ended}) was told {begun.told}"
                begun.judge(found)

    def _found(self, name: str) -> set[bool]:
        """Return the outcomes of all records of a transaction."""
        prefix = f"{name}.".encode()
        return {
            committed
            for partition in self._brokers.partitions.values()
            for value, committed in partition.outcomes.items()
            if value.startswith(prefix)
        }
