"""The controller: elected through the metadata store, even where there is one broker only.

Whoever creates the ephemeral node /controller is in office, and raises the controller's epoch in
the same transaction, so that what a predecessor still writes or sends is refused. Everything that
happens is an event of one queue: elections, brokers that come and go, requests.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from math import inf
from random import Random
from typing import Final, TypeVar

from barnabas.broker.clock import Clock
from barnabas.broker.controller.broker_requests import BrokerRequests
from barnabas.broker.controller.channel import Connect
from barnabas.broker.controller.election import ElectionPolicy
from barnabas.broker.controller.events import EventQueue
from barnabas.broker.controller.office import Holder, Office, Term
from barnabas.broker.controller.reassigning import Reassigning
from barnabas.broker.controller.register import Fenced, Outdated
from barnabas.broker.controller.requests import Sender
from barnabas.broker.controller.state import Topic, TopicPartition
from barnabas.broker.controller.statistics import ElectionCounts
from barnabas.broker.controller.tenure import Tenure
from barnabas.broker.controller.topic_admin import (
    Defaults,
    Delivery,
    NewPartitions,
    TopicAdmin,
)
from barnabas.broker.controller.topics import CreatedTopic, NewTopic
from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.cache import NO_LEADER
from barnabas.broker.metadata.store import (
    MetadataStore,
    SessionExpired,
    StoreUnavailable,
    Watching,
)
from barnabas.broker.metadata.znodes import BrokerInfo
from barnabas.broker.observability.logging import get_logger
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from barnabas.protocol.messages.leader_and_isr import LeaderAndIsrResponse

T = TypeVar("T")
_OUT_OF_TOUCH: Final = 2 / 3
"""Of the session: silence of the store after which somebody else may be in office soon."""
_LOOKS_PER_SESSION: Final = 12
_log = get_logger(__name__)


class Controller:
    """Every broker has one; at most one of the cluster is `active`."""

    def __init__(
        self,
        store: MetadataStore,
        broker_id: int,
        *,
        clock: Clock,
        random: Random,
        connect: Connect,
        policy: Callable[[str], Awaitable[ElectionPolicy]],
        defaults: Callable[[], Defaults],
        check_configs: Callable[[Mapping[str, str | None]], dict[str, str]],
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        """`connect` opens a channel to a broker, `policy` says what a topic wants of its elections,
        `defaults` and `check_configs` are for new topics. `on_fatal` is told of a failure after
        which nobody can rely on this broker's decisions."""
        self._store = store
        self._broker_id = broker_id
        self._clock = clock
        self._random = random
        self._connect = connect
        self._policy = policy
        self._defaults = defaults
        self._check_configs = check_configs
        self._on_fatal = on_fatal
        self._office = Office(store, broker_id, clock)
        self._queue = EventQueue(clock)
        self._tenure: Tenure | None = None
        self._watches: list[Watching] = []
        self._adrift = False
        """Whether the store failed, so that nobody knows who is in office."""
        self._look: asyncio.TimerHandle | None = None
        self._patience: asyncio.TimerHandle | None = None
        self.elections = ElectionCounts()

    @property
    def active(self) -> bool:
        """Whether this broker is the controller."""
        return self._tenure is not None

    @property
    def queued(self) -> int:
        """Events that wait for their turn."""
        return len(self._queue)

    async def start(self) -> None:
        """Stand for election; returns when there is a controller, this one or another."""
        self._queue.start()
        self._watches = [
            self._store.watch_data(znodes.CONTROLLER, self._soon(self._elect)),
            self._store.watch_children(znodes.BROKER_IDS, self._soon(self._brokers_changed)),
            self._store.watch_children(znodes.LOG_DIR_EVENTS, self._soon(self._log_dirs_failed)),
        ]
        self._store.on_expired(self._abandon)
        self._look_later()
        # It may have lost the office again before it knew what to do with it.
        with suppress(KafkaError):
            await self._queue.submit(self._guarded(self._elect))

    async def stop(self) -> None:
        """Leave the office, if held, so that a successor need not wait for the session's end."""
        for watch in self._watches:
            watch.cancel()
        for timer in (self._look, self._patience):
            if timer is not None:
                timer.cancel()
        await self._queue.stop()
        await self._resign()

    # -- what it is asked ------------------------------------------------------------------------

    async def create_topics(
        self, topics: Sequence[NewTopic], *, timeout: float, validate_only: bool = False
    ) -> dict[str, CreatedTopic | KafkaError]:
        """By name, which must differ. Waits up to `timeout` seconds for the brokers to know.

        Raises NOT_CONTROLLER, and REQUEST_TIMED_OUT where its turn did not come in time.
        """
        return await self.deliver(
            lambda tenure: self._admin(tenure).create(topics, validate_only=validate_only), timeout
        )

    async def create_partitions(
        self, topics: Sequence[NewPartitions], *, timeout: float, validate_only: bool = False
    ) -> dict[str, KafkaError | None]:
        """As `create_topics`."""
        return await self.deliver(
            lambda tenure: self._admin(tenure).grow(topics, validate_only=validate_only), timeout
        )

    async def delete_topics(
        self, wanted: Sequence[str | bytes], *, timeout: float
    ) -> list[Topic | KafkaError]:
        """By name or id; the answers are in the same order. Otherwise as `create_topics`."""
        return await self.deliver(lambda tenure: self._admin(tenure).remove(wanted), timeout)

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Leaders' proposals of in-sync sets; the answer has the states that hold now.

        Raises NOT_CONTROLLER, STALE_BROKER_EPOCH, BROKER_NOT_AVAILABLE.
        """
        return await self.ask(lambda tenure: BrokerRequests(tenure).alter_partitions(request))

    async def shut_down(self, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
        """See `BrokerRequests.shut_down`; raises NOT_CONTROLLER too."""
        return await self.ask(
            lambda tenure: BrokerRequests(tenure).shut_down(broker_id, broker_epoch)
        )

    def require_broker(self, broker_id: int, broker_epoch: int) -> None:
        """See `BrokerRequests.require`; raises NOT_CONTROLLER too."""
        BrokerRequests(self._in_office()).require(broker_id, broker_epoch)

    def reconsider(self, topic: str) -> None:
        """The topic's configuration has changed: it may allow elections that it did not."""

        async def decide() -> None:
            tenure = self._tenure
            if tenure is not None and (found := tenure.state.topics.get(topic)) is not None:
                await tenure.decide_and_tell(
                    [
                        at
                        for at in tenure.state.partitions([found])
                        if tenure.state.partition(at).leader == NO_LEADER
                    ]
                )

        if self.active:
            self._submit(decide)

    async def ask(self, work: Callable[[Tenure], Awaitable[T]], timeout: float = inf) -> T:
        """Have work done in its turn by the controller in office.

        Raises NOT_CONTROLLER, at once where another broker is, and REQUEST_TIMED_OUT where its turn
        did not come within `timeout` seconds.
        """
        self._in_office()
        return await self._queue.submit(self._guarded(lambda: work(self._in_office())), timeout)

    async def deliver(
        self, work: Callable[[Tenure], Awaitable[tuple[T, Delivery]]], timeout: float
    ) -> T:
        """As `ask`, and wait until brokers have heard of it, as long as there is time."""
        before = self._clock.monotonic()
        answer, delivered = await self.ask(work, timeout)
        if delivered:
            # The deed is done; a broker that is slow to hear of it only delays the answer.
            left = max(0.0, timeout - (self._clock.monotonic() - before))
            await asyncio.wait(delivered, timeout=left)
        return answer

    def _in_office(self) -> Tenure:
        if self._tenure is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        return self._tenure

    def _admin(self, tenure: Tenure) -> TopicAdmin:
        return TopicAdmin(
            tenure, self._random, defaults=self._defaults, check_configs=self._check_configs
        )

    # -- events ----------------------------------------------------------------------------------

    def _guarded(self, work: Callable[[], Awaitable[T]]) -> Callable[[], Awaitable[T]]:
        """Work after whose failure this controller knows what is true, or is none any more."""

        async def guarded() -> T:
            try:
                done = await work()
                if self._tenure is not None:
                    await Reassigning(self._tenure).advance()
                return done
            except KafkaError:
                raise
            except (Fenced, SessionExpired) as cause:
                _log.warning("no longer controller", broker=self._broker_id, reason=repr(cause))
                await self._resign()
                raise KafkaError(ErrorCode.NOT_CONTROLLER) from cause
            except Outdated as cause:
                _log.warning("controller begins anew", broker=self._broker_id, reason=str(cause))
                await self._drop_tenure()
                self._submit(self._elect)
                raise KafkaError(ErrorCode.NOT_CONTROLLER) from cause
            except Exception as cause:
                await self._drop_tenure()
                if isinstance(cause, StoreUnavailable) and self._store.session_timeout < inf:
                    # What was written is unknown. Once it answers, who is in office is asked anew.
                    self._adrift = True
                    raise KafkaError(ErrorCode.NOT_CONTROLLER) from cause
                self._on_fatal(cause)
                raise

        return guarded

    def _soon(self, work: Callable[[], Awaitable[None]]) -> Callable[[str], None]:
        """A watch that makes an event of the news."""

        def watch(_path: str) -> None:
            self._submit(work)

        return watch

    def _submit(self, work: Callable[[], Awaitable[None]]) -> None:
        # A failure has been dealt with by `_guarded`; here nobody waits for it.
        self._queue.submit(self._guarded(work)).add_done_callback(_retrieve)

    async def _brokers_changed(self) -> None:
        if self._tenure is not None:
            await self._tenure.refresh_brokers()

    async def _log_dirs_failed(self) -> None:
        if self._tenure is not None:
            await self._tenure.log_dirs_failed()

    async def _stop_waiting(self) -> None:
        if self._tenure is not None:
            await self._tenure.stop_waiting()

    def _replicas_answered(self, broker: BrokerInfo, answer: LeaderAndIsrResponse) -> None:
        async def take_note() -> None:
            if self._tenure is not None:
                await self._tenure.replicas_answered(broker, answer)

        self._submit(take_note)

    # -- the office ------------------------------------------------------------------------------

    async def _elect(self) -> None:
        """Take the office if it is free; look whether it is still ours if we hold it."""
        while True:
            holder = await self._office.holder()
            if holder is Holder.ANOTHER:
                if self._tenure is not None:
                    raise Fenced("another broker is controller")
                return
            if self._tenure is not None and holder is Holder.THIS_BROKER:
                return
            await self._drop_tenure()
            term = await self._office.take()
            if term is not None:
                await self._enter(term)
                return

    async def _enter(self, term: Term) -> None:
        """Learn what is true, finish what a predecessor began, tell everyone."""
        _log.info("controller elected", broker=self._broker_id, epoch=term.epoch)
        tenure = self._tenure = Tenure(
            self._store,
            Sender(self._broker_id, term.epoch),
            term,
            connect=self._connect,
            policy=self._policy,
            counts=self.elections,
            report=self._replicas_answered,
            failed=self._on_fatal,
        )
        deleting = await tenure.load()
        if deleting:
            await self._admin(tenure).finish_deletion(deleting)
        await tenure.begin()
        await tenure.log_dirs_failed()
        if tenure.state.missing:
            _log.info("waiting for brokers", missing=sorted(tenure.state.missing))
            loop = asyncio.get_running_loop()
            self._patience = loop.call_later(
                self._store.session_timeout, self._submit, self._stop_waiting
            )

    async def _resign(self) -> None:
        if self._tenure is not None:
            await self._drop_tenure()
            await self._office.leave()

    async def _drop_tenure(self) -> None:
        tenure, self._tenure = self._tenure, None
        if self._patience is not None:
            self._patience.cancel()
        if tenure is not None:
            await tenure.close()

    # -- losing touch ----------------------------------------------------------------------------

    def _look_later(self) -> None:
        """Look now and then whether the store still answers; one in this process always does."""
        timeout = self._store.session_timeout
        if timeout < inf:
            loop = asyncio.get_running_loop()
            self._look = loop.call_later(timeout / _LOOKS_PER_SESSION, self._look_now)

    def _look_now(self) -> None:
        in_touch = self._store.silent_for() <= self._store.session_timeout * _OUT_OF_TOUCH
        if in_touch and self._adrift:
            self._adrift = False
            self._submit(self._elect)
        elif not in_touch and self._tenure is not None:
            _log.warning("controller lost touch with the store", broker=self._broker_id)
            self._adrift = True
            self._abandon()
        self._look_later()

    def _abandon(self) -> None:
        """Be in office no more. Not in its turn: an event may be what waits for the store."""
        tenure, self._tenure = self._tenure, None
        if tenure is not None:
            tenure.abandon()


def _retrieve(done: asyncio.Future[None]) -> None:
    if not done.cancelled():
        done.exception()
