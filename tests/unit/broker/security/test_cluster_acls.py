"""The rules of a cluster: how brokers follow them, and what happens to them when things fail."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from barnabas.broker.cluster import acl_znodes
from barnabas.broker.cluster.followed_nodes import KEPT_CHANGES
from barnabas.broker.security import cluster_acls
from barnabas.broker.security.cluster_acls import AclError, ClusterAcls, DeletedAcl
from barnabas.broker.store.embedded import EmbeddedSession, EmbeddedStore
from barnabas.broker.store.metadata_store import (
    NotAllowed,
    SessionExpired,
    StoreUnavailable,
    TooLarge,
)
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.security.acl.matcher import Matcher, Policy, Reason, RuleSet
from barnabas.security.acl.rules import (
    AccessControlEntry,
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from barnabas.security.principal import Principal
from tests.support.waiting import eventually

ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")
TOPIC = ResourceType.TOPIC
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
READ, WRITE, ALL = AclOperation.READ, AclOperation.WRITE, AclOperation.ALL


def rule(
    name: str,
    who: Principal = ALICE,
    operation: AclOperation = READ,
    permission: AclPermissionType = ALLOW,
    how: PatternType = LITERAL,
) -> AclBinding:
    return AclBinding(
        ResourcePattern(TOPIC, name, how), AccessControlEntry(who, "*", operation, permission)
    )


class Session:
    """A session whose operations fail on demand."""

    def __init__(self, session: EmbeddedSession) -> None:
        self._session = session
        self.fail: Callable[[str, str], Exception | None] = lambda _call, _path: None

    async def get(self, path: str) -> Any:
        self._check("get", path)
        return await self._session.get(path)

    async def children(self, path: str) -> list[str]:
        self._check("children", path)
        return await self._session.children(path)

    async def multi(self, ops: Any) -> Any:
        for op in ops:
            self._check("multi", op.path)
        return await self._session.multi(ops)

    def _check(self, call: str, path: str) -> None:
        error = self.fail(call, path)
        if error is not None:
            raise error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


class Broker:
    """The rules on one broker, which follows changes as a broker does."""

    def __init__(self, store: EmbeddedStore) -> None:
        self.session: Any = Session(store.session())
        self.acls = ClusterAcls(self.session)
        self.versions: list[RuleSet | None] = []
        self.acls.follow(self.versions.append)
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> "Broker":
        await self.acls.start(self._changed.set)
        self._task = asyncio.create_task(self._follow())
        return self

    async def _follow(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self.acls.catch_up()
            except (StoreUnavailable, SessionExpired):
                self._changed.set()
                await asyncio.sleep(0.002)

    async def stop(self) -> None:
        self.acls.stop()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def rules(self) -> set[AclBinding]:
        """Return the rules in force."""
        rules = self.acls.rules
        assert rules is not None
        return {AclBinding(pattern, each) for pattern, found in rules.patterns() for each in found}

    def allows(self, name: str, who: Principal = ALICE) -> bool:
        rules = self.acls.rules
        return rules is not None and Matcher(rules, Policy()).allows(who, "h", READ, TOPIC, name)

    async def create(self, *rules: AclBinding) -> None:
        assert await self.acls.create(rules) == [None] * len(rules)


@pytest.fixture
async def start(store: EmbeddedStore) -> AsyncIterator[Callable[[], Any]]:
    started: list[Broker] = []

    async def start() -> Broker:
        broker = Broker(store)
        started.append(broker)
        return await broker.start()

    yield start
    for broker in started:
        await broker.stop()


Start = Callable[[], Any]


class KafkasTool:
    """The writes of Kafka 3.9's kafka-acls: the rules, and then the notification."""

    def __init__(self, store: EmbeddedStore) -> None:
        self._session = store.session()

    async def write(self, path: str, data: bytes) -> None:
        if await self._session.exists(path) is None:
            await self._session.create(path, data)
        else:
            await self._session.set(path, data)

    async def notify(self, pattern: ResourcePattern, data: bytes | None = None) -> None:
        await self._session.create(
            acl_znodes.change_path(pattern.pattern_type),
            acl_znodes.encode_change(pattern) if data is None else data,
            sequence=True,
        )

    async def delete_notifications(self) -> None:
        for parent in acl_znodes.CHANGES.values():
            for name in await self._session.children(parent):
                await self._session.delete(f"{parent}/{name}")

    async def set(self, *rules: AclBinding, notify: bool = True) -> None:
        pattern = rules[0].pattern
        data = acl_znodes.encode_rules([each.entry for each in rules])
        await self.write(acl_znodes.rules_path(pattern), data)
        if notify:
            await self.notify(pattern)


