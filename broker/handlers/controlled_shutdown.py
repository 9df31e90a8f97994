"""ControlledShutdown (key 7), between brokers only: a broker asks for leave to stop."""

from barnabas.broker.controller.controller import Controller
from barnabas.broker.server.context import RequestContext
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.controlled_shutdown import (
    API,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)

__all__ = ["API", "SERVES", "ControlledShutdownHandler", "error_response"]

SERVES = range(2, 4)
"""Version 1 names no broker epoch: it may be of an earlier run, delayed until now."""


class ControlledShutdownHandler:
    """Asks the controller, which must be this broker."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    async def handle(
        self,
        request: ControlledShutdownRequest,
        context: RequestContext,  # noqa: ARG002
    ) -> ControlledShutdownResponse:
        remaining = await self._controller.shut_down(request.broker_id, request.broker_epoch)
        return ControlledShutdownResponse(
            remaining_partitions=[
                RemainingPartition(topic_name=at.topic, partition_index=at.partition)
                for at in remaining
            ]
        )


def error_response(
    _request: ControlledShutdownRequest, code: ErrorCode, _version: int
) -> ControlledShutdownResponse:
    """The error, and no leave to stop."""
    return ControlledShutdownResponse(error_code=code)
