"""A broker process with a low limit of open files: what it refuses, and that it serves on."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from barnabas.client.connection import Connection
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import create_partitions, create_topics
from tests.support.command_line import Served
from tests.support.data_path import Client, batch
from tests.support.waiting import eventually

QUIET = {"offsets.topic.num.partitions": "1"}


def serve(directory: Path, limit: int, **settings: str) -> Served:
    """Start a broker that may open `limit` files."""
    options = [f"--set={key}={value}" for key, value in (QUIET | settings).items()]
    place = ("-l", "127.0.0.1:0", "-d", str(directory))
    under = ("sh", "-c", f'ulimit -n {limit} && exec "$@"', "sh")
    return Served(*place, *options, under=under)


@asynccontextmanager
async def client_of(served: Served) -> AsyncIterator[Client]:
    host, port = served.servers.split(":")
    connection = await Connection.open(host, int(port), timeout=20)
    try:
        yield Client(connection)
    finally:
        await connection.close()


async def created(client: Client, topic: str, partitions: int) -> Any:
    """Ask for a topic, and return its answer."""
    request = create_topics.CreateTopicsRequest(
        topics=[
            create_topics.CreatableTopic(
                name=topic,
                num_partitions=partitions,
                replication_factor=1,
                assignments=[],
                configs=[],
            )
        ],
        timeout_ms=20_000,
    )
    return (await client.connection.request(create_topics.API, request)).topics[0]


async def grown(client: Client, topic: str, count: int) -> Any:
    """Ask for more partitions of a topic, and return its answer."""
    wanted = create_partitions.CreatePartitionsTopic(name=topic, count=count, assignments=None)
    request = create_partitions.CreatePartitionsRequest(
        topics=[wanted], timeout_ms=20_000, validate_only=False
    )
    return (await client.connection.request(create_partitions.API, request)).results[0]


async def write_all(client: Client, partitions: Iterable[int]) -> int:
    """Append a record to each partition of the topic, as a client that repeats; return how many
    requests were refused."""
    refused = 0

    async def written(index: int) -> bool:
        nonlocal refused
        answer = await client.produce(batch(b"v"), index=index)
        assert answer.error_code in (0, ErrorCode.KAFKA_STORAGE_ERROR)
        refused += answer.error_code != 0
        return not answer.error_code

    for index in partitions:
        await eventually(lambda index=index: written(index))
    return refused


async def read_all(client: Client, partitions: Iterable[int], records: int) -> None:
    """Fetch the records of each partition of the topic, as a client that repeats."""

    async def read(index: int) -> bool:
        found = await client.fetch_one(0, index=index)
        if found.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
            return False
        assert (found.error_code, found.high_watermark) == (0, records)
        assert found.records
        return True

    for index in partitions:
        await eventually(lambda index=index: read(index))


def stopped(served: Served) -> list[dict[str, Any]]:
    """Stop a broker cleanly, and return the lines of its log."""
    code, _, errors = served.stop()
    assert code == 0
    lines = [json.loads(line) for line in errors.splitlines()]
    assert [line for line in lines if "offline" in line["event"] or "failed" in line["event"]] == []
    return lines


def events(lines: list[dict[str, Any]], level: str = "error") -> list[str]:
    return [line["event"] for line in lines if line["level"] == level]


def test_topic_without_descriptors_is_refused_and_the_broker_serves_on(tmp_path: Path) -> None:
    async def fill(served: Served) -> int:
        async with client_of(served) as client:
            assert (await created(client, "t", 50)).error_code == 0
            refused = await created(client, "u", 50)
            assert refused.error_code == ErrorCode.POLICY_VIOLATION
            assert "may open 100 files" in refused.error_message
            assert (await grown(client, "t", 100)).error_code == ErrorCode.POLICY_VIOLATION
            assert (await grown(client, "t", 60)).error_code == 0
            await write_all(client, range(60))
            await read_all(client, range(60), 1)
        return 60

    async def go_on(served: Served, partitions: int) -> None:
        async with client_of(served) as client:
            assert (await created(client, "u", 50)).error_code == ErrorCode.POLICY_VIOLATION
            await write_all(client, range(partitions))
            await read_all(client, range(partitions), 2)

    served = serve(tmp_path, 100)
    partitions = asyncio.run(fill(served))
    lines = stopped(served)
    (told,) = [line for line in lines if line["level"] == "error" and "refused" in line["event"]]
    assert told["event"] == "topic refused: too few file descriptors"
    assert (told["limit"], told["partitions"]) == (100, 50)
    assert "ulimit -n" in told["advice"]
    again = serve(tmp_path, 100)
    asyncio.run(go_on(again, partitions))
    stopped(again)


def test_more_partitions_than_descriptors_are_written_after_a_restart_with_a_lower_limit(
    tmp_path: Path,
) -> None:
    async def fill(served: Served) -> None:
        async with client_of(served) as client:
            assert (await created(client, "t", 150)).error_code == 0
            await write_all(client, range(150))

    async def go_on(served: Served) -> int:
        async with client_of(served) as client:
            await read_all(client, range(150), 1)
            written = 0
            while not (await client.produce(batch(b"v"), index=written)).error_code:
                written += 1
            async with AsyncExitStack() as others:
                for _ in range(5):
                    # The logs give up descriptors for connections, too.
                    other = await others.enter_async_context(client_of(served))
                    await read_all(other, range(1), 2)
            refused = await write_all(client, range(written, 150))
            await read_all(client, range(150), 2)
            return refused

    served = serve(tmp_path, 400)
    asyncio.run(fill(served))
    assert served.stop(signal.SIGKILL)[0] == -signal.SIGKILL
    again = serve(tmp_path, 80)
    assert asyncio.run(go_on(again)) > 0
    lines = stopped(again)
    assert events(lines).count("out of file descriptors") == 1
    told = next(line for line in lines if line["event"] == "out of file descriptors")
    assert "ulimit -n" in told["advice"]
    served = serve(tmp_path, 400)

    async def look(served: Served) -> None:
        async with client_of(served) as client:
            await read_all(client, range(150), 2)

    asyncio.run(look(served))
    stopped(served)


def test_partitions_without_records_need_no_descriptors_after_a_restart(tmp_path: Path) -> None:
    async def fill(served: Served) -> None:
        async with client_of(served) as client:
            assert (await created(client, "t", 300)).error_code == 0

    served = serve(tmp_path, 400)
    asyncio.run(fill(served))
    before = len(list(Path(f"/proc/{served.process.pid}/fd").iterdir()))
    assert before < 100
    stopped(served)
    again = serve(tmp_path, 80)
    assert len(list(Path(f"/proc/{again.process.pid}/fd").iterdir())) < 60

    async def go_on(served: Served) -> None:
        async with client_of(served) as client:
            assert await write_all(client, range(10)) == 0

    asyncio.run(go_on(again))
    stopped(again)
