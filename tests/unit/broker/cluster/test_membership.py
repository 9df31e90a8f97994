"""The registration of a broker, kept up across sessions."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest

from barnabas.broker.cluster import znodes
from barnabas.broker.cluster.membership import Membership
from barnabas.broker.cluster.registration import BrokerIdInUse
from barnabas.broker.cluster.znodes import BrokerEndpoint, BrokerInfo, Restart
from barnabas.broker.loop.clock import SystemClock
from barnabas.broker.observability.events import EventLog
from barnabas.broker.store.embedded import EmbeddedSession, EmbeddedStore
from barnabas.broker.store.metadata_store import Op, StoreUnavailable
from tests.support.waiting import eventually

INFO = BrokerInfo(7, (BrokerEndpoint("A", "PLAINTEXT", "localhost", 9092),), restart=Restart.KILLED)
PATH = znodes.broker_path(INFO.id)


class RemoteSession:
    """The embedded store's session as a remote one: it can be silent."""

    session_timeout = 0.6

    def __init__(self, session: EmbeddedSession) -> None:
        self._session = session
        self.silence = 0.0
        self.away = False

    def silent_for(self) -> float:
        return self.silence

    async def renew(self) -> None:
        if self.away:
            raise StoreUnavailable
        await self._session.renew()

    async def exists(self, path: str) -> Any:
        if self.away:
            raise StoreUnavailable
        return await self._session.exists(path)

    async def multi(self, ops: Sequence[Op]) -> Any:
        if self.away:
            raise StoreUnavailable
        return await self._session.multi(ops)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


class Member:
    """A membership, and its calls to listeners."""

    def __init__(self, store: Any, end_earlier: Any = None) -> None:
        self.tasks: list[asyncio.Task[None]] = []
        more = {} if end_earlier is None else {"end_earlier": end_earlier}
        self.events = EventLog(1, SystemClock())
        self.membership = Membership(
            store,
            cluster_id="cluster",
            clock=SystemClock(),
            events=self.events,
            spawn=self._spawn,
            **more,
        )
        self.epochs: list[int] = []
        self.restarts: list[Restart] = []
        self.membership.on_registered(self._joined)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work))

    def _joined(self, info: BrokerInfo) -> None:
        self.epochs.append(info.epoch)
        self.restarts.append(info.restart)


async def test_broker_epoch_is_the_czxid_of_the_registration(store: EmbeddedStore) -> None:
    session = store.session()
    member = Member(session)
    info = await member.membership.join(INFO)
    stat = await session.exists(PATH)
    assert stat is not None
    assert member.epochs == [info.epoch] == [stat.czxid] == [member.membership.broker_epoch]
    assert member.membership.is_connected


async def test_expired_session_is_followed_by_a_registration_with_a_higher_epoch(
    store: EmbeddedStore,
) -> None:
    session = store.session()
    member = Member(session)
    await member.membership.join(INFO)
    for rounds in range(2, 5):
        assert member.membership.is_member
        await store.expire(session.session_id)
        assert not member.membership.is_member
        await eventually(lambda rounds=rounds: len(member.epochs) == rounds)  # type: ignore[misc]
    data, stat = await session.get(PATH)
    assert stat.ephemeral_owner == session.session_id
    assert znodes.decode_broker(INFO.id, data, stat.czxid) == INFO._replace(epoch=stat.czxid)
    assert member.epochs == sorted(set(member.epochs))
    assert member.epochs[-1] == stat.czxid


async def test_end_of_the_last_run_is_registered_until_the_controller_has_used_it(
    store: EmbeddedStore,
) -> None:
    session = store.session()
    member = Member(session)
    await member.membership.join(INFO)
    await store.expire(session.session_id)
    await eventually(lambda: len(member.epochs) == 2)
    member.membership.forget_last_run()
    await store.expire(session.session_id)
    await eventually(lambda: len(member.epochs) == 3)
    assert member.restarts == [Restart.KILLED, Restart.KILLED, Restart.CLEAN]


