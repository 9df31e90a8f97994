"""LeaderAndIsr (key 4), between brokers only.

Versions before 5 name no topic ids, by which replicas are told apart here.
"""

from barnabas.broker.controller.receiver import ControlReceiver
from barnabas.broker.server.context import RequestContext
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.leader_and_isr import API, LeaderAndIsrRequest, LeaderAndIsrResponse

__all__ = ["API", "SERVES", "LeaderAndIsrHandler", "error_response"]

SERVES = range(5, 8)


class LeaderAndIsrHandler:
    """Does what a controller in office says."""

    def __init__(self, receiver: ControlReceiver) -> None:
        self._receiver = receiver

    async def handle(
        self,
        request: LeaderAndIsrRequest,
        context: RequestContext,  # noqa: ARG002
    ) -> LeaderAndIsrResponse:
        return await self._receiver.leader_and_isr(request)


def error_response(
    _request: LeaderAndIsrRequest, code: ErrorCode, _version: int
) -> LeaderAndIsrResponse:
    """The error for the whole message."""
    return LeaderAndIsrResponse(error_code=code)
