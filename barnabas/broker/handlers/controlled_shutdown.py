"""ControlledShutdown (key 7), between brokers only: a broker moves its leaderships and stops.

Version 1 is not served: it has no broker epoch, so a delayed request of an earlier run would count.
"""

from barnabas.broker.controller.controller import Controller
from barnabas.broker.security.rights import OF_BROKERS
from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.soon import in_task
from barnabas.protocol.messages.controlled_shutdown import (
    API,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from barnabas.protocol.steps import Steps

__all__ = ["API", "RIGHTS", "handle"]

RIGHTS = OF_BROKERS


def handle(
    controller: Controller,
    request: ControlledShutdownRequest,
    _context: RequestContext,
) -> Steps[ControlledShutdownResponse]:
    """Ask the controller, which must be this broker."""
    asked = controller.controlled_shutdown(request.broker_id, request.broker_epoch)
    remaining = yield in_task(asked)
    return ControlledShutdownResponse(
        remaining_partitions=[
            RemainingPartition(topic_name=at.topic, partition_index=at.partition)
            for at in remaining
        ]
    )
