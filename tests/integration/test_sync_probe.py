"""/syncz of a broker follows the ISRs of the partitions with a replica on it."""

import asyncio
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

from confluent_kafka.admin import AdminClient

from barnabas.broker.app import Broker
from tests.integration.assigned_topic import create
from tests.support.in_cluster import member, shared_metadata
from tests.support.ports import free_port
from tests.support.waiting import eventually


def ask(port: int) -> tuple[int, str]:
    try:
        with urlopen(f"http://127.0.0.1:{port}/syncz", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def is_in_sync(port: int) -> bool:
    return ask(port) == (200, "in sync\n")


def has_isr(servers: str, *isr: int) -> bool:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    return tuple(sorted(admin.list_topics("t", 20).topics["t"].partitions[0].isrs)) == isr


async def test_broker_is_in_sync_when_it_is_in_every_isr_again(tmp_path: Path) -> None:
    port = free_port()
    async with shared_metadata(tmp_path / "metadata") as store:
        broker = partial(member, store, tmp_path)

        def follower() -> AbstractAsyncContextManager[Broker]:
            return broker(1, metrics_listener=f"127.0.0.1:{port}")

        async with broker(0) as leader:
            servers = leader.bootstrap_servers
            async with follower():
                await asyncio.to_thread(create, servers, "t", 0, 1)
                await eventually(partial(asyncio.to_thread, has_isr, servers, 0, 1))
                await eventually(partial(asyncio.to_thread, is_in_sync, port))
            await eventually(partial(asyncio.to_thread, has_isr, servers, 0))
        async with follower():
            # The ISR is the broker that is down: no leader lets this one in.
            assert await asyncio.to_thread(ask, port) == (503, "t-0 is not in sync\n")
            async with broker(0):
                await eventually(partial(asyncio.to_thread, is_in_sync, port))
