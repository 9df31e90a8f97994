"""The controller's office: one ephemeral node, and an epoch that grows with every term."""

from enum import Enum, auto
from typing import NamedTuple

from barnabas.broker.clock import Clock
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
)


class Term(NamedTuple):
    """A controller epoch, and the version of its node: whoever writes as controller names it."""

    epoch: int
    version: int


class Holder(Enum):
    """Of the office."""

    NOBODY = auto()
    THIS_BROKER = auto()
    """In its present session."""
    ANOTHER = auto()


class Office:
    """As one broker sees it."""

    def __init__(self, store: MetadataStore, broker_id: int, clock: Clock) -> None:
        self._store = store
        self._broker_id = broker_id
        self._clock = clock

    async def holder(self) -> Holder:
        """Who holds it now."""
        stat = await self._store.exists(znodes.CONTROLLER)
        if stat is None:
            return Holder.NOBODY
        # That of an earlier session of this broker is somebody else's, until the store ends it.
        ours = stat.ephemeral_owner == self._store.session_id
        return Holder.THIS_BROKER if ours else Holder.ANOTHER

    async def take(self) -> Term | None:
        """Begin a term; None where another broker was faster.

        It may be held by this broker itself, which is to begin anew.
        """
        stat = await self._store.exists(znodes.CONTROLLER)
        if stat is not None and stat.ephemeral_owner != self._store.session_id:
            return None
        ops: list[Op] = [] if stat is None else [Delete(znodes.CONTROLLER, stat.version)]
        data = znodes.encode_controller(self._broker_id, self._clock.now_ms())
        ops.append(Create(znodes.CONTROLLER, data, ephemeral=True))
        try:
            known, now = await self._store.get(znodes.CONTROLLER_EPOCH)
            epoch = znodes.decode_controller_epoch(known) + 1
            value = znodes.encode_controller_epoch(epoch)
            ops.append(SetData(znodes.CONTROLLER_EPOCH, value, now.version))
        except NoNode:
            epoch = 1
            ops.append(Create(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(epoch)))
        try:
            *_, written = await self._store.multi(ops)
        except (NodeExists, NoNode, BadVersion):
            return None
        assert written is not None
        # Of the two that tell their stat, a Create has it beside the path.
        return Term(epoch, (written if isinstance(written, Stat) else written.stat).version)

    async def leave(self) -> None:
        """Give it up, if this broker holds it, so that nobody waits for the session's end."""
        try:
            _, stat = await self._store.get(znodes.CONTROLLER)
            if stat.ephemeral_owner == self._store.session_id:
                await self._store.multi([Delete(znodes.CONTROLLER, stat.version)])
        except (NoNode, BadVersion, SessionExpired, StoreUnavailable):
            # Gone already, or it goes with the session.
            return
