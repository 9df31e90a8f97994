"""A sole replica that was closed cleanly leads on in its epoch; after any other end it gets another
one, and so does a coordinator's log."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.broker.cluster.topic_names import TRANSACTION_STATE
from barnabas.client.connection import Connection
from barnabas.protocol.messages import create_topics, find_coordinator, metadata
from tests.support.brokers.process import BrokerProcess
from tests.support.data_path import Client, batch, connected, running_in_memory
from tests.support.in_cluster import CLIENTS, connected_to, member, shared_metadata
from tests.support.mem_files import Fault, MemFiles
from tests.support.waiting import eventually

KEYS = {"transaction_state_log_num_partitions": "1"}


async def epochs(client: Client) -> dict[str, tuple[int, int]]:
    """Return the leader and the epoch of partition 0 of each topic."""
    request = metadata.MetadataRequest(topics=None)
    answer = await client.connection.request(metadata.API, request)
    return {
        topic.name: (topic.partitions[0].leader_id, topic.partitions[0].leader_epoch)
        for topic in answer.topics
    }


async def create(client: Client, replica: int = 0) -> None:
    """Create a topic whose only replica is on a broker."""
    assignment = create_topics.CreatableReplicaAssignment(partition_index=0, broker_ids=[replica])
    topic = create_topics.CreatableTopic(
        name="t", num_partitions=-1, replication_factor=-1, assignments=[assignment], configs=[]
    )
    request = create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=5000)
    answer = await client.connection.request(create_topics.API, request)
    assert answer.topics[0].error_code == 0


async def prepare(client: Client) -> None:
    """Create a topic with a record, and the topic of the transaction coordinator."""
    await create(client)
    assert (await client.produce(batch(b"first"))).error_code == 0
    request = find_coordinator.FindCoordinatorRequest(key_type=1, coordinator_keys=["id"])

    async def is_found() -> bool:
        answer = await client.connection.request(find_coordinator.API, request)
        return not answer.coordinators[0].error_code

    await eventually(is_found)


async def append(client: Client, offset: int) -> None:
    """Append a record in the current epoch, and read the log up to it."""
    produced = await client.produce(batch(b"next"))
    assert (produced.error_code, produced.base_offset) == (0, offset)
    end = await client.list_offset(-1)
    assert (end.offset, end.leader_epoch) == (offset + 1, (await epochs(client))["t"][1])


async def test_process_that_stopped_keeps_epochs_and_one_that_was_killed_does_not(
    tmp_path: Path,
) -> None:
    broker = BrokerProcess(tmp_path / "data", **KEYS)
    expected = {"t": (0, 0), TRANSACTION_STATE: (0, 0)}
    ends: list[tuple[Callable[[], int], int]] = [
        (broker.terminate, 0),
        (broker.terminate, 0),
        (broker.kill, 1),
        (broker.terminate, 0),
    ]
    with broker:
        for number, (end, raised) in enumerate(ends):
            host, port = broker.bootstrap_servers.split(":")
            connection = await Connection.open(host, int(port), client_id="test", timeout=5)
            client = Client(connection)
            if not number:
                await prepare(client)
            found = await epochs(client)
            assert found == {name: (found[name][0], expected[name][1]) for name in expected}
            await append(client, 1 + number)
            await connection.close()
            end()
            expected = {
                "t": (0, expected["t"][1] + raised),
                TRANSACTION_STATE: (0, expected[TRANSACTION_STATE][1] + 1),
            }
            broker.start()


@pytest.mark.parametrize(
    "fault",
    [
        Fault("append", ".kafka_cleanshutdown.tmp", error=errno.ENOSPC),
        Fault("append", ".snapshot", error=errno.ENOSPC, from_then_on=True),
        Fault("append", "recovery-point-offset-checkpoint.tmp", error=errno.ENOSPC),
    ],
    ids=lambda fault: fault.suffix,
)
async def test_stop_on_a_full_disk_is_no_clean_stop(fault: Fault) -> None:
    files = MemFiles()
    async with running_in_memory(files, **KEYS) as broker, connected(broker) as client:
        await prepare(client)
        files.faults.append(fault)
    assert fault.hits
    files.faults.clear()
    async with running_in_memory(files, **KEYS) as broker, connected(broker) as client:
        assert (await epochs(client))["t"][1] == 1
        await append(client, 1)


async def test_only_decisions_in_between_raise_the_epoch_of_a_clean_stop(tmp_path: Path) -> None:
    async with shared_metadata(tmp_path) as store:
        for run in range(3):
            async with (
                member(store, tmp_path, 2) as broker,
                connected_to(broker, CLIENTS) as client,
            ):
                if not run:
                    await create(client, 2)
                assert (await epochs(client))["t"] == (2, 0)
                if run:
                    await append(client, run - 1)
        async with member(store, tmp_path, 1) as other, connected_to(other, CLIENTS) as client:

            async def see(leader: int, epoch: int) -> bool:
                return (await epochs(client))["t"] == (leader, epoch)

            await eventually(lambda: see(-1, 1))
            async with member(store, tmp_path, 2):
                await eventually(lambda: see(2, 2))
            await eventually(lambda: see(-1, 3))
