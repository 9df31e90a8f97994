"""The blocking front of the client with a broker, in processes that fork and end."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.client.admin import Admin
from barnabas.client.blocking import ClientLoop
from barnabas.client.cluster import Cluster
from barnabas.testing import Broker
from tests.integration.reading import values

ROOT = Path(__file__).parents[2]
DEADLINE = 60.0

PROGRAM = """
import asyncio, os, sys, threading
from barnabas.client import blocking
from barnabas.client.blocking import ClientLoop
from barnabas.client.producer import Producer

servers, topic = sys.argv[1:]

async def produce(cluster, value):
    async with Producer(cluster) as producer:
        await producer.send(topic, value)

async def endless():
    try:
        await asyncio.Event().wait()
    finally:
        print("cancelled at exit", flush=True)

def in_child(value):
    '''Run in a fork of a process whose loop runs, while another thread holds the lock.'''
    pid = os.fork()
    if pid:
        return pid
    try:
        inherited.run(produce(None, b"never"))
    except RuntimeError as error:
        print(error)
    own = ClientLoop.of_process()
    assert own is not inherited
    cluster = own.cluster(servers)
    assert cluster is own.cluster(servers) and cluster is not before
    own.run(produce(cluster, value), timeout=30)
    sys.exit(0)

inherited = ClientLoop.of_process()
before = inherited.cluster(servers)
inherited.run(produce(before, b"parent before"), timeout=30)
held, done = threading.Event(), threading.Event()

def hold():
    with blocking._loops._lock:
        held.set()
        done.wait()

holder = threading.Thread(target=hold)
holder.start()
held.wait()
children = [in_child(b"child %d" % n) for n in range(2)]
done.set()
holder.join()
for pid in children:
    assert os.waitpid(pid, 0)[1] == 0, "a child failed"
inherited.run(produce(before, b"parent after"), timeout=30)
inherited.submit(endless())
"""


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


async def test_forked_children_have_clients_of_their_own_and_all_end_quietly(servers: str) -> None:
    async with Cluster(servers) as cluster:
        await Admin(cluster).create_topic("forked", partitions=2)
        # Development mode reports transports, sockets and tasks that are left open.
        command = [sys.executable, "-X", "dev", "-c", PROGRAM, servers, "forked"]
        ended = await asyncio.to_thread(
            subprocess.run,
            command,
            capture_output=True,
            timeout=DEADLINE,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            check=False,
        )
        # It also reports slow callbacks, which a busy machine has.
        lines = ended.stderr.decode().splitlines()
        reported = [line for line in lines if not line.startswith("Executing <")]
        assert (ended.returncode, reported) == (0, [])
        assert ended.stdout.decode().count("does not run here: use ClientLoop") == 2
        assert ended.stdout.decode().count("cancelled at exit") == 1
        expected = [b"child 0", b"child 1", b"parent after", b"parent before"]
        assert await values(cluster, "forked", 4) == expected


def test_cluster_is_opened_once_for_its_arguments(servers: str) -> None:
    client = ClientLoop()
    try:
        first = client.cluster(servers)
        assert client.cluster(servers) is first
        assert client.cluster(servers, client_id="other") is not first
        connection = client.run(first.any_connection(), timeout=DEADLINE)
        assert connection.is_open
    finally:
        client.close()
    assert not connection.is_open


def test_known_cluster_is_returned_while_the_loop_is_busy(servers: str) -> None:
    free = threading.Event()

    async def hold_loop() -> None:
        free.wait(5.0)

    client = ClientLoop()
    try:
        first = client.cluster(servers)
        held = client.submit(hold_loop())
        assert client.cluster(servers) is first
        assert not held.done()
    finally:
        free.set()
        client.close()
