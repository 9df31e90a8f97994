"""ControlledShutdown (key 7), between brokers only: a broker moves its leaderships and stops.

Version 1 is not served: it has no broker epoch, so a delayed request of an earlier run would count.
"""

from barnabas.broker.controller.controller import Controller
from barnabas.broker.security.rights import OF_BROKERS
from barnabas.broker.server.context import RequestContext
from barnabas.protocol.messages.controlled_shutdown import (
    API,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)

__all__ = ["API", "RIGHTS", "handle"]

RIGHTS = OF_BROKERS


async def handle(
    controller: Controller,
    request: ControlledShutdownRequest,
    _context: RequestContext,
) -> ControlledShutdownResponse:
    """Ask the controller, which must be this broker."""
    remaining = await controller.controlled_shutdown(request.broker_id, request.broker_epoch)
    return ControlledShutdownResponse(
        remaining_partitions=[
            RemainingPartition(topic_name=at.topic, partition_index=at.partition)
            for at in remaining
        ]
    )