@pytest.fixture
def tool(store: EmbeddedStore) -> KafkasTool:
    return KafkasTool(store)


# --- following


async def test_rules_of_a_new_cluster_are_empty_and_loaded(start: Start) -> None:
    broker = await start()
    assert broker.rules() == set()
    assert broker.acls.rules.version > 0


async def test_broker_without_loaded_rules_has_none(store: EmbeddedStore) -> None:
    assert ClusterAcls(store.session()).rules is None


async def test_rules_that_were_stored_before_are_loaded(start: Start, tool: KafkasTool) -> None:
    await (await start()).stop()
    rules = {rule("t"), rule("t", BOB, ALL, DENY), rule("t", how=PREFIXED)}
    await tool.set(rule("t"), rule("t", BOB, ALL, DENY))
    await tool.set(rule("t", how=PREFIXED))
    assert (await start()).rules() == rules


async def test_rules_of_kafkas_tool_are_followed(start: Start, tool: KafkasTool) -> None:
    broker = await start()
    before = broker.acls.rules.version
    await tool.set(rule("t"), rule("t", BOB))
    await eventually(lambda: broker.rules() == {rule("t"), rule("t", BOB)})
    await tool.set(rule("t", permission=DENY), rule("t"))
    await tool.set(rule("t", BOB, how=PREFIXED))
    await eventually(lambda: broker.allows("to", BOB))
    assert not broker.allows("t")
    versions = [each.version for each in broker.versions if each is not None]
    assert versions == sorted({*versions})
    assert versions[-1] > before


async def test_change_of_one_broker_is_in_force_there_at_once_and_soon_on_others(
    start: Start,
) -> None:
    one, other = await start(), await start()
    await one.create(rule("t"), rule("t", BOB, permission=DENY))
    assert one.rules() == {rule("t"), rule("t", BOB, permission=DENY)}
    await eventually(lambda: other.rules() == one.rules())
    await other.acls.delete([AclFilter(principal="User:bob")])
    assert other.rules() == {rule("t")}
    await eventually(lambda: one.rules() == {rule("t")})


async def test_broker_that_deletes_a_rule_has_those_that_others_added_before(start: Start) -> None:
    """Its users were refused until it had read the added rule."""
    one, other = await start(), await start()
    await other.create(rule("t"))
    await other.stop()
    await one.create(rule("t", how=PREFIXED))
    await other.acls.delete([AclFilter(TOPIC, "t", LITERAL)])
    assert other.rules() == {rule("t", how=PREFIXED)}


@pytest.mark.parametrize("added", [LITERAL, PREFIXED])
@pytest.mark.parametrize("during", ["children", "get"])
async def test_rule_that_replaces_another_is_in_force_before_that_one_is_gone(
    start: Start, added: PatternType, during: str
) -> None:
    """They have notifications in two places, and were listed and read one after the other."""
    one, other = await start(), await start()
    old = PREFIXED if added is LITERAL else PatternType.LITERAL
    await other.create(rule("t", how=old))
    await other.stop()
    await one.create(rule("t", BOB, how=old))
    call, replaced = getattr(other.session, during), False

    async def interrupted(path: str) -> Any:
        nonlocal replaced
        found = await call(path)
        if not replaced:
            replaced = True
            await one.create(rule("t", how=added))
            await one.acls.delete([AclFilter(TOPIC, "t", old)])
        return found

    setattr(other.session, during, interrupted)
    other.versions.clear()
    await other.acls.catch_up()
    assert other.rules() == {rule("t", how=added)}
    assert all(
        rules is not None and Matcher(rules, Policy()).allows(ALICE, "h", READ, TOPIC, "t")
        for rules in other.versions
    )


