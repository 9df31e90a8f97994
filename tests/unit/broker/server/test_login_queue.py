"""The work of logins: addresses take turns, and closed connections have none."""

import asyncio
from functools import partial

import pytest

from barnabas.broker.server import login_queue
from barnabas.broker.server.login_queue import AT_ONCE, LoginQueue
from tests.support.held_offload import HeldOffload


class Logins:
    """A queue with the work that was done, and the logins that were dropped, by name."""

    def __init__(self) -> None:
        self.offload = HeldOffload()
        self.queue = LoginQueue(self.offload, "logins")
        self.done: list[str] = []
        self.dropped: list[str] = []

    def submit(self, host: str, name: str = "") -> "asyncio.Future[None]":
        return self.queue.submit(
            host, partial(self.done.append, name or host), partial(self.dropped.append, name)
        )

    def crowd(self, host: str, count: int) -> "list[asyncio.Future[None]]":
        return [self.submit(host, f"{host} {number}") for number in range(count)]

    async def all(self) -> list[str]:
        """Do all work, and return it in order."""
        while self.offload.waiting:
            await self.offload.one()
            await asyncio.sleep(0)
        return self.done


async def test_addresses_take_turns() -> None:
    logins = Logins()
    logins.crowd("crowd", 100)
    first = logins.submit("alice")
    logins.submit("alice", "alice again")
    logins.submit("bob")
    done = await logins.all()
    assert [name for name in done if "crowd" not in name] == ["alice", "bob", "alice again"]
    assert done.index("alice again") <= AT_ONCE + 5
    assert len(done) == 103
    assert len(logins.queue) == 0
    assert first.done()


async def test_addresses_of_an_ipv6_network_are_one() -> None:
    logins = Logins()
    for number in range(100):
        logins.submit(f"2001:db8::{number:x}", "crowd")
    logins.submit("2001:db8:0:1::1", "another network")
    logins.submit("::ffff:10.0.0.1", "alice")
    logins.submit("10.0.0.1", "alice again")
    logins.submit("fe80::1%eth0", "a link")
    done = await logins.all()
    others = [name for name in done if name != "crowd"]
    assert others == ["another network", "alice", "a link", "alice again"]
    assert done.index("alice again") <= AT_ONCE + 6


async def test_login_of_a_closed_connection_does_no_work() -> None:
    logins = Logins()
    crowd = logins.crowd("crowd", 100)
    for login in crowd:
        login.cancel()
    logins.submit("alice")
    await asyncio.sleep(0)
    assert len(logins.queue) == 1
    assert len(await logins.all()) == AT_ONCE + 1
    assert crowd[0].cancelled()


async def test_login_that_left_in_the_same_iteration_is_not_begun() -> None:
    logins = Logins()
    crowd = logins.crowd("crowd", AT_ONCE + 1)
    work, done = logins.offload.waiting.pop(0)
    done.set_result(work())
    crowd[-1].cancel()
    assert await logins.all() == [f"crowd {number}" for number in range(AT_ONCE)]


async def test_crowd_loses_its_last_logins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_queue, "MAX_WAITING", 10)
    logins = Logins()
    crowd = logins.crowd("crowd", AT_ONCE + 12)
    assert logins.dropped == ["crowd 14", "crowd 15"]
    assert crowd[15].cancelled()
    logins.submit("alice")
    logins.submit("bob")
    assert logins.dropped[2:] == ["crowd 13", "crowd 12"]
    assert len(logins.queue) == 10
    done = await logins.all()
    assert len(done) == AT_ONCE + 10
    assert {"alice", "bob", "crowd 11"} <= {*done}


async def test_newcomer_is_dropped_if_all_addresses_have_as_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(login_queue, "MAX_WAITING", 10)
    logins = Logins()
    for number in range(AT_ONCE + 11):
        logins.submit(f"10.0.0.{number}", str(number))
    assert logins.dropped == [str(AT_ONCE + 10)]


async def test_error_of_the_work_reaches_the_login() -> None:
    logins = Logins()
    login = logins.queue.submit("alice", lambda: 1 / 0, lambda: None)
    result = logins.queue.submit("alice", lambda: 1, lambda: None)
    await logins.all()
    with pytest.raises(ZeroDivisionError):
        await login
    assert await result == 1
