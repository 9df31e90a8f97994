"""A cluster as a console shows it: data, groups, transactions, and names that would be code."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Consumer
from barnabas.client.group import GroupMember
from barnabas.client.producer import Producer
from barnabas.client.transactional_producer import TransactionalProducer
from barnabas.operations.sinks.decisions import SinkDecision, encode, key_of

T = TypeVar("T")
CODE: Final = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
GROUP: Final = f"readers {CODE}"
TRANSACTION: Final = f"txn {CODE}"
LONG: Final = "a" * 200 + ".topic-with-a-long-name"
PAGES: Final = {
    "overview": "/",
    "brokers": "/brokers",
    "topics": "/topics?internal=on",
    "topic": "/topic?name=orders",
    "end of topic": "/topic?name=orders&end=on",
    "long topic": f"/topic?name={LONG}",
    "configs": "/configs?kind=topic&name=orders&all=on",
    "records": "/records?topic=orders",
    "record search": "/records?topic=orders&path=%24.a%5B*%5D&header=none",
    "tail": "/tail?topic=orders",
    "groups": "/groups",
    "group": f"/group?id={quote(GROUP)}",
    "reset": f"/group/reset?id={quote(GROUP)}",
    "transactions": "/transactions",
    "transaction": f"/transaction?id={quote(TRANSACTION)}",
    "fence": f"/transaction/fence?id={quote(TRANSACTION)}",
    "end": f"/transaction/end?id={quote(TRANSACTION)}",
    "pipelines": "/pipelines",
    "pipeline": "/pipeline?sink=sums",
    "reassignments": "/reassignments",
    "timeline": "/timeline?q=orders",
    "security": "/security",
    "why": "/security/why",
    "lever": "/lever?do=heal",
    "create topic": "/topic/create",
    "delete topic": "/topic/delete?name=orders",
    "produce": f"/topic/produce?name=orders&what=text&key={quote(CODE)}&value={quote(CODE)}",
    "no such topic": "/topic?name=none",
    "no such page": "/nothing",
}
USER: Final = f"{'alice' * 12} {CODE}"
_OF_USER: Final = f"user={quote(USER)}&mechanism=SCRAM-SHA-256"
_RULE: Final = urlencode(
    {
        "principal": f"User:{USER}",
        "permission": "Allow",
        "operation": "Read",
        "type": "Topic",
        "name": "orders",
        "pattern": "Literal",
        "host": "*",
    }
)
_QUOTA: Final = f"user={quote(USER)}&quota=producer_byte_rate"
OF_SECURITY: Final = {
    "rules": "/security",
    "quotas": "/security?show=quotas",
    "users": "/security?show=users",
    "why": f"/security/why?principal=User:{quote(USER)}&operation=Read&type=Topic&name=orders",
    "rule": "/security/rule",
    "new rule": f"/security/rule?{_RULE.replace('Read', 'Write')}",
    "rule to remove": f"/security/rule/remove?{_RULE}",
    "quota": f"/security/quota?{_QUOTA}&value=2MB",
    "quota to remove": f"/security/quota/remove?{_QUOTA}",
    "password": f"/security/user?{_OF_USER}",
    "password to delete": f"/security/user/delete?{_OF_USER}",
}
"""The pages of brokers with users: USER has a rule to read orders, a quota and a password."""


class Scene:
    """The clients of the cluster, in a thread of their own."""

    def __init__(self, servers: str, replicas: int = 3) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.flowing = 0
        """Transactions that were committed by `flow`."""
        self._flow: Future[None] | None = None
        self._open: TransactionalProducer | None = None
        self.run(self._begin(servers, replicas))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(120)

    async def _begin(self, servers: str, replicas: int) -> None:
        self.client = Cluster(servers, client_id=f"client {CODE}")
        await self.client.refresh()
        admin = Admin(self.client)
        await admin.create_topic("orders", partitions=3, replication_factor=replicas)
        await admin.create_topic(LONG, partitions=1, replication_factor=1)
        async with Producer(self.client) as producer:
            for number in range(200):
                await producer.send(
                    "orders",
                    f"value {number} {CODE}".encode(),
                    key=f"key {CODE}".encode(),
                    headers=[(f"header {CODE}", CODE.encode())],
                    partition=number % 3,
                )
        await admin.create_topic("sums.decisions", partitions=1, replication_factor=replicas)
        async with Producer(self.client) as producer:
            decision = SinkDecision(f"query {CODE}", 1, None, ())
            await producer.send("sums.decisions", encode(decision), key=key_of("sums"))
        self.member = GroupMember(self.client, Consumer(self.client), GROUP, ["orders"])
        await self.member.ensure_joined()
        await self._hold(60)

    async def _hold(self, timeout_s: float) -> None:
        producer = TransactionalProducer(self.client, TRANSACTION, transaction_timeout=timeout_s)
        await producer.init_transactions()
        await producer.begin_transaction()
        await (await producer.send("orders", b"is open", partition=0))
        self._open = producer

    def hold(self) -> None:
        """Keep the transaction open until `release`: the first one ends after a minute, before it
        counts as a problem of the cluster."""
        self.run(self._hold(800))

    async def _release(self) -> None:
        if self._open is not None:
            await self._open.abort_transaction()
        self._open = None

    def release(self) -> None:
        self.run(self._release())

    async def send(self, partition: int, *values: bytes) -> None:
        async with Producer(self.client) as producer:
            for value in values:
                await producer.send("orders", value, partition=partition)

    def flow(self) -> None:
        """Commit one transaction after the other until the end."""
        self._flow = asyncio.run_coroutine_threadsafe(self._commit(), self._loop)

    async def _commit(self) -> None:
        producer = TransactionalProducer(self.client, "flow")
        await producer.init_transactions()
        while True:
            await producer.begin_transaction()
            await (await producer.send("orders", b"flows", partition=1))
            await producer.commit_transaction()
            self.flowing += 1
            await asyncio.sleep(0.05)

    async def _end(self) -> None:
        if self._flow is not None:
            self._flow.cancel()
        await self.member.leave()
        await self._release()
        await self.client.close()

    def close(self) -> None:
        self.run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