async def test_unreadable_rules_deny_what_they_name_until_they_are_mended(
    start: Start, tool: KafkasTool
) -> None:
    broker = await start()
    await broker.create(rule("*", operation=ALL), rule("t", BOB, ALL, DENY, PREFIXED))
    damaged = ResourcePattern(TOPIC, "t", PREFIXED)
    await tool.write(acl_znodes.rules_path(damaged), b'{"version":1,"acls":[{}]}')
    await tool.notify(damaged)
    await eventually(lambda: not broker.allows("t"))
    assert broker.allows("s")
    matcher = Matcher(broker.acls.rules, Policy())
    assert matcher.decide(ALICE, "h", READ, TOPIC, "tt").reason is Reason.UNREADABLE
    assert not (await start()).allows("t")
    await tool.set(rule("t", BOB, ALL, DENY, PREFIXED))
    await eventually(lambda: broker.allows("t"))


async def test_unreadable_rules_are_not_overwritten(start: Start, tool: KafkasTool) -> None:
    broker = await start()
    path = acl_znodes.rules_path(ResourcePattern(TOPIC, "t"))
    await tool.write(path, b"damaged")
    await tool.notify(ResourcePattern(TOPIC, "t"))
    (error,) = await broker.acls.create([rule("t")])
    assert error is not None
    assert error.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert path in error.message
    ((deleted,),) = await broker.acls.delete([AclFilter(TOPIC, "t", LITERAL)])
    assert deleted.error == error
    assert await broker.session.get(path) == (b"damaged", (await broker.session.get(path))[1])
    assert not broker.allows("t")


@pytest.mark.parametrize("how", [LITERAL, PREFIXED])
async def test_unreadable_notification_makes_the_broker_read_everything(
    start: Start, tool: KafkasTool, how: PatternType
) -> None:
    broker = await start()
    await tool.set(rule("t"), notify=False)
    await tool.set(rule("s", how=PREFIXED), notify=False)
    await tool.notify(ResourcePattern(TOPIC, "x", how), b"\xff")
    await eventually(lambda: broker.allows("t") and broker.allows("st"))


async def test_broker_that_missed_deleted_notifications_reads_everything(
    start: Start, tool: KafkasTool
) -> None:
    broker = await start()
    await broker.create(rule("t"))
    broker.session.fail = lambda call, _path: StoreUnavailable() if call == "children" else None
    await tool.set(rule("t", permission=DENY))
    other = await start()
    for number in range(KEPT_CHANGES + 5):
        await other.create(rule("t", BOB, AclOperation(3 + number % 12)))
        await other.acls.delete([AclFilter(TOPIC, "t", LITERAL, "User:bob")])
    kept = await other.session.children("/kafka-acl-changes")
    assert len(kept) < KEPT_CHANGES + 5
    broker.session.fail = lambda _call, _path: None
    await eventually(lambda: broker.rules() == {rule("t", permission=DENY)})


async def test_change_during_a_lost_session_is_found_without_its_notification(
    store: EmbeddedStore, start: Start, tool: KafkasTool
) -> None:
    broker = await start()
    assert await broker.session.children("/kafka-acl-changes") == []
    await store.expire(broker.session.session_id)
    await tool.set(rule("t"), rule("t", BOB, permission=DENY))
    await tool.delete_notifications()
    await tool.set(rule("s"))
    await broker.session.renew()
    await eventually(lambda: broker.allows("s"))
    assert broker.rules() == {rule("s"), rule("t"), rule("t", BOB, permission=DENY)}


