"""One request to one broker of a test's cluster, and a call in another thread."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster as Client
from barnabas.client.connection import Connection
from barnabas.protocol.messages import describe_cluster
from barnabas.testing import Cluster

T = TypeVar("T")
DEADLINE = 20.0


def code_of(cluster: Cluster, broker: int) -> int:
    """Return the error code with which a broker answers DescribeCluster."""

    async def ask() -> int:
        host, _, port = cluster.address_of(broker).rpartition(":")
        connection = await Connection.open(host, int(port), client_id="test", timeout=DEADLINE)
        request = describe_cluster.DescribeClusterRequest(
            include_cluster_authorized_operations=False
        )
        answer = await connection.request(describe_cluster.API, request, timeout=DEADLINE)
        await connection.close()
        return int(answer.error_code)

    return asyncio.run(ask())


def create(cluster: Cluster, topic: str) -> None:
    async def ask() -> None:
        async with Client(cluster.bootstrap_servers) as client:
            await Admin(client).create_topic(topic, partitions=1)

    asyncio.run(ask())
    cluster.wait_until_in_sync()


def in_thread(work: Callable[[], T]) -> "Future[T]":
    """Run a blocking call in a thread; return the future of its result."""
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return done
