"""AlterPartition (key 56), between brokers only: the controller accepts or refuses a new ISR."""

from barnabas.broker.controller.controller import Controller
from barnabas.broker.security.rights import OF_BROKERS
from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.soon import Soon, in_task
from barnabas.protocol.messages.alter_partition import (
    API,
    AlterPartitionRequest,
    AlterPartitionResponse,
)

__all__ = ["API", "RIGHTS", "handle"]

RIGHTS = OF_BROKERS


def handle(
    controller: Controller,
    request: AlterPartitionRequest,
    _context: RequestContext,
) -> Soon[AlterPartitionResponse]:
    """Ask the controller, which must be this broker."""
    return in_task(controller.alter_partition(request))