async def test_broker_id_in_use_is_refused(store: EmbeddedStore) -> None:
    await Member(store.session()).membership.join(INFO)
    with pytest.raises(BrokerIdInUse, match="broker with id 7 is running"):
        await Member(store.session()).membership.join(INFO)


async def test_session_of_an_earlier_run_is_no_other_broker(store: EmbeddedStore) -> None:
    earlier = store.session()
    await Member(earlier).membership.join(INFO)

    async def end_earlier(session_id: int) -> bool:
        await store.end(session_id)
        return session_id == earlier.session_id

    later = Member(store.session(), end_earlier)
    await later.membership.join(INFO)
    assert len(later.epochs) == 1


async def test_registration_with_a_lost_answer_counts(store: EmbeddedStore) -> None:
    session = store.session()
    await session.create(PATH, znodes.encode_broker(INFO, 1), ephemeral=True)
    info = await Member(session).membership.join(INFO)
    stat = await session.exists(PATH)
    assert stat is not None
    assert info.epoch == stat.czxid


async def test_registration_that_holds_is_found_after_a_pause(store: EmbeddedStore) -> None:
    member = Member(store.session())
    await member.membership.join(INFO)
    await asyncio.wait_for(member.membership.confirm_registration(), 5)
    assert len(member.epochs) == 1


async def test_registration_that_ended_is_renewed_after_a_pause(
    store: EmbeddedStore,
) -> None:
    """The store ended the session, and this broker has not been notified."""
    session = store.session()
    member = Member(session)
    await member.membership.join(INFO)
    await store.end(session.session_id)
    await asyncio.wait_for(member.membership.confirm_registration(), 5)
    assert len(member.epochs) == 2
    stat = await session.exists(PATH)
    assert stat is not None
    assert stat.czxid == member.membership.broker_epoch


async def test_pause_check_waits_while_the_store_is_unavailable(
    store: EmbeddedStore,
) -> None:
    far = RemoteSession(store.session())
    member = Member(far)
    await member.membership.join(INFO)
    far.away = True
    checking = asyncio.create_task(member.membership.confirm_registration())
    done, _ = await asyncio.wait([checking], timeout=0.3)
    assert not done
    far.away = False
    await asyncio.wait_for(checking, 5)
    member.membership.leave()


async def test_disconnected_after_two_thirds_of_the_session_timeout(
    store: EmbeddedStore, caplog: pytest.LogCaptureFixture
) -> None:
    def logged() -> list[str]:
        return [each.getMessage() for each in caplog.records if "store" in each.getMessage()]

    far = RemoteSession(store.session())
    member = Member(far)
    await member.membership.join(INFO)
    far.silence = far.session_timeout * 2 / 3
    assert member.membership.is_connected
    far.silence += 0.01
    assert not member.membership.is_connected
    await eventually(lambda: logged() == ["metadata store is silent"])
    far.silence = 0.0
    await eventually(lambda: logged()[1:] == ["metadata store answers again"])
    member.membership.leave()


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (None, "came back empty: it has lost cluster cluster; restore its data"),
        ("other", "came back with cluster other in place of cluster cluster; restore its data"),
    ],
)
async def test_store_that_has_lost_the_cluster_is_named_and_not_joined(
    store: EmbeddedStore, caplog: pytest.LogCaptureFixture, found: str | None, reason: str
) -> None:
    session, other = store.session(), store.session()
    member = Member(session)
    await member.membership.join(INFO)
    original, _ = await other.get(znodes.CLUSTER_ID)
    await other.delete(znodes.CLUSTER_ID)
    if found is not None:
        await other.create(znodes.CLUSTER_ID, znodes.encode_cluster_id(found))
    await store.expire(session.session_id)

    def failures() -> list[str]:
        return [str(each.msg) for each in caplog.records if each.levelname == "ERROR"]

    await eventually(failures)
    assert await other.exists(PATH) is None
    assert len(failures()) == 1
    assert reason in failures()[0]
    # Once its data is back, the broker is a member again.
    if found is not None:
        await other.delete(znodes.CLUSTER_ID)
    await other.create(znodes.CLUSTER_ID, original)
    await eventually(lambda: len(member.epochs) == 2)
    assert len(failures()) == 1


