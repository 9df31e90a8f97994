"""The controller of the cluster, elected through the metadata store; a single broker elects itself.

The broker that creates the ephemeral node /controller is the controller. It raises the controller
epoch in the same transaction, so later writes and requests of its predecessor are refused.
Elections, broker changes and requests are events of one queue.

When a broker crashes, its ephemeral node goes and the watch on /brokers/ids queues
`_brokers_changed`. `ActiveController.refresh_brokers` then decides on each partition of that
broker, writes the decisions and sends them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from math import inf
from random import Random
from typing import Any, NamedTuple, TypeVar

from barnabas.broker.cluster import znodes
from barnabas.broker.cluster.cache import NO_LEADER
from barnabas.broker.cluster.new_topics import CreatedTopic, NewTopic
from barnabas.broker.cluster.znodes import BrokerInfo
from barnabas.broker.controller.active_controller import ActiveController, ElectionCounts
from barnabas.broker.controller.broker_requests import BrokerRequests
from barnabas.broker.controller.cluster_store import ControllerMovedError, StaleStateError
from barnabas.broker.controller.control_messages import ControlMessages
from barnabas.broker.controller.controller_channel import BrokerClientFactory
from barnabas.broker.controller.controller_election import (
    ControllerElection,
    ControllerHolder,
    Term,
)
from barnabas.broker.controller.reassignments import Reassignments
from barnabas.broker.controller.rules.cluster_state import ClusterTopic
from barnabas.broker.controller.rules.leader_election import ElectionPolicy
from barnabas.broker.controller.topic_admin import (
    Defaults,
    Delivery,
    NewPartitions,
    TopicAdmin,
)
from barnabas.broker.loop.slices import Slicer
from barnabas.broker.observability.events import (
    CONTROLLER_ELECTED,
    CONTROLLER_RESIGNED,
    EventLog,
)
from barnabas.broker.observability.logging import get_logger
from barnabas.broker.store.metadata_store import (
    CHECKS_PER_SESSION,
    MetadataStore,
    SessionExpired,
    StoreUnavailable,
    WatchHandle,
    is_silent,
)
from barnabas.coordinator.ports import Clock
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from barnabas.protocol.messages.leader_and_isr import LeaderAndIsrResponse
from barnabas.protocol.topic_partition import TopicPartition

T = TypeVar("T")


class _Event(NamedTuple):
    work: Callable[[], Awaitable[Any]]
    deadline: float
    done: asyncio.Future[Any]


class EventQueue:
    """The event queue of the controller: runs asynchronous work in order, one piece at a time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._events: asyncio.Queue[_Event] = asyncio.Queue()
        self._runner: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """Return the number of events that wait."""
        return self._events.qsize()

    def start(self) -> None:
        self._runner = asyncio.create_task(self._run(), name="controller")

    async def stop(self) -> None:
        """Stop the queue; futures of waiting events are cancelled."""
        if self._runner is None:
            return
        self._runner.cancel()
        await asyncio.wait([self._runner])
        while not self._events.empty():
            self._events.get_nowait().done.cancel()

    def submit(
        self, work: Callable[[], Awaitable[T]], timeout: float = float("inf")
    ) -> asyncio.Future[T]:
        """Queue work; the future carries its result or error.

        Work that is still waiting after `timeout` seconds is not begun and fails with
        REQUEST_TIMED_OUT. Work that has begun runs to its end even if its future is cancelled.
        """
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._events.put_nowait(_Event(work, self._clock.monotonic() + timeout, done))
        return done

    async def _run(self) -> None:
        while True:
            event = await self._events.get()
            try:
                if self._clock.monotonic() >= event.deadline:
                    raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
                result = await event.work()
            except Exception as error:
                if not event.done.cancelled():
                    event.done.set_exception(error)
            except asyncio.CancelledError:
                event.done.cancel()
                raise
            else:
                if not event.done.cancelled():
                    event.done.set_result(result)
                # The next event may be far away.
                del result
            del event


