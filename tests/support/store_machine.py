"""The contract of every metadata store, as a Hypothesis state machine with a simple model.

The test of an implementation subclasses `StoreMachine` with a way to start one. Several sessions
drive the store through its port only; after every step the whole tree is compared.
"""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from barnabas.broker.store.metadata_store import (
    ANY_VERSION,
    UNKNOWN_ZXID,
    BadVersion,
    Check,
    Create,
    CreateResult,
    Delete,
    MetadataStore,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    SessionExpired,
    SetData,
    Stat,
    StoreError,
    parent_of,
)

T = TypeVar("T")


class Harness(Protocol):
    """A store under test."""

    root: str
    """An existing node, empty at the start, under which the machine does everything."""

    async def session(self) -> MetadataStore: ...

    async def expire(self, session: MetadataStore) -> None: ...

    async def restart(self) -> bool:
        """End the process without warning and start it again; False where that is not possible."""
        ...

    async def settle(self) -> None:
        """Wait until pending watches are set, and changes have reached them."""
        ...

    async def close(self) -> None: ...


@dataclass
class ModelNode:
    data: bytes
    owner: int = 0
    version: int = 0
    czxid: int = 0
    mzxid: int = 0
    last_sequence: str = ""


@dataclass
class Model:
    """Nodes by path, relative to the harness's root."""

    nodes: dict[str, ModelNode] = field(default_factory=lambda: {"": ModelNode(b"")})

    def children(self, path: str) -> list[str]:
        return sorted(
            each.rpartition("/")[2]
            for each in self.nodes
            if each and each.rpartition("/")[0] == path
        )

    def error(self, op: Op) -> type[StoreError] | None:
        """Return the error that the operation must raise."""
        if isinstance(op, Create):
            parent = self.nodes.get(op.path.rpartition("/")[0])
            if parent is None:
                return NoNode
            if parent.owner:
                return NoChildrenForEphemerals
            return NodeExists if not op.sequence and op.path in self.nodes else None
        node = self.nodes.get(op.path)
        if node is None:
            return NoNode
        if op.version not in (ANY_VERSION, node.version):
            return BadVersion
        return NotEmpty if isinstance(op, Delete) and self.children(op.path) else None

    def apply(self, op: Op, session: int) -> None:
        """Carry out an operation that is not sequential."""
        match op:
            case Create():
                self.nodes[op.path] = ModelNode(op.data, session if op.ephemeral else 0)
            case SetData():
                self.nodes[op.path].data = op.data
                self.nodes[op.path].version += 1
            case Delete():
                del self.nodes[op.path]


PATHS = ("/a", "/b", "/a/x", "/a/y", "/b/x", "/a/x/1", "/c")
paths = st.sampled_from(PATHS)
datas = st.binary(max_size=8)
versions = st.sampled_from((ANY_VERSION, 0, 1, 2))
creates = st.builds(Create, paths, datas, st.booleans(), st.just(value=False))
ops = st.one_of(
    creates,
    st.builds(SetData, paths, datas, versions),
    st.builds(Delete, paths, versions),
    st.builds(Check, paths, versions),
)


