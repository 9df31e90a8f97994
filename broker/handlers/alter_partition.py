"""AlterPartition (key 56), between brokers only: the controller judges proposed in-sync sets."""

from barnabas.broker.controller.controller import Controller
from barnabas.broker.server.context import RequestContext
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.alter_partition import (
    API,
    AlterPartitionRequest,
    AlterPartitionResponse,
)

__all__ = ["API", "SERVES", "AlterPartitionHandler", "error_response"]

SERVES = range(2, 4)


class AlterPartitionHandler:
    """Asks the controller, which must be this broker."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    async def handle(
        self,
        request: AlterPartitionRequest,
        context: RequestContext,  # noqa: ARG002
    ) -> AlterPartitionResponse:
        return await self._controller.alter_partition(request)


def error_response(
    _request: AlterPartitionRequest, code: ErrorCode, _version: int
) -> AlterPartitionResponse:
    """The error for all of it."""
    return AlterPartitionResponse(error_code=code)