_log = get_logger(__name__)


class Controller:
    """The controller object of a broker. Every broker has one, at most one in the cluster is
    `active`."""

    def __init__(
        self,
        store: MetadataStore,
        broker_id: int,
        *,
        clock: Clock,
        slicer: Slicer,
        random: Random,
        connect: BrokerClientFactory,
        policy: Callable[[str], Awaitable[ElectionPolicy]],
        defaults: Callable[[], Defaults],
        check_configs: Callable[[Mapping[str, str | None]], dict[str, str]],
        require_descriptors: Callable[[int], None],
        events: EventLog,
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        """`connect` opens a client to a broker. `policy` returns the election policy of a topic.
        `defaults`, `check_configs` and `require_descriptors` are for new topics; see `TopicAdmin`.
        `on_fatal` gets errors after which the decisions of this broker cannot be trusted."""
        self._store = store
        self._broker_id = broker_id
        self._clock = clock
        self._slicer = slicer
        self._random = random
        self._connect = connect
        self._policy = policy
        self._defaults = defaults
        self._check_configs = check_configs
        self._require_descriptors = require_descriptors
        self._events = events
        self._on_fatal = on_fatal
        self._election = ControllerElection(store, broker_id, clock)
        self._queue = EventQueue(clock)
        self._active: ActiveController | None = None
        self._watches: list[WatchHandle] = []
        self._store_lost = False
        """Whether the store failed, so this broker does not know which broker is controller."""
        self._check_timer: asyncio.TimerHandle | None = None
        self._missing_timer: asyncio.TimerHandle | None = None
        self.elections = ElectionCounts()

    @property
    def active(self) -> bool:
        """Whether this broker is the controller."""
        return self._active is not None

    @property
    def queued(self) -> int:
        """Return the number of events that wait."""
        return len(self._queue)

    async def start(self) -> None:
        """Take part in the election; return when the cluster has a controller, this broker or
        another."""
        self._queue.start()
        self._watches = [
            self._store.watch_data(znodes.CONTROLLER, self._submit_on_change(self._elect)),
            self._store.watch_children(
                znodes.BROKER_IDS, self._submit_on_change(self._brokers_changed)
            ),
            self._store.watch_children(
                znodes.LOG_DIR_EVENTS, self._submit_on_change(self._log_dirs_failed)
            ),
        ]
        self._store.on_expired(self._abandon)
        self._schedule_check()
        # This broker may already have lost the election that it won.
        with suppress(KafkaError):
            await self._queue.submit(self._guarded(self._elect))

    async def stop(self) -> None:
        """Resign if this broker is controller, so a successor need not wait for the session
        timeout."""
        for watch in self._watches:
            watch.cancel()
        for timer in (self._check_timer, self._missing_timer):
            if timer is not None:
                timer.cancel()
        await self._queue.stop()
        await self._resign()

    # -- requests ---------------------------------------------------------------------------------

    async def create_topics(
        self, topics: Sequence[NewTopic], *, timeout: float, validate_only: bool = False
    ) -> dict[str, CreatedTopic | KafkaError]:
        """Create topics, whose names must differ, and wait up to `timeout` seconds for the brokers.

        Raises NOT_CONTROLLER, and REQUEST_TIMED_OUT if the event did not start in time.
        """
        return await self.deliver(
            lambda active: self._admin(active).create(topics, validate_only=validate_only), timeout
        )

    async def create_partitions(
        self, topics: Sequence[NewPartitions], *, timeout: float, validate_only: bool = False
    ) -> dict[str, KafkaError | None]:
        """Add partitions to topics; otherwise as `create_topics`."""
        return await self.deliver(
            lambda active: self._admin(active).grow(topics, validate_only=validate_only), timeout
        )

    async def delete_topics(
        self, wanted: Sequence[str | bytes], *, timeout: float
    ) -> list[ClusterTopic | KafkaError]:
        """Delete topics by name or id and return one result each, in order; else as
        `create_topics`."""
        return await self.deliver(lambda active: self._admin(active).remove(wanted), timeout)

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Apply ISR proposals of leaders; the response has the partition states that hold now.

        Raises NOT_CONTROLLER, STALE_BROKER_EPOCH, BROKER_NOT_AVAILABLE.
        """
        return await self.ask(lambda active: BrokerRequests(active).alter_partitions(request))

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """See `BrokerRequests.controlled_shutdown`; also raises NOT_CONTROLLER."""
        return await self.ask(
            lambda active: BrokerRequests(active).controlled_shutdown(broker_id, broker_epoch)
        )

    def require_broker(self, broker_id: int, broker_epoch: int) -> None:
        """See `BrokerRequests.require`; also raises NOT_CONTROLLER."""
        BrokerRequests(self._require_active()).require(broker_id, broker_epoch)

    def retry_elections(self, topic: str) -> None:
        """Retry elections of a topic whose configuration changed: it may now allow unclean ones."""

        async def decide() -> None:
            active = self._active
            if active is not None and (found := active.state.topics.get(topic)) is not None:
                await active.decide_and_send(
                    [
                        at
                        for at in active.state.partitions([found])
                        if active.state.partition(at).leader == NO_LEADER
                    ]
                )

        if self.active:
            self._submit(decide)

    async def ask(
        self, work: Callable[[ActiveController], Awaitable[T]], timeout: float = inf
    ) -> T:
        """Run work as an event of the active controller.

        Raises NOT_CONTROLLER, at once if another broker is controller, and REQUEST_TIMED_OUT if the
        event did not start within `timeout` seconds.
        """
        self._require_active()
        return await self._queue.submit(
            self._guarded(lambda: work(self._require_active())), timeout
        )

    async def deliver(
        self, work: Callable[[ActiveController], Awaitable[tuple[T, Delivery]]], timeout: float
    ) -> T:
        """Do the same as `ask`, then wait in the time that is left until the brokers know the
        result."""
        before = self._clock.monotonic()
        answer, delivered = await self.ask(work, timeout)
        if delivered:
            # The change is already made; a slow broker only delays the response.
            left = max(0.0, timeout - (self._clock.monotonic() - before))
            await asyncio.wait(delivered, timeout=left)
        return answer

    def _require_active(self) -> ActiveController:
        if self._active is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        return self._active

    def _admin(self, active: ActiveController) -> TopicAdmin:
        return TopicAdmin(
            active,
            self._random,
            defaults=self._defaults,
            check_configs=self._check_configs,
            require_descriptors=self._require_descriptors,
        )

    # -- events ----------------------------------------------------------------------------------

    def _guarded(self, work: Callable[[], Awaitable[T]]) -> Callable[[], Awaitable[T]]:
        """Wrap work so that any failure leaves this controller consistent with the store, or
        inactive."""

        async def guarded() -> T:
            try:
                done = await work()
                if self._active is not None:
                    await Reassignments(self._active).advance()
                return done
            except KafkaError:
                raise
            except (ControllerMovedError, SessionExpired) as cause:
                self._resigned(repr(cause))
                await self._resign()
                raise KafkaError(ErrorCode.NOT_CONTROLLER) from cause
            except StaleStateError as cause:
                _log.warning(
                    "controller reloads its state", broker=self._broker_id, reason=str(cause)
                )
                await self._close_active()
                self._submit(self._elect)
                raise KafkaError(ErrorCode.NOT_CONTROLLER) from cause
            except Exception as cause:
                await self._close_active()
                if isinstance(cause, StoreUnavailable) and self._store.session_timeout < inf:
                    # The result of the last write is unknown. Look again who is controller when the
                    # store answers.
                    self._store_lost = True
                    raise KafkaError(ErrorCode.NOT_CONTROLLER) from cause
                self._on_fatal(cause)
                raise

        return guarded

    def _submit_on_change(self, work: Callable[[], Awaitable[None]]) -> Callable[[str], None]:
        """Return a watch callback that queues work as an event."""

        def watch(_path: str) -> None:
            self._submit(work)

        return watch

    def _submit(self, work: Callable[[], Awaitable[None]]) -> None:
        # `_guarded` has handled the failure; no caller waits for this future.
        self._queue.submit(self._guarded(work)).add_done_callback(_retrieve)

    async def _brokers_changed(self) -> None:
        if self._active is not None:
            await self._active.refresh_brokers()

    async def _log_dirs_failed(self) -> None:
        if self._active is not None:
            await self._active.log_dirs_failed()

    async def _give_up_missing(self) -> None:
        if self._active is not None:
            await self._active.give_up_missing()

    def _replicas_answered(self, broker: BrokerInfo, answer: LeaderAndIsrResponse) -> None:
        async def take_note() -> None:
            if self._active is not None:
                await self._active.replicas_answered(broker, answer)

        self._submit(take_note)

    # -- election ---------------------------------------------------------------------------------

    async def _elect(self) -> None:
        """Become controller if no broker is; check that this broker still is, if it was."""
        while True:
            holder = await self._election.holder()
            if holder is ControllerHolder.ANOTHER_BROKER:
                if self._active is not None:
                    raise ControllerMovedError("another broker is controller")
                return
            if self._active is not None and holder is ControllerHolder.THIS_BROKER:
                return
            await self._close_active()
            term = await self._election.become_controller()
            if term is not None:
                await self._begin_term(term)
                return

    async def _begin_term(self, term: Term) -> None:
        """Start a term: load the state, finish interrupted work, send the full state to all
        brokers."""
        self._events.add(_log, CONTROLLER_ELECTED, broker=self._broker_id, epoch=term.epoch)
        active = self._active = ActiveController(
            self._store,
            ControlMessages(self._broker_id, term.epoch),
            term,
            slicer=self._slicer,
            connect=self._connect,
            policy=self._policy,
            counts=self.elections,
            events=self._events,
            on_leader_and_isr=self._replicas_answered,
            on_fatal=self._on_fatal,
        )
        deleting = await active.load()
        if deleting:
            await self._admin(active).finish_deletion(deleting)
        await active.begin()
        await active.log_dirs_failed()
        if active.state.missing:
            _log.info("waiting for brokers to register again", missing=sorted(active.state.missing))
            loop = asyncio.get_running_loop()
            self._missing_timer = loop.call_later(
                self._store.session_timeout, self._submit, self._give_up_missing
            )

    def _resigned(self, reason: str) -> None:
        self._events.add(_log, CONTROLLER_RESIGNED, broker=self._broker_id, reason=reason)

    async def _resign(self) -> None:
        if self._active is not None:
            await self._close_active()
            await self._election.resign()

    async def _close_active(self) -> None:
        active, self._active = self._active, None
        if self._missing_timer is not None:
            self._missing_timer.cancel()
        if active is not None:
            await active.close()

    # -- loss of the store ------------------------------------------------------------------------

    def _schedule_check(self) -> None:
        """Schedule the next check whether the store is silent; the embedded store never is."""
        timeout = self._store.session_timeout
        if timeout < inf:
            loop = asyncio.get_running_loop()
            self._check_timer = loop.call_later(timeout / CHECKS_PER_SESSION, self._check_store)

    def _check_store(self) -> None:
        silent = is_silent(self._store)
        if self._store_lost and not silent:
            self._store_lost = False
            self._submit(self._elect)
        elif silent and self._active is not None:
            self._resigned("the metadata store is silent")
            self._store_lost = True
            self._abandon()
        self._schedule_check()

    def _abandon(self) -> None:
        """Stop being controller at once and outside the queue: its current event may wait for the
        store."""
        active, self._active = self._active, None
        if active is not None:
            active.abandon()


def _retrieve(done: asyncio.Future[None]) -> None:
    if not done.cancelled():
        done.exception()