class StoreMachine(RuleBasedStateMachine):
    """Rules over three sessions; subclasses implement `start`."""

    async def start(self) -> Harness:
        raise NotImplementedError

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.model = Model()
        self.zxid = 0
        self.told: list[str] = []
        self.changed: set[str] = set()
        """Paths of the nodes that the last transaction created, set or deleted."""

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    @initialize()
    def open(self) -> None:
        self.harness = self.run(self.start())
        self.sessions = [self.run(self.open_session()) for _ in range(3)]

    def teardown(self) -> None:
        if hasattr(self, "harness"):
            self.run(self.harness.close())
        # It waits for cancelled tasks: the garbage collector would report them in another test.
        self.runner.close()

    async def open_session(self) -> MetadataStore:
        return await self.harness.session()

    def full(self, op: Op) -> Op:
        path = self.harness.root + op.path
        match op:
            case Create():
                return Create(path, op.data, op.ephemeral, op.sequence)
            case SetData():
                return SetData(path, op.data, op.version)
            case Delete():
                return Delete(path, op.version)
            case Check():
                return Check(path, op.version)

    def newer(self, zxid: int) -> int:
        """Check that transaction ids of changes only grow, and return the new one."""
        assert zxid > self.zxid
        self.zxid = zxid
        return zxid

    @rule(session=st.integers(0, 2), op=ops)
    def do_one(self, session: int, op: Op) -> None:
        self.do_many(session, [op], single=True)

    @rule(session=st.integers(0, 2), todo=st.lists(ops, min_size=1, max_size=4))
    def do_several(self, session: int, todo: list[Op]) -> None:
        self.do_many(session, todo)

    def do_many(self, session: int, todo: list[Op], *, single: bool = False) -> None:
        store = self.sessions[session]
        self.changed = set()
        after = Model({path: ModelNode(**vars(node)) for path, node in self.model.nodes.items()})
        expected: type[StoreError] | None = None
        for op in todo:
            expected = after.error(op)
            if expected is not None:
                break
            after.apply(op, store.session_id)
        work = self.one(store, self.full(todo[0])) if single else self.several(store, todo)
        if expected is not None:
            with pytest.raises(expected):
                self.run(work)
            return
        results = self.run(work)
        self.model = after
        self.changed = {op.path for op in todo if not isinstance(op, Check)}
        self.note_results(todo, results)

    async def several(self, store: MetadataStore, todo: list[Op]) -> list[Any]:
        return await store.multi([self.full(op) for op in todo])

    async def one(self, store: MetadataStore, op: Op) -> list[Any]:
        """Carry out an operation by the port's single methods."""
        match op:
            case Create():
                return [await store.create(op.path, op.data, ephemeral=op.ephemeral)]
            case SetData():
                return [await store.set(op.path, op.data, op.version)]
            case Delete():
                return [await store.delete(op.path, op.version)]
            case Check():
                return await store.multi([op])

    def note_results(self, todo: list[Op], results: list[Any]) -> None:
        zxids = set()
        for op, result in zip(todo, results, strict=True):
            node = self.model.nodes.get(op.path)
            match op:
                case Create():
                    assert isinstance(result, CreateResult)
                    assert result.path == self.harness.root + op.path
                    assert result.stat.czxid == result.stat.mzxid
                    if node is None and result.stat.czxid == UNKNOWN_ZXID:
                        continue
                    zxids.add(result.stat.czxid)
                    if node is not None:
                        node.czxid = node.mzxid = result.stat.czxid
                case SetData():
                    assert isinstance(result, Stat)
                    zxids.add(result.mzxid)
                    if node is not None:
                        node.mzxid = result.mzxid
                case _:
                    assert result is None
        assert len(zxids) <= 1
        for zxid in zxids:
            self.newer(zxid)

    @rule(session=st.integers(0, 2), parent=st.sampled_from(("/a", "/b")), ephemeral=st.booleans())
    def create_in_sequence(self, session: int, parent: str, ephemeral: bool) -> None:
        node = self.model.nodes.get(parent)
        if node is None or node.owner:
            return
        store = self.sessions[session]
        path = f"{self.harness.root}{parent}/n-"
        created = self.run(store.create(path, b"s", ephemeral=ephemeral, sequence=True))
        number = created.path.removeprefix(path)
        assert len(number) == 10
        assert number.isdigit()
        assert number > node.last_sequence
        node.last_sequence = number
        zxid = self.newer(created.stat.czxid)
        self.model.nodes[created.path.removeprefix(self.harness.root)] = ModelNode(
            b"s", store.session_id if ephemeral else 0, 0, zxid, zxid
        )

    @rule(session=st.integers(0, 2))
    def close_session(self, session: int) -> None:
        store = self.sessions[session]
        store.on_expired(lambda: pytest.fail("a session that was closed has not expired"))
        self.run(store.close())
        self.run(self.harness.settle())
        self.session_is_over(store)
        with pytest.raises(SessionExpired):
            self.run(store.renew())
        self.sessions[session] = self.run(self.open_session())

    @rule(session=st.integers(0, 2), op=ops, path=paths)
    def session_expires(self, session: int, op: Op, path: str) -> None:
        """Let a session expire: on request the store continues in another one, with its watches."""
        store, other = self.sessions[session], self.sessions[session - 1]
        old_id, told, expired = store.session_id, self.told, list[None]()
        store.on_expired(lambda: expired.append(None))
        watches = (
            store.watch_data(self.harness.root + path, lambda _: told.append("data")),
            store.watch_children(self.harness.root + path, lambda _: told.append("children")),
        )
        self.run(self.harness.expire(store))
        self.run(self.harness.settle())
        assert expired == [None]
        self.session_is_over(store)
        self.do_many(self.sessions.index(other), [op], single=True)
        told.clear()
        self.run(store.renew())
        self.run(self.harness.settle())
        assert set(told) == {"data", "children"}
        assert store.session_id not in (0, old_id)
        new_id = store.session_id
        self.run(store.renew())
        assert store.session_id == new_id
        told.clear()
        self.do_many(session, [op], single=True)
        self.run(self.harness.settle())
        assert (path == op.path and op.path in self.changed) == ("data" in told)
        for watch in watches:
            watch.cancel()

    def session_is_over(self, store: MetadataStore) -> None:
        with pytest.raises(SessionExpired):
            self.run(store.get(self.harness.root))
        with pytest.raises(SessionExpired):
            self.run(store.create(self.harness.root + "/late"))
        self.drop_ephemerals(store.session_id)

    @rule()
    def restart(self) -> None:
        if self.run(self.harness.restart()):
            self.drop_ephemerals(None)
            self.sessions = [self.run(self.open_session()) for _ in range(3)]

    def drop_ephemerals(self, owner: int | None) -> None:
        for path in [
            path
            for path, node in self.model.nodes.items()
            if node.owner and owner in (None, node.owner)
        ]:
            del self.model.nodes[path]

    @rule(op=ops, path=paths)
    def watches_tell(self, op: Op, path: str) -> None:
        """Check that a watch reports changes of its node and of no other, until it is cancelled."""
        reader, writer = self.sessions[0], self.sessions[1]
        told: dict[str, int] = {"data": 0, "children": 0}

        def note(kind: str) -> Any:
            def noted(at: str) -> None:
                assert at == self.harness.root + path
                told[kind] += 1

            return noted

        watches = (
            reader.watch_data(self.harness.root + path, note("data")),
            reader.watch_children(self.harness.root + path, note("children")),
        )
        self.run(self.harness.settle())
        self.do_many(self.sessions.index(writer), [op], single=True)
        self.run(self.harness.settle())
        touched = bool(self.changed)
        assert bool(told["data"]) == (touched and op.path == path)
        moved = touched and not isinstance(op, SetData)
        assert bool(told["children"]) == (moved and parent_of(op.path) == path)
        for watch in watches:
            watch.cancel()
        before = dict(told)
        self.do_many(self.sessions.index(writer), [SetData("", b"root")], single=True)
        self.run(self.harness.settle())
        assert told == before

    @invariant()
    def same_as_model(self) -> None:
        if not hasattr(self, "harness"):
            return
        for store in self.sessions:
            self.run(self.compare(store))

    async def compare(self, store: MetadataStore) -> None:
        for path, expected in self.model.nodes.items():
            data, stat = await store.get(self.harness.root + path)
            children = self.model.children(path)
            assert data == expected.data
            assert stat.version == expected.version
            assert stat.ephemeral_owner == expected.owner
            assert stat.child_count == len(children)
            assert await store.children(self.harness.root + path) == children
            if expected.czxid:
                assert (stat.czxid, stat.mzxid) == (expected.czxid, expected.mzxid)
        for path in PATHS:
            if path not in self.model.nodes:
                assert await store.exists(self.harness.root + path) is None
                with pytest.raises(NoNode):
                    await store.get(self.harness.root + path)
