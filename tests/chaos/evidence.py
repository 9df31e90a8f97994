"""The evidence that a fault had an effect."""

from typing import Final

from tests.chaos.cluster import ChaosCluster

LEADER: Final = "leader"
FOLLOWER: Final = "follower"
TRANSACTIONS: Final = "transaction coordinator"
GROUPS: Final = "group coordinator"
CONTROLLER: Final = "controller"
ROLES: Final = (LEADER, FOLLOWER, TRANSACTIONS, GROUPS, CONTROLLER)


class Evidence:
    """One strike: whom it hit, and what was seen of it."""

    def __init__(self, leaders: dict[int, int], controller: int) -> None:
        """`leaders` of the probe's partitions and the controller, as they were before."""
        self.leaders = leaders
        self.controller = controller
        self.struck: set[int] = set()
        self.seen: list[str] = []
        self.faults = 0

    def strikes(self, *nodes: int) -> None:
        self.struck.update(nodes)

    def saw(self, holds: bool, what: str) -> None:
        """Something that proves that a fault struck; AssertionError if it was not so."""
        assert holds, f"the fault did not strike: {what}"
        self.seen.append(what)
        self.faults += 1


def who(cluster: ChaosCluster, told: Evidence, role: str) -> int:
    """Return the broker with a role; as leader or follower one that is not the controller, if there
    is."""
    partitions = cluster.partitions()
    match role:
        case "controller":
            return told.controller
        case "transaction coordinator":
            return partitions["__transaction_state", 0].leader
        case "group coordinator":
            return partitions["__consumer_offsets", 0].leader
        case _:
            leaders = [node for node in told.leaders.values() if node != told.controller]
            leader = leaders[0]
            if role == LEADER:
                return leader
            rest = [node for node in cluster.brokers if node not in (leader, told.controller)]
            return rest[0]
