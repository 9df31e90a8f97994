"""The controller: elected through the metadata store, even where there is one broker only.

Whoever creates the ephemeral node /controller is in office, and raises the controller's epoch in
the same transaction, so that what a predecessor still writes or sends is refused. Everything that
happens is an event of one queue: elections, brokers that come and go, requests about topics.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from random import Random
from typing import TypeVar

from barnabas.broker.clock import Clock
from barnabas.broker.controller.channel import Connect
from barnabas.broker.controller.events import EventQueue
from barnabas.broker.controller.requests import Sender
from barnabas.broker.controller.state import Topic
from barnabas.broker.controller.tenure import Fenced, Tenure
from barnabas.broker.controller.topic_admin import (
    CreatedTopic,
    Defaults,
    Delivery,
    NewPartitions,
    TopicAdmin,
)
from barnabas.broker.controller.topics import NewTopic
from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.store import (
    BadVersion,
    Create,
    Delete,
    MetadataStore,
    NodeExists,
    NoNode,
    Op,
    SessionExpired,
    SetData,
    Stat,
    StoreUnavailable,
    Watching,
)
from barnabas.broker.metadata.znodes import BrokerInfo
from barnabas.broker.observability.logging import get_logger
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.leader_and_isr import LeaderAndIsrResponse

T = TypeVar("T")
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
        unclean: Callable[[str], bool],
        defaults: Callable[[], Defaults],
        check_configs: Callable[[Mapping[str, str | None]], dict[str, str]],
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        """`connect` opens a channel to a broker, `unclean` says whether a topic allows unclean
        elections, `defaults` and `check_configs` are for new topics. `on_fatal` is told of a
        failure after which nobody can rely on this broker's decisions."""
        self._store = store
        self._broker_id = broker_id
        self._clock = clock
        self._random = random
        self._connect = connect
        self._unclean = unclean
        self._defaults = defaults
        self._check_configs = check_configs
        self._on_fatal = on_fatal
        self._queue = EventQueue(clock)
        self._tenure: Tenure | None = None
        self._watches: list[Watching] = []

    @property
    def active(self) -> bool:
        """Whether this broker is the controller."""
        return self._tenure is not None

    async def start(self) -> None:
        """Stand for election; returns when there is a controller, this one or another."""
        self._queue.start()
        self._watches = [
            self._store.watch_data(znodes.CONTROLLER, self._soon(self._elect)),
            self._store.watch_children(znodes.BROKER_IDS, self._soon(self._brokers_changed)),
            self._store.watch_children(znodes.LOG_DIR_EVENTS, self._soon(self._log_dirs_failed)),
        ]
        await self._queue.submit(self._guarded(self._elect))

    async def stop(self) -> None:
        """Leave the office, if held, so that a successor need not wait for the session's end."""
        for watch in self._watches:
            watch.cancel()
        await self._queue.stop()
        await self._resign()

    async def create_topics(
        self, topics: Sequence[NewTopic], *, timeout: float, validate_only: bool = False
    ) -> dict[str, CreatedTopic | KafkaError]:
        """By name, which must differ. Waits up to `timeout` seconds for the brokers to know.

        Raises NOT_CONTROLLER, and REQUEST_TIMED_OUT where its turn did not come in time.
        """
        return await self._request(
            lambda admin: admin.create(topics, validate_only=validate_only), timeout
        )

    async def create_partitions(
        self, topics: Sequence[NewPartitions], *, timeout: float, validate_only: bool = False
    ) -> dict[str, KafkaError | None]:
        """As `create_topics`."""
        return await self._request(
            lambda admin: admin.grow(topics, validate_only=validate_only), timeout
        )

    async def delete_topics(
        self, wanted: Sequence[str | bytes], *, timeout: float
    ) -> list[Topic | KafkaError]:
        """By name or id; the answers are in the same order. Otherwise as `create_topics`."""

        async def delete(admin: TopicAdmin) -> tuple[list[Topic | KafkaError], Delivery]:
            found = [self._find(each) for each in wanted]
            topics = {each.name: each for each in found if isinstance(each, Topic)}
            delivered = await admin.delete(list(topics.values())) if topics else []
            return found, delivered

        return await self._request(delete, timeout)

    def _find(self, wanted: str | bytes) -> Topic | KafkaError:
        assert self._tenure is not None
        state = self._tenure.state
        if isinstance(wanted, bytes):
            name = state.names.get(wanted)
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_ID) if name is None else state.topics[name]
        topic = state.topics.get(wanted)
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) if topic is None else topic

    async def _request(
        self, work: Callable[[TopicAdmin], Awaitable[tuple[T, Delivery]]], timeout: float
    ) -> T:
        async def run() -> tuple[T, Delivery]:
            if self._tenure is None:
                raise KafkaError(ErrorCode.NOT_CONTROLLER)
            admin = TopicAdmin(
                self._tenure,
                self._random,
                defaults=self._defaults,
                check_configs=self._check_configs,
            )
            return await work(admin)

        before = self._clock.monotonic()
        answer, delivered = await self._queue.submit(self._guarded(run), timeout)
        if delivered:
            # The deed is done; a broker that is slow to hear of it only delays the answer.
            left = max(0.0, timeout - (self._clock.monotonic() - before))
            await asyncio.wait(delivered, timeout=left)
        return answer

    def _guarded(self, work: Callable[[], Awaitable[T]]) -> Callable[[], Awaitable[T]]:
        """Work after whose failure this controller knows what is true, or is none any more."""

        async def guarded() -> T:
            try:
                return await work()
            except KafkaError:
                raise
            except (Fenced, SessionExpired) as cause:
                _log.warning("no longer controller", broker=self._broker_id, reason=repr(cause))
                await self._resign()
                raise KafkaError(ErrorCode.NOT_CONTROLLER) from cause
            except Exception as cause:
                await self._drop_tenure()
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

    async def _elect(self) -> None:
        """Take the office if it is free; look whether it is still ours if we hold it."""
        while True:
            try:
                data, stat = await self._store.get(znodes.CONTROLLER)
            except NoNode:
                if await self._take_office():
                    return
                continue
            if self._tenure is not None and stat.ephemeral_owner != self._store.session_id:
                raise Fenced(f"broker {znodes.decode_controller(data)} is controller")
            return

    async def _take_office(self) -> bool:
        await self._drop_tenure()
        data = znodes.encode_controller(self._broker_id, self._clock.now_ms())
        ops: list[Op] = [Create(znodes.CONTROLLER, data, ephemeral=True)]
        try:
            known, stat = await self._store.get(znodes.CONTROLLER_EPOCH)
            epoch = znodes.decode_controller_epoch(known) + 1
            value = znodes.encode_controller_epoch(epoch)
            ops.append(SetData(znodes.CONTROLLER_EPOCH, value, stat.version))
        except NoNode:
            epoch = 1
            value = znodes.encode_controller_epoch(epoch)
            ops.append(Create(znodes.CONTROLLER_EPOCH, value))
        try:
            _, written = await self._store.multi(ops)
        except (NodeExists, BadVersion):
            return False
        assert written is not None
        epoch_stat: Stat = written[1] if len(written) == 2 else written
        await self._enter(epoch, epoch_stat.version)
        return True

    async def _enter(self, epoch: int, epoch_version: int) -> None:
        """Learn what is true, finish what a predecessor began, tell everyone."""
        _log.info("controller elected", broker=self._broker_id, epoch=epoch)
        tenure = self._tenure = Tenure(
            self._store,
            Sender(self._broker_id, epoch),
            epoch_version,
            connect=self._connect,
            unclean=self._unclean,
            report=self._replicas_answered,
            failed=self._on_fatal,
        )
        deleting = await tenure.load()
        if deleting:
            admin = TopicAdmin(
                tenure, self._random, defaults=self._defaults, check_configs=self._check_configs
            )
            await admin.finish_deletion(deleting)
        await tenure.begin()
        await tenure.log_dirs_failed()

    async def _brokers_changed(self) -> None:
        if self._tenure is not None:
            await self._tenure.refresh_brokers()

    async def _log_dirs_failed(self) -> None:
        if self._tenure is not None:
            await self._tenure.log_dirs_failed()

    def _replicas_answered(self, broker: BrokerInfo, answer: LeaderAndIsrResponse) -> None:
        async def take_note() -> None:
            if self._tenure is not None:
                await self._tenure.replicas_answered(broker, answer)

        self._submit(take_note)

    async def _resign(self) -> None:
        if self._tenure is None:
            return
        await self._drop_tenure()
        try:
            _, stat = await self._store.get(znodes.CONTROLLER)
            if stat.ephemeral_owner == self._store.session_id:
                await self._store.multi([Delete(znodes.CONTROLLER, stat.version)])
        except (NoNode, SessionExpired, StoreUnavailable):
            # Gone already, or it goes with the session.
            return

    async def _drop_tenure(self) -> None:
        tenure, self._tenure = self._tenure, None
        if tenure is not None:
            await tenure.close()


def _retrieve(done: asyncio.Future[None]) -> None:
    if not done.cancelled():
        done.exception()