async def test_load_that_fails_after_a_lost_session_is_repeated(
    store: EmbeddedStore, start: Start, tool: KafkasTool
) -> None:
    broker = await start()
    await broker.create(rule("t"))
    await store.expire(broker.session.session_id)
    await tool.set(rule("t", permission=DENY), notify=False)
    failures = iter([StoreUnavailable()] * 2)
    broker.session.fail = lambda call, at: (
        next(failures, None) if (call, at) == ("get", "/kafka-acl/Topic/t") else None
    )
    await broker.session.renew()
    await eventually(lambda: broker.rules() == {rule("t", permission=DENY)})


async def test_rules_that_vanished_during_a_lost_session_are_a_new_version(
    store: EmbeddedStore, start: Start
) -> None:
    broker = await start()
    await broker.create(rule("t"))
    before = broker.acls.rules.version
    await store.expire(broker.session.session_id)
    other = await start()
    await other.acls.delete([AclFilter()])
    await broker.session.renew()
    await eventually(lambda: broker.rules() == set())
    assert broker.acls.rules.version > before


async def test_rules_stay_in_force_while_the_store_is_away(start: Start, tool: KafkasTool) -> None:
    broker = await start()
    await broker.create(rule("t"), rule("d", permission=DENY))
    before = broker.rules()
    path = acl_znodes.rules_path(ResourcePattern(TOPIC, "d"))
    broker.session.fail = lambda call, at: (
        StoreUnavailable() if (call, at) == ("get", path) else None
    )
    await tool.notify(ResourcePattern(TOPIC, "x"), b"read everything")
    asked = 0
    fail = broker.session.fail

    def count(call: str, at: str) -> Exception | None:
        nonlocal asked
        asked += at == path
        return fail(call, at)

    broker.session.fail = count
    await eventually(lambda: asked > 2)
    assert broker.rules() == before
    await tool.set(rule("d", permission=DENY), rule("d", BOB), notify=False)
    broker.session.fail = lambda _call, _path: None
    await eventually(lambda: broker.rules() == before | {rule("d", BOB)})


async def test_rules_that_may_not_be_read_deny_all(start: Start, tool: KafkasTool) -> None:
    broker = await start()
    await broker.create(rule("t"), rule("s"))
    path = acl_znodes.rules_path(ResourcePattern(TOPIC, "t"))
    broker.session.fail = lambda _call, at: NotAllowed(at) if at == path else None
    await tool.notify(ResourcePattern(TOPIC, "t"))
    await eventually(lambda: not broker.allows("t"))
    assert broker.allows("s")
    broker.session.fail = lambda call, at: NotAllowed(at) if call == "children" else None
    await tool.notify(ResourcePattern(TOPIC, "t"))
    await eventually(lambda: broker.acls.rules is None)
    assert broker.versions[-1] is None
    broker.session.fail = lambda _call, _path: None
    await tool.notify(ResourcePattern(TOPIC, "s"))
    await eventually(lambda: broker.allows("s") and broker.allows("t"))
    versions = [each.version for each in broker.versions if each is not None]
    assert versions == sorted({*versions})


async def test_rules_of_unknown_types_are_left_alone(start: Start, tool: KafkasTool) -> None:
    await tool.write("/kafka-acl", b"")
    await tool.write("/kafka-acl/OfTheFuture", b"")
    await tool.write("/kafka-acl/OfTheFuture/t", b"")
    assert (await start()).rules() == set()


# --- changing


async def test_rules_that_brokers_add_at_the_same_time_are_all_kept(start: Start) -> None:
    brokers = [await start() for _ in range(4)]
    users = [Principal("User", f"u{number}") for number in range(8)]
    await asyncio.gather(
        *(brokers[number % 4].create(rule("t", user)) for number, user in enumerate(users))
    )
    wanted = {rule("t", user) for user in users}
    for broker in brokers:
        await eventually(lambda broker=broker: broker.rules() == wanted)


