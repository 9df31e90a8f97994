"""This broker's place in the cluster: its registration, kept up across sessions.

The ephemeral node /brokers/ids/N says that the broker is alive. Its czxid is the broker epoch: each
registration raises it (KIP-380). When the store has ended the session the broker begins another,
registers again, and tells those who work with the epoch.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from barnabas.broker.clock import Clock
from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.cluster import BrokerIdInUse, register_broker
from barnabas.broker.metadata.store import (
    Check,
    MetadataStore,
    NoNode,
    SessionExpired,
    StoreError,
    StoreUnavailable,
)
from barnabas.broker.metadata.znodes import BrokerInfo, Restart
from barnabas.broker.observability.logging import get_logger

RETRY_SECONDS = 0.25
"""Between two attempts to reach the store."""
_OUT_OF_TOUCH = 2 / 3
"""Of the session's timeout: silence after which the broker gives up what needs the store."""
_LOOKS_PER_SESSION = 12

_log = get_logger(__name__)


EndEarlier = Callable[[int], Awaitable[bool]]
"""Ends a session if it is one that an earlier run of this very broker has left behind, and says
whether it was."""


async def nobodys(_session_id: int) -> bool:
    """Of a store whose sessions end with their process: no earlier one can be in the way."""
    return False


class Membership:
    """Registers the broker (`join`), and registers it again whenever its session has ended."""

    def __init__(
        self,
        store: MetadataStore,
        *,
        clock: Clock,
        soon: Callable[[Coroutine[Any, Any, None]], None],
        end_earlier: EndEarlier = nobodys,
    ) -> None:
        """`soon` runs what nobody waits for."""
        self._store = store
        self._clock = clock
        self._soon = soon
        self._end_earlier = end_earlier
        self._info: BrokerInfo | None = None
        self._joined = asyncio.Event()
        self._registering = False
        self._lost_meanwhile = False
        self._left = False
        self._was_in_touch = True
        self._look: asyncio.TimerHandle | None = None
        self._followers: list[Callable[[BrokerInfo], None]] = []
        self._touch_followers: list[Callable[[bool], None]] = []

    @property
    def broker_epoch(self) -> int:
        """Of the registration that holds or held last; -1 before the first."""
        return -1 if self._info is None else self._info.epoch

    @property
    def in_touch(self) -> bool:
        """Whether the store has answered recently enough that the session must still live.

        Without it the broker is no controller, changes no in-sync set and takes no new ids.
        """
        return self._store.silent_for() <= self._store.session_timeout * _OUT_OF_TOUCH

    @property
    def is_member(self) -> bool:
        """Whether the registration must still hold."""
        return self._joined.is_set() and self.in_touch

    def on_joined(self, follower: Callable[[BrokerInfo], None]) -> None:
        """Call back after each registration, the first one included."""
        self._followers.append(follower)

    def on_touch(self, follower: Callable[[bool], None]) -> None:
        """Call back whenever `in_touch` has changed, with what it is now."""
        self._touch_followers.append(follower)

    async def join(self, info: BrokerInfo) -> BrokerInfo:
        """Register the broker for the first time; returns it with its broker epoch.

        Raises BrokerIdInUse, StoreError.
        """
        self._info = info
        self._registering = True
        self._store.on_expired(self._lost)
        try:
            await self._register()
        finally:
            self._registering = False
        self._look_soon()
        return self._info

    def settled(self) -> None:
        """The controller has acted on the registration: how the last run ended is of no concern to
        the next one."""
        if self._info is not None:
            self._info = self._info._replace(restart=Restart.CLEAN)

    async def after_pause(self) -> None:
        """Returns when the registration is known to hold, the old one or a new one."""
        while not self._left:
            await self._joined.wait()
            try:
                if await self._is_registered():
                    return
                self._lost()
            except SessionExpired:
                self._lost()
            except StoreUnavailable:
                await asyncio.sleep(RETRY_SECONDS)

    async def see_through(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do what needs the store, again and again while it is out of reach; not once the broker
        has left. Raises what else goes wrong, and StoreUnavailable of a store of its own: that has
        failed for good."""
        while not self._left:
            try:
                await work()
                return
            except (SessionExpired, StoreUnavailable):
                if self._store.session_timeout == math.inf and not self._left:
                    raise
                await asyncio.sleep(RETRY_SECONDS)

    def leave(self) -> None:
        """Register no more. The node goes with the session."""
        self._left = True
        self._joined.set()
        if self._look is not None:
            self._look.cancel()

    # -- registering ------------------------------------------------------------------------------

    async def _register(self) -> None:
        """Register in a session that has not ended before anybody could act on the answer."""
        while True:
            self._lost_meanwhile = False
            await self._store.renew()
            info = self._info = await self._registered()
            if not self._lost_meanwhile:
                break
        self._joined.set()
        for follower in self._followers:
            follower(info)

    async def _registered(self) -> BrokerInfo:
        assert self._info is not None
        try:
            return await register_broker(self._store, self._info, self._clock.now_ms())
        except BrokerIdInUse as error:
            if not await self._end_earlier(error.session_id):
                await self._outlive(error)
            return await register_broker(self._store, self._info, self._clock.now_ms())

    async def _outlive(self, found: BrokerIdInUse) -> None:
        """Wait for the end of a session that may be an earlier run's; the broker of a session that
        outlives its timeout is alive. Raises what was found, then."""
        assert self._info is not None
        timeout = self._store.session_timeout
        if timeout == math.inf:
            raise found
        _log.warning("a broker with this id is registered: waiting whether it lives", reason=found)
        deadline = self._clock.monotonic() + 1.5 * timeout
        while self._clock.monotonic() < deadline:
            stat = await self._store.exists(znodes.broker_path(self._info.id))
            if stat is None or stat.ephemeral_owner != found.session_id:
                return
            await asyncio.sleep(RETRY_SECONDS)
        raise found

    async def _is_registered(self) -> bool:
        assert self._info is not None
        path = znodes.broker_path(self._info.id)
        try:
            # A read may come from a server that lags behind; a transaction is everybody's.
            await self._store.multi([Check(path)])
        except NoNode:
            return False
        stat = await self._store.exists(path)
        return stat is not None and stat.czxid == self._info.epoch

    def _lost(self) -> None:
        """The registration does not hold any more."""
        self._lost_meanwhile = True
        if not (self._registering or self._left):
            _log.warning("registration lost", broker_epoch=self.broker_epoch)
            self._registering = True
            self._joined.clear()
            self._soon(self._rejoin())

    async def _rejoin(self) -> None:
        while not (self._left or self._joined.is_set()):
            try:
                await self._register()
            except StoreError as error:
                _log.warning("cannot register yet", reason=repr(error))
                await asyncio.sleep(RETRY_SECONDS)
        self._registering = False
        _log.info("registered again", broker_epoch=self.broker_epoch)

    # -- silence ----------------------------------------------------------------------------------

    def _look_soon(self) -> None:
        """Look now and then whether the store still answers; one in this process always does."""
        timeout = self._store.session_timeout
        if timeout < math.inf and not self._left:
            loop = asyncio.get_running_loop()
            self._look = loop.call_later(timeout / _LOOKS_PER_SESSION, self._look_now)

    def _look_now(self) -> None:
        now = self.in_touch
        if now != self._was_in_touch:
            self._was_in_touch = now
            _log.warning("in touch with the store" if now else "out of touch with the store")
            for follower in self._touch_followers:
                follower(now)
        self._look_soon()
