"""A member of a consumer group, in the classic protocol or in the consumer protocol (KIP-848).

The assignors are those of Kafka, so members of other clients can be in the same group.
"""

from collections.abc import Iterable, Sequence
from typing import Final, Literal, Self

from barnabas.client.cluster import Cluster
from barnabas.client.consumer import Consumer
from barnabas.client.groups.assignors import EAGER
from barnabas.client.groups.classic import ClassicMember
from barnabas.client.groups.listener import RebalanceListener
from barnabas.client.groups.metadata import GroupMetadata
from barnabas.client.groups.modern import ModernMember

__all__ = ["PROTOCOLS", "GroupMember", "Protocol", "RebalanceListener"]

Protocol = Literal["classic", "consumer"]
PROTOCOLS: Final[tuple[Protocol, ...]] = ("classic", "consumer")


class GroupMember:
    """A group member that assigns partitions to `consumer`; use it as an async context manager.

    With the protocol `classic` the members assign the partitions. `assignors` are the names that
    this member votes for: eager ones in order of preference (without any, all of them), or
    `cooperative-sticky` alone, with which it keeps reading the partitions that it keeps during a
    rebalance (KIP-429). Each member needs its own Cluster: a JoinGroup blocks the connection
    to the coordinator until all members have joined.

    With `consumer` (KIP-848, Kafka 4.0) the coordinator assigns the partitions and knows the
    timeouts. `assignors` is one of the coordinator's, such as `uniform` or `range`. `expression`
    subscribes to topics by an RE2 expression, with `topics` or in place of it (Kafka 4.0).
    """

    def __init__(
        self,
        cluster: Cluster,
        consumer: Consumer,
        group: str,
        topics: Iterable[str] = (),
        *,
        protocol: Protocol = "classic",
        expression: str | None = None,
        instance_id: str | None = None,
        session_timeout: float = 45.0,
        assignors: Sequence[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        listener = listener or RebalanceListener()
        self._member: ClassicMember | ModernMember
        if protocol == "consumer":
            if assignors is not None and len(assignors) != 1:
                raise ValueError("a member in the consumer protocol chooses one assignor")
            self._member = ModernMember(
                cluster,
                consumer,
                group,
                topics,
                expression=expression,
                instance_id=instance_id,
                assignor=None if assignors is None else assignors[0],
                listener=listener,
            )
            return
        if expression is not None:
            raise ValueError("an expression needs protocol='consumer'")
        self._member = ClassicMember(
            cluster,
            consumer,
            group,
            topics,
            instance_id=instance_id,
            session_timeout=session_timeout,
            assignors=tuple(EAGER) if assignors is None else assignors,
            listener=listener,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.leave()

    @property
    def metadata(self) -> GroupMetadata:
        """The current metadata of this member, for offsets in a transaction (KIP-447)."""
        return self._member.metadata

    async def ensure_joined(self) -> None:
        """Join the group, and follow its rebalances; call it before each poll.

        A member that need not give up all partitions does not wait for the other members here: a
        later call revokes and assigns partitions.
        """
        await self._member.ensure_joined()

    async def commit(self) -> None:
        """Commit the positions of the consumer.

        A member that the group has removed commits nothing, and joins again.
        """
        await self._member.commit()

    async def rewind(self) -> None:
        """Seek to the committed offsets of the group, e.g. after an aborted transaction."""
        await self._member.rewind()

    async def leave(self) -> None:
        """Leave the group at once, so that the others need not wait for the session timeout."""
        await self._member.leave()

    async def abandon(self) -> None:
        """Stop without leaving, as in a crash: the group finds out when the session has ended."""
        await self._member.abandon()