async def test_rule_that_exists_is_not_written_again(start: Start) -> None:
    broker = await start()
    await broker.create(rule("t"))
    path = acl_znodes.rules_path(ResourcePattern(TOPIC, "t"))
    before = await broker.session.get(path)
    await broker.create(rule("t"), rule("t"))
    assert await broker.session.get(path) == before
    assert len(await broker.session.children("/kafka-acl-changes")) == 1


async def test_filters_delete_rules_and_name_them(start: Start) -> None:
    broker = await start()
    rules = [rule("ab"), rule("ab", BOB), rule("a", how=PREFIXED), rule("*"), rule("x")]
    await broker.create(*rules)
    named, matching, nothing = await broker.acls.delete(
        [
            AclFilter(TOPIC, "ab", LITERAL, "User:alice"),
            AclFilter(TOPIC, "ab", PatternType.MATCH),
            AclFilter(TOPIC, "missing", PatternType.ANY),
        ]
    )
    assert named == [DeletedAcl(rule("ab"), None)]
    assert {each.rule for each in matching} == {*rules[:4]}
    assert nothing == []
    assert broker.rules() == {rule("x")}
    path = acl_znodes.rules_path(ResourcePattern(TOPIC, "ab"))
    assert await broker.session.exists(path) is None
    await broker.create(rule("ab"))
    assert broker.allows("ab")


async def test_named_rule_is_deleted_before_this_broker_knows_it(
    start: Start, tool: KafkasTool
) -> None:
    broker = await start()
    await tool.set(rule("t"), notify=False)
    ((deleted,),) = await broker.acls.delete([AclFilter(TOPIC, "t", LITERAL)])
    assert deleted == DeletedAcl(rule("t"), None)


async def test_names_that_cannot_be_stored_are_refused(start: Start) -> None:
    broker = await start()
    results = await broker.acls.create([rule("a/b"), rule("t"), rule("..")])
    refused = AclError(ErrorCode.INVALID_REQUEST, "ACL binding contains invalid resource name: a/b")
    assert results[0] == refused
    assert results[1] is None
    assert results[2] is not None
    assert broker.rules() == {rule("t")}
    assert await broker.acls.delete([AclFilter(TOPIC, "a/b", LITERAL)]) == [[]]


