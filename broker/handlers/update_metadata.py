"""UpdateMetadata (key 6), between brokers only.

Versions before 7 name no topic ids, by which topics are told apart here.
"""

from barnabas.broker.controller.receiver import ControlReceiver
from barnabas.broker.server.context import RequestContext
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.update_metadata import (
    API,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)

__all__ = ["API", "SERVES", "UpdateMetadataHandler", "error_response"]

SERVES = range(7, 9)


class UpdateMetadataHandler:
    """Does what a controller in office says."""

    def __init__(self, receiver: ControlReceiver) -> None:
        self._receiver = receiver

    async def handle(
        self,
        request: UpdateMetadataRequest,
        context: RequestContext,  # noqa: ARG002
    ) -> UpdateMetadataResponse:
        return await self._receiver.update_metadata(request)


def error_response(
    _request: UpdateMetadataRequest, code: ErrorCode, _version: int
) -> UpdateMetadataResponse:
    """The error for the whole message."""
    return UpdateMetadataResponse(error_code=code)
