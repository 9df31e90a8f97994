"""The controller's channel to another broker: the same messages, over a line of its own.

As in Kafka a message is sent until the broker has answered it, or until its registration is gone
and the channel is closed. All three may be heard twice.
"""

import asyncio
from typing import Any, Final

from barnabas.broker.peers.peer import Peer, PeerUnreachable
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import leader_and_isr, stop_replica, update_metadata
from barnabas.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from barnabas.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from barnabas.protocol.messages.update_metadata import (
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from barnabas.protocol.schema import Api

RETRY_S: Final = 0.1
"""Until a message that had no answer is sent again."""


class RemoteChannel:
    """A `Channel` over a `Peer`, which it owns."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    async def leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        answer: LeaderAndIsrResponse = await self._ask(leader_and_isr.API, request)
        return answer

    async def update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        answer: UpdateMetadataResponse = await self._ask(update_metadata.API, request)
        return answer

    async def stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        answer: StopReplicaResponse = await self._ask(stop_replica.API, request)
        return answer

    async def close(self) -> None:
        await self._peer.close()

    async def _ask(self, api: Api, request: object) -> Any:
        while True:
            try:
                answer = await self._peer.request(api, request)
            except PeerUnreachable:
                answer = None
            if answer is not None and answer.error_code != ErrorCode.UNKNOWN_SERVER_ERROR:
                return answer
            await asyncio.sleep(max(RETRY_S, self._peer.backoff))
