"""StopReplica (key 5), between brokers only: the controller stops or deletes replicas.

Versions before 3 are not served: without leader epochs a late message cannot be recognized.
"""

from barnabas.broker.cluster.control_receiver import ControlReceiver
from barnabas.broker.security.rights import OF_BROKERS
from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.soon import Soon, in_task
from barnabas.protocol.messages.stop_replica import API, StopReplicaRequest, StopReplicaResponse

__all__ = ["API", "RIGHTS", "handle"]

RIGHTS = OF_BROKERS


def handle(
    receiver: ControlReceiver,
    request: StopReplicaRequest,
    _context: RequestContext,
) -> Soon[StopReplicaResponse]:
    """Apply the message of the active controller."""
    return in_task(receiver.stop_replica(request))
