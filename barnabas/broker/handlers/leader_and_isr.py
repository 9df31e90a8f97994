"""LeaderAndIsr (key 4), between brokers only: the controller assigns leaders and followers.

Versions before 5 are not served: they have no topic ids.
"""

from barnabas.broker.cluster.control_receiver import ControlReceiver
from barnabas.broker.security.rights import OF_BROKERS
from barnabas.broker.server.context import RequestContext
from barnabas.coordinator.soon import Soon, in_task
from barnabas.protocol.messages.leader_and_isr import API, LeaderAndIsrRequest, LeaderAndIsrResponse

__all__ = ["API", "RIGHTS", "handle"]

RIGHTS = OF_BROKERS


def handle(
    receiver: ControlReceiver,
    request: LeaderAndIsrRequest,
    _context: RequestContext,
) -> Soon[LeaderAndIsrResponse]:
    """Apply the message of the active controller."""
    return in_task(receiver.leader_and_isr(request))
