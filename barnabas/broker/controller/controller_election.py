"""The controller election: one ephemeral node, and an epoch that grows with every controller."""

from enum import Enum, auto
from typing import NamedTuple

from barnabas.broker.cluster import znodes
from barnabas.broker.store.metadata_store import (
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
from barnabas.coordinator.ports import Clock


class Term(NamedTuple):
    """The term of one controller: its epoch, and the version of the epoch's node, which guards
    writes."""

    epoch: int
    version: int


class ControllerHolder(Enum):
    """The broker that is controller, as seen from this broker."""

    NONE = auto()
    THIS_BROKER = auto()
    """This broker, in its current session."""
    ANOTHER_BROKER = auto()


class ControllerElection:
    """The election as seen from one broker."""

    def __init__(self, store: MetadataStore, broker_id: int, clock: Clock) -> None:
        self._store = store
        self._broker_id = broker_id
        self._clock = clock

    async def holder(self) -> ControllerHolder:
        """Return which broker is controller now."""
        stat = await self._store.exists(znodes.CONTROLLER)
        if stat is None:
            return ControllerHolder.NONE
        # The node of an earlier session of this broker counts as another broker's until it is
        # removed.
        ours = stat.ephemeral_owner == self._store.session_id
        return ControllerHolder.THIS_BROKER if ours else ControllerHolder.ANOTHER_BROKER

    async def become_controller(self) -> Term | None:
        """Start a term; return None if another broker was elected first.

        A broker that already is controller may call this to start a new term.
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
        # Both results carry a stat; a Create has it next to the path.
        return Term(epoch, (written if isinstance(written, Stat) else written.stat).version)

    async def resign(self) -> None:
        """Remove /controller if it is ours, so a successor need not wait for the session
        timeout."""
        try:
            _, stat = await self._store.get(znodes.CONTROLLER)
            if stat.ephemeral_owner == self._store.session_id:
                await self._store.multi([Delete(znodes.CONTROLLER, stat.version)])
        except (NoNode, BadVersion, SessionExpired, StoreUnavailable):
            # The node is gone already, or will be removed with the session.
            return
