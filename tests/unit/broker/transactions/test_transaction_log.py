"""`__transaction_state` on a real disk: compacted, expired and read again."""

import time
from pathlib import Path

from barnabas.broker.app import Broker
from barnabas.broker.cluster.topic_names import TRANSACTION_STATE
from tests.support.data_path import Client, connected, running
from tests.support.waiting import eventually
from tests.unit.broker.transactions.transactor import Transactor, name

KEYS = {
    "transaction_state_log_num_partitions": 1,
    "log_cleaner_backoff_ms": 5,
    "log_cleaner_min_cleanable_ratio": 0.01,
    "log_cleaner_delete_retention_ms": 0,
    "log_flush_interval_ms": 5,
    "log_flush_scheduler_interval_ms": 5,
    "log_flush_offset_checkpoint_interval_ms": 5,
}


async def cleaned(broker: Broker, client: Client, bound: int) -> None:
    """Make the records so far ready for compaction, and compact them."""
    log = broker._replication.replicas.partition(TRANSACTION_STATE, 0).log
    assert log.size > bound
    log.roll(now_ms=time.time_ns() // 1_000_000)
    await Transactor(client, "later", timeout_ms=100).init()
    await eventually(lambda: log.size < bound)


async def test_open_and_decided_transactions_survive_compaction_and_restart(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, **KEYS) as broker, connected(broker) as client:
        await client.create("t")
        open_ = await Transactor(client, "open").init()
        await open_.produce()
        busy = await Transactor(client, "busy").init()
        for _ in range(40):
            assert await busy.produce() == "NONE"
            assert await busy.end() == "NONE"
            await busy.settled()
        written = broker._replication.replicas.partition(TRANSACTION_STATE, 0).log.log_end_offset
        assert written > 100
        await cleaned(broker, client, 2000)
    async with running(tmp_path, **KEYS) as broker, connected(broker) as client:
        for before, state in ((open_, "Ongoing"), (busy, "CompleteCommit")):
            after = Transactor(client, before.id)
            await eventually(lambda: _loaded(after))  # noqa: B023
            found = await after.state()
            assert (found.transaction_state, found.producer_id) == (state, before.producer_id)
            after.producer_id, after.epoch = before.producer_id, before.epoch
            after.sequences = dict(before.sequences)
            assert await after.produce() == "NONE"
            assert await after.end() == "NONE"
            assert await after.settled() == "CompleteCommit"


async def _loaded(transactor: Transactor) -> bool:
    return name((await transactor.state()).error_code) == "NONE"


async def test_expired_id_stays_unknown_after_its_tombstone_is_compacted(tmp_path: Path) -> None:
    keys = {
        **KEYS,
        "transaction_max_timeout_ms": 100,
        "transactional_id_expiration_ms": 101,
        "transaction_remove_expired_transaction_cleanup_interval_ms": 5,
    }

    async def unknown(transactor: Transactor) -> bool:
        told = name((await transactor.state()).error_code)
        return told == "TRANSACTIONAL_ID_NOT_FOUND"

    async with running(tmp_path, **keys) as broker, connected(broker) as client:
        seen = []
        for number in range(30):
            each = await Transactor(client, f"x-{number}", timeout_ms=100).init()
            seen.append(each.producer_id)
        assert len(set(seen)) == 30
        await eventually(lambda: unknown(Transactor(client, "x-0")))
        await eventually(lambda: unknown(Transactor(client, "x-29")))
        await cleaned(broker, client, 2000)
    async with running(tmp_path, **keys) as broker, connected(broker) as client:
        await eventually(lambda: unknown(Transactor(client, "x-0")))
        again = await Transactor(client, "x-0", timeout_ms=100).init()
        assert (again.producer_id not in seen, again.epoch) == (True, 0)
