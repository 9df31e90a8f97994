"""How the controller talks to a broker: three messages, to itself as to any other.

The local broker's channel is its `ControlReceiver`; a remote one sends the same messages over a
connection.
"""

from collections.abc import Callable
from typing import Protocol

from barnabas.broker.metadata.znodes import BrokerInfo
from barnabas.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from barnabas.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from barnabas.protocol.messages.update_metadata import (
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)


class Channel(Protocol):
    """Requests to one incarnation of one broker, answered in order.

    Raises ChannelClosed where the broker cannot be reached any more.
    """

    async def leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse: ...

    async def update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse: ...

    async def stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse: ...

    async def close(self) -> None:
        """Nothing more will be sent."""
        ...


class ChannelClosed(Exception):
    """The broker is gone; its registration will tell."""


Connect = Callable[[BrokerInfo], Channel]
