"""UpdateMetadata (key 6), between brokers only: the controller announces brokers and partitions.

Versions before 7 are not served: they have no topic ids.
"""

from barnabas.broker.cluster.control_receiver import ControlReceiver
from barnabas.broker.security.rights import OF_BROKERS
from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.soon import Soon, in_task
from barnabas.protocol.messages.update_metadata import (
    API,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)

__all__ = ["API", "RIGHTS", "handle"]

RIGHTS = OF_BROKERS


def handle(
    receiver: ControlReceiver,
    request: UpdateMetadataRequest,
    _context: RequestContext,
) -> Soon[UpdateMetadataResponse]:
    """Apply the message of the active controller."""
    return in_task(receiver.update_metadata(request))