async def test_work_is_repeated_until_the_store_is_back(store: EmbeddedStore) -> None:
    far = RemoteSession(store.session())
    membership = Member(far).membership
    far.away = True
    seen = list[Any]()

    async def look() -> None:
        seen.append(await far.exists("/brokers"))

    looking = asyncio.create_task(membership.retry_while_unavailable(look))
    done, _ = await asyncio.wait([looking], timeout=0.3)
    assert not done
    far.away = False
    await asyncio.wait_for(looking, 5)
    assert len(seen) == 1


async def test_failed_embedded_store_is_not_waited_for(store: EmbeddedStore) -> None:
    async def fail() -> None:
        raise StoreUnavailable

    with pytest.raises(StoreUnavailable):
        await Member(store.session()).membership.retry_while_unavailable(fail)


class EndingStore:
    """A session that the store ends right after the answer to a registration: both arrive before
    the caller runs."""

    session_timeout = 0.6

    def __init__(self, store: EmbeddedStore) -> None:
        self._store = store
        self._session = store.session()
        self.ending = False

    async def create(self, path: str, data: bytes = b"", **kind: Any) -> Any:
        created = await self._session.create(path, data, **kind)
        if self.ending and path == PATH:
            self.ending = False
            loop = asyncio.get_running_loop()
            answer = loop.create_future()
            await self._store.end(self._session.session_id)
            loop.call_soon(answer.set_result, created)
            loop.call_soon(self._session.expired)
            return await answer
        return created

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


@pytest.mark.parametrize("first", [True, False])
async def test_session_that_ends_with_the_answer_is_no_registration(
    store: EmbeddedStore, first: bool
) -> None:
    ending = EndingStore(store)
    member = Member(ending)
    ending.ending = first
    await member.membership.join(INFO)
    if not first:
        ending.ending = True
        await store.expire(ending.session_id)
        await eventually(lambda: len(member.epochs) == 2)
    assert not ending.ending
    stat = await store.session().exists(PATH)
    assert stat is not None
    assert member.epochs[-1] == stat.czxid == member.membership.broker_epoch
    assert len(member.epochs) == 1 + (not first)
    # Later ends are noticed too.
    await store.expire(ending.session_id)
    await eventually(lambda: member.epochs[-1] > stat.czxid)
    member.membership.leave()


async def test_broker_that_has_left_does_not_register_again(store: EmbeddedStore) -> None:
    session = store.session()
    member = Member(session)
    await member.membership.join(INFO)
    member.membership.leave()
    await store.expire(session.session_id)
    await asyncio.wait_for(member.membership.confirm_registration(), 5)
    assert member.tasks == []
    assert await store.session().exists(PATH) is None


async def test_broker_waits_for_the_end_of_the_session_of_its_last_run(
    store: EmbeddedStore,
) -> None:
    """Power failed and returned before the session timeout ended."""
    left = store.session()
    await Member(left).membership.join(INFO)
    member = Member(RemoteSession(store.session()))
    joining = asyncio.ensure_future(member.membership.join(INFO))
    await asyncio.sleep(0)
    await store.expire(left.session_id)
    assert (await joining).epoch > 0


async def test_broker_whose_session_outlives_the_wait_keeps_the_id(store: EmbeddedStore) -> None:
    await Member(store.session()).membership.join(INFO)
    with pytest.raises(BrokerIdInUse):
        await Member(RemoteSession(store.session())).membership.join(INFO)