async def test_more_rules_than_a_node_can_have_are_refused(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await start()
    monkeypatch.setattr(acl_znodes, "MAX_NODE_BYTES", 1000)
    many = [rule("t", Principal("User", f"u{number}")) for number in range(30)]
    results = await broker.acls.create([*many, rule("s")])
    assert [each.code for each in results[:-1]] == [ErrorCode.INVALID_REQUEST] * 30
    assert results[-1] is None
    broker.session.fail = lambda call, at: TooLarge(at) if call == "multi" else None
    (error,) = await broker.acls.create([rule("r")])
    assert error is not None
    assert error.code is ErrorCode.INVALID_REQUEST


async def test_missing_folder_of_a_type_is_created(start: Start) -> None:
    broker = await start()
    await broker.session.delete("/kafka-acl/Topic")
    await broker.create(rule("t"))
    assert broker.rules() == {rule("t")}


# --- the event loop


@pytest.fixture
async def in_one_go(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[[], int]]:
    """Return the largest number of rules that were decoded or compared without a break."""
    now = worst = 0

    def count(rules: int) -> None:
        nonlocal now, worst
        now += rules
        worst = max(worst, now)

    def decode(data: bytes) -> Any:
        rules = decoded(data)
        count(len(rules))
        return rules

    def compare(self: AclFilter, entry: AccessControlEntry) -> bool:
        count(1)
        return compared(self, entry)

    async def breaks() -> None:
        nonlocal now
        while True:
            await asyncio.sleep(0)
            now = 0

    decoded, compared = acl_znodes.decode_rules, AclFilter.matches_entry
    monkeypatch.setattr(acl_znodes, "decode_rules", decode)
    monkeypatch.setattr(AclFilter, "matches_entry", compare)
    task = asyncio.create_task(breaks())
    yield lambda: worst
    task.cancel()


async def test_large_nodes_are_decoded_one_by_one(
    start: Start, tool: KafkasTool, in_one_go: Callable[[], int]
) -> None:
    await (await start()).stop()
    for name in "abcde":
        await tool.set(*(rule(name, Principal("User", f"u{each}")) for each in range(1200)))
    broker = await start()
    assert len(broker.rules()) == 6000
    assert in_one_go() == 1200


async def test_many_filters_of_one_resource_are_compared_one_by_one(
    start: Start, in_one_go: Callable[[], int]
) -> None:
    broker = await start()
    await broker.create(*(rule("t", Principal("User", f"u{each}")) for each in range(500)))
    before = in_one_go()
    filters = [AclFilter(TOPIC, "t", LITERAL, host=f"10.0.0.{each}") for each in range(20)]
    assert await broker.acls.delete([*filters, *filters]) == [[]] * 40
    assert in_one_go() <= max(before, 1000)
    assert len(broker.rules()) == 500


TOO_MANY = AclError(ErrorCode.POLICY_VIOLATION, "There are too many rules: delete some of them.")


async def test_rules_beyond_the_bound_are_refused_until_others_are_deleted(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_acls, "MAX_BYTES", 100 * 150)
    broker = await Broker(store).start()
    rules = [rule(f"n{number}") for number in range(300)]
    errors = await broker.acls.create(rules)
    made = [each for each, error in zip(rules, errors, strict=True) if error is None]
    assert set(errors) == {None, TOO_MANY}
    assert broker.rules() == {*made}
    assert 90 < len(made) < 130
    assert await broker.acls.create([made[0], rule("another")]) == [None, TOO_MANY]
    assert await broker.acls.create([rule(made[0].pattern.name, BOB)] * 2) == [TOO_MANY] * 2
    await broker.acls.delete([AclFilter(name=each.pattern.name) for each in made[:50]])
    assert await broker.acls.create([rule("another")]) == [None]
    await broker.stop()


async def test_brokers_that_create_rules_at_once_keep_the_bound(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_acls, "MAX_BYTES", 100 * 150)
    broker = await Broker(store).start()
    await asyncio.gather(
        *(broker.acls.create([rule(f"{who}-{n}") for n in range(150)]) for who in range(4))
    )
    assert broker.acls.rules is not None
    assert broker.acls.rules.bytes <= cluster_acls.MAX_BYTES
    await broker.stop()


async def test_rules_of_many_patterns_are_one_transaction(store: EmbeddedStore) -> None:
    broker = await Broker(store).start()
    before = store.tree.zxid
    await broker.acls.create([rule(f"n{number}") for number in range(320)])
    assert store.tree.zxid - before < 40
    deleted = await broker.acls.delete([AclFilter()])
    assert len(deleted[0]) == 320
    assert store.tree.zxid - before < 80
    assert broker.rules() == set()
    await broker.stop()


async def test_rule_that_cannot_be_stored_does_not_keep_others_away(store: EmbeddedStore) -> None:
    broker = await Broker(store).start()
    errors = await broker.acls.create([rule("a"), rule("a/b"), rule("c")])
    assert [error and error.code for error in errors] == [None, ErrorCode.INVALID_REQUEST, None]
    assert broker.rules() == {rule("a"), rule("c")}
    await broker.stop()


async def test_filters_that_match_too_many_rules_together_delete_none(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_acls, "MAX_DELETED", 10)
    broker = await Broker(store).start()
    await broker.acls.create([rule(f"n{number}") for number in range(5)])
    with pytest.raises(KafkaError) as refused:
        await broker.acls.delete([AclFilter()] * 3)
    assert refused.value.code == ErrorCode.POLICY_VIOLATION
    assert len(broker.rules()) == 5
    assert [len(each) for each in await broker.acls.delete([AclFilter()] * 2)] == [5, 5]
    await broker.stop()
