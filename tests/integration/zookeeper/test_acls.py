"""Access control rules in a real ZooKeeper, written by brokers and by a client that writes as
Kafka's tool does."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from barnabas.broker.security.cluster_acls import ClusterAcls
from barnabas.broker.store.metadata_store import SessionExpired
from barnabas.broker.store.zookeeper.store import ZooKeeperStore
from barnabas.security.acl.matcher import Matcher, Policy
from barnabas.security.acl.rules import AclFilter, AclOperation, ResourceType, new_rule
from barnabas.security.principal import Principal
from tests.integration.zookeeper.conftest import Stores
from tests.support.waiting import eventually
from tests.support.zookeeper import ZooKeeperServer

ALICE = Principal("User", "alice")
DENY, ALLOW = 2, 3
LITERAL, PREFIXED = 3, 4
TOPIC_CODE, READ_CODE = 2, 3


def rule(name: str, permission: int = ALLOW, how: int = LITERAL):
    return new_rule(TOPIC_CODE, name, how, str(ALICE), "*", READ_CODE, permission)


def allows(acls: ClusterAcls, name: str) -> bool:
    matcher = Matcher(acls.rules, Policy()) if acls.rules is not None else None
    return matcher is not None and matcher.allows(
        ALICE, "10.0.0.1", AclOperation.READ, ResourceType.TOPIC, name
    )


@asynccontextmanager
async def following(store: ZooKeeperStore) -> AsyncIterator[ClusterAcls]:
    """Follow the rules as a broker does: in a new session after each lost one."""
    acls, changed = ClusterAcls(store), asyncio.Event()

    async def follow() -> None:
        while True:
            await changed.wait()
            changed.clear()
            try:
                await acls.catch_up()
            except SessionExpired:
                await store.renew()
                changed.set()

    store.on_expired(changed.set)
    await acls.start(changed.set)
    task = asyncio.create_task(follow())
    try:
        yield acls
    finally:
        acls.stop()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_rules_of_brokers_and_of_kafkas_tool_reach_all_brokers(
    server: ZooKeeperServer, stores: Stores, chroot: str
) -> None:
    tool = await stores.open(server, chroot)
    first, second = await stores.open(server, chroot), await stores.open(server, chroot)
    async with following(first) as one, following(second) as other:
        assert await one.create([rule("a"), rule("p", how=PREFIXED)]) == [None, None]
        assert allows(one, "a")
        await eventually(lambda: allows(other, "a") and allows(other, "pq"))
        node = "/kafka-acl-extended/prefixed/Topic/p"
        assert (await tool.get(node))[0] == (
            b'{"version":1,"acls":[{"principal":"User:alice","permissionType":"Allow",'
            b'"operation":"Read","host":"*"}]}'
        )
        await tool.set(
            "/kafka-acl/Topic/a",
            b'{ "version" : 1, "acls" : [ { "host" : "*", "permissionType" : "Deny", '
            b'"operation" : "All", "principal" : "User:*" } ] }',
        )
        await tool.create("/kafka-acl-changes/acl_changes_", b"TOPIC:a", sequence=True)
        await eventually(lambda: not allows(one, "a") and not allows(other, "a"))
        ((deleted,),) = await other.delete([AclFilter(ResourceType.TOPIC, "a")])
        assert deleted.error is None
        assert await tool.exists("/kafka-acl/Topic/a") is None


async def test_deny_that_came_during_a_lost_session_is_in_force_afterwards(
    server: ZooKeeperServer, stores: Stores, chroot: str
) -> None:
    first, second = await stores.open(server, chroot), await stores.open(server, chroot)
    async with following(first) as one:
        await one.create([rule("p", how=PREFIXED)])
        assert allows(one, "pq")
        assert first.key is not None
        lost = asyncio.Event()
        first.on_expired(lost.set)
        await asyncio.to_thread(server.expire, *first.key)
        await lost.wait()
        await second.create(
            "/kafka-acl/Topic/pq",
            b'{"version":1,"acls":[{"principal":"User:alice","permissionType":"Deny",'
            b'"operation":"Read","host":"*"}]}',
        )
        await eventually(lambda: not allows(one, "pq"))
        assert allows(one, "p")
