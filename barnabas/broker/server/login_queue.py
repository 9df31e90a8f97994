"""The work of logins outside the event loop, such as the check of a password."""

import asyncio
from collections.abc import Callable
from functools import partial
from ipaddress import ip_address
from typing import Any, Final, NamedTuple

from barnabas.broker.loop.offload import Offload
from barnabas.security.acl.rules import host_key

MAX_WAITING: Final = 1024
"""Logins that wait. The check of a password takes up to 5 ms, so the last one waits for 5 s."""
AT_ONCE: Final = 4
"""Logins that the thread is given in advance: it need not wait for the event loop after each."""
_NETWORK: Final = 8
"""Bytes of an IPv6 address that name its network."""


class _Waiting(NamedTuple):
    work: Callable[[], Any]
    crowded_out: Callable[[], None]


class LoginQueue:
    """A queue in which addresses take turns, so that none of them keeps the others waiting.

    The addresses of an IPv6 network of 64 bits are one, because one client has them all.
    """

    def __init__(self, offload: Offload, name: str) -> None:
        """`name` is the name of the thread."""
        self._offload = offload
        self._name = name
        self._waiting: dict[str, dict[asyncio.Future[Any], _Waiting]] = {}
        """The logins by address. The first address has the next turn."""
        self._at_work = 0

    def __len__(self) -> int:
        """The number of logins that wait."""
        return sum(map(len, self._waiting.values()))

    def submit(
        self, host: str, work: Callable[[], Any], crowded_out: Callable[[], None]
    ) -> "asyncio.Future[Any]":
        """Run `work` when it has its turn; the future has its result or error.

        Cancel the future to leave the queue. `crowded_out` is called if the login is dropped,
        because too many wait: the last one of the address with the most of them.
        """
        login: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        address = _address(host)
        self._waiting.setdefault(address, {})[login] = _Waiting(work, crowded_out)
        login.add_done_callback(partial(self._leave, address))
        self._run()
        if len(self) > MAX_WAITING:
            self._drop_one()
        return login

    def _drop_one(self) -> None:
        # Of addresses with the same number it is the one that came last.
        address = max(reversed(self._waiting), key=lambda each: len(self._waiting[each]))
        login, waiting = next(reversed(self._waiting[address].items()))
        self._leave(address, login)
        login.cancel()
        waiting.crowded_out()

    def _leave(self, address: str, login: "asyncio.Future[Any]") -> None:
        logins = self._waiting.get(address, {})
        if logins.pop(login, None) is not None and not logins:
            del self._waiting[address]

    def _run(self) -> None:
        while self._waiting and self._at_work < AT_ONCE:
            address, logins = next(iter(self._waiting.items()))
            login, waiting = next(iter(logins.items()))
            # The address takes its next turn after all others.
            del self._waiting[address]
            del logins[login]
            if logins:
                self._waiting[address] = logins
            if not login.cancelled():
                self._at_work += 1
                work = self._offload.submit(self._name, waiting.work)
                work.add_done_callback(partial(self._ran, login))

    def _ran(self, login: "asyncio.Future[Any]", done: "asyncio.Future[Any]") -> None:
        self._at_work -= 1
        if not login.done():
            if done.cancelled():
                login.cancel()
            elif (error := done.exception()) is not None:
                login.set_exception(error)
            else:
                login.set_result(done.result())
        self._run()


def _address(host: str) -> str:
    key = host_key(host)
    return ip_address(key).packed[:_NETWORK].hex() if ":" in key else key
