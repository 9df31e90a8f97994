"""The broker's registration in the cluster, renewed across sessions.

The ephemeral node /brokers/ids/N shows that the broker is alive. Its czxid is the broker epoch,
which each registration raises (KIP-380). When the store has ended the session, the broker opens
another, registers again, and tells its parts the new epoch.

While the store is silent, `is_connected` is False: this broker then sends no AlterPartition
(`controller_client.py`), and its coordinators answer COORDINATOR_NOT_AVAILABLE in place of an error
after which a client gives up. `controller/controller.py` has a separate check.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from barnabas.broker.cluster import znodes
from barnabas.broker.cluster.registration import (
    BrokerIdInUse,
    ClusterGone,
    register_broker,
    require_same_cluster,
)
from barnabas.broker.cluster.znodes import BrokerInfo, Restart
from barnabas.broker.observability.events import (
    SESSION_BACK,
    SESSION_LOST,
    STORE_BACK,
    STORE_SILENT,
    EventLog,
)
from barnabas.broker.observability.logging import get_logger
from barnabas.broker.store.metadata_store import (
    CHECKS_PER_SESSION,
    Check,
    EndEarlierSession,
    MetadataStore,
    NoNode,
    SessionExpired,
    StoreError,
    StoreUnavailable,
    is_silent,
    no_earlier_session,
)
from barnabas.coordinator.ports import Clock

RETRY_SECONDS = 0.25
"""Seconds between two attempts to reach the store."""

_log = get_logger(__name__)


class Membership:
    """The registration of this broker: `join` makes it, and each end of a session renews it."""

    def __init__(
        self,
        store: MetadataStore,
        *,
        cluster_id: str,
        clock: Clock,
        events: EventLog,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        end_earlier: EndEarlierSession = no_earlier_session,
    ) -> None:
        """`spawn` runs a coroutine in a new task."""
        self._store = store
        self._cluster_id = cluster_id
        self._clock = clock
        self._events = events
        self._spawn = spawn
        self._end_earlier = end_earlier
        self._info: BrokerInfo | None = None
        self._registered_event = asyncio.Event()
        self._registering = False
        self._lost_meanwhile = False
        self._left = False
        self._was_connected = True
        self._check_timer: asyncio.TimerHandle | None = None
        self._listeners: list[Callable[[BrokerInfo], None]] = []

    @property
    def broker_epoch(self) -> int:
        """The epoch of the current or last registration; -1 before the first."""
        return -1 if self._info is None else self._info.epoch

    @property
    def is_connected(self) -> bool:
        """Whether the store answered recently enough that the session cannot have ended.

        Otherwise the broker is not controller and proposes no ISR.
        """
        return not is_silent(self._store)

    @property
    def is_member(self) -> bool:
        """Whether the registration cannot have ended."""
        return self._registered_event.is_set() and self.is_connected

    def on_registered(self, listener: Callable[[BrokerInfo], None]) -> None:
        """Call `listener` after each registration, including the first."""
        self._listeners.append(listener)

    async def join(self, info: BrokerInfo) -> BrokerInfo:
        """Register the broker for the first time; return it with its broker epoch.

        Raises BrokerIdInUse, StoreError.
        """
        self._info = info
        self._registering = True
        self._store.on_expired(self._lost)
        try:
            await self._register()
        finally:
            self._registering = False
        self._schedule_check()
        return self._info

    def forget_last_run(self) -> None:
        """Forget how the last run ended: the controller has used it, and the next registration must
        not repeat it."""
        if self._info is not None:
            self._info = self._info._replace(restart=Restart.CLEAN)

    async def confirm_registration(self) -> None:
        """Return when a registration is known to hold, the old one or a new one."""
        while not self._left:
            await self._registered_event.wait()
            try:
                if await self._is_registered():
                    return
                self._lost()
            except SessionExpired:
                self._lost()
            except StoreUnavailable:
                await asyncio.sleep(RETRY_SECONDS)

    async def retry_while_unavailable(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run work that needs the store, and repeat it while the store is unavailable and the
        broker has not left. Other errors propagate, and so does StoreUnavailable of an embedded
        store, which has failed for good."""
        while not self._left:
            try:
                await work()
                return
            except (SessionExpired, StoreUnavailable):
                if self._store.session_timeout == math.inf and not self._left:
                    raise
                await asyncio.sleep(RETRY_SECONDS)

    def leave(self) -> None:
        """Stop registering. The node is removed with the session."""
        self._left = True
        self._registered_event.set()
        if self._check_timer is not None:
            self._check_timer.cancel()

    # -- registration -----------------------------------------------------------------------------

    async def _register(self) -> None:
        """Register in a session that does not end before the result can be used."""
        while True:
            self._lost_meanwhile = False
            await self._store.renew()
            await require_same_cluster(self._store, self._cluster_id)
            info = self._info = await self._registered()
            if not self._lost_meanwhile:
                break
        self._registered_event.set()
        for listener in self._listeners:
            listener(info)

    async def _registered(self) -> BrokerInfo:
        assert self._info is not None
        try:
            return await register_broker(self._store, self._info, self._clock.now_ms())
        except BrokerIdInUse as error:
            if not await self._end_earlier(error.session_id):
                await self._wait_for_old_session(error)
            return await register_broker(self._store, self._info, self._clock.now_ms())

    async def _wait_for_old_session(self, found: BrokerIdInUse) -> None:
        """Wait for the end of a session that may belong to an earlier run. A session that outlives
        its timeout belongs to a live broker; raise `found` then."""
        assert self._info is not None
        timeout = self._store.session_timeout
        if timeout == math.inf:
            raise found
        _log.warning(
            "broker id already registered: waiting for the end of the old session", reason=found
        )
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
            # A read may come from a server that lags behind. A transaction does not.
            await self._store.multi([Check(path)])
        except NoNode:
            return False
        stat = await self._store.exists(path)
        return stat is not None and stat.czxid == self._info.epoch

    def _lost(self) -> None:
        """Start a new registration after the loss of the current one."""
        self._lost_meanwhile = True
        if not (self._registering or self._left):
            self._events.add(_log, SESSION_LOST, broker_epoch=self.broker_epoch)
            self._registering = True
            self._registered_event.clear()
            self._spawn(self._rejoin())

    async def _rejoin(self) -> None:
        told = ""
        while not (self._left or self._registered_event.is_set()):
            try:
                await self._register()
            except StoreError as error:
                if repr(error) != told:
                    told = repr(error)
                    gone = isinstance(error, ClusterGone)
                    say, reason = (_log.error, str(error)) if gone else (_log.warning, told)
                    say("registration failed: it is tried again", reason=reason)
                await asyncio.sleep(RETRY_SECONDS)
        self._registering = False
        self._events.add(_log, SESSION_BACK, broker_epoch=self.broker_epoch)

    # -- silence of the store ---------------------------------------------------------------------

    def _schedule_check(self) -> None:
        """Schedule the next check whether the store is silent; the embedded store never is."""
        timeout = self._store.session_timeout
        if timeout < math.inf and not self._left:
            loop = asyncio.get_running_loop()
            self._check_timer = loop.call_later(timeout / CHECKS_PER_SESSION, self._check_store)

    def _check_store(self) -> None:
        now = self.is_connected
        if now != self._was_connected:
            self._was_connected = now
            self._events.add(_log, STORE_BACK if now else STORE_SILENT)
        self._schedule_check()
