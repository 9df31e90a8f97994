"""StopReplica (key 5), between brokers only.

Versions before 3 name no leader epochs, which tell a late message from one that counts.
"""

from barnabas.broker.controller.receiver import ControlReceiver
from barnabas.broker.server.context import RequestContext
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.stop_replica import API, StopReplicaRequest, StopReplicaResponse

__all__ = ["API", "SERVES", "StopReplicaHandler", "error_response"]

SERVES = range(3, 5)


class StopReplicaHandler:
    """Does what a controller in office says."""

    def __init__(self, receiver: ControlReceiver) -> None:
        self._receiver = receiver

    async def handle(
        self,
        request: StopReplicaRequest,
        context: RequestContext,  # noqa: ARG002
    ) -> StopReplicaResponse:
        return await self._receiver.stop_replica(request)


def error_response(
    _request: StopReplicaRequest, code: ErrorCode, _version: int
) -> StopReplicaResponse:
    """The error for the whole message."""
    return StopReplicaResponse(error_code=code, partition_errors=[])
