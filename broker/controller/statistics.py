"""How often leaders were elected: what the controller's metrics tell."""

from barnabas.broker.metadata.cache import NO_LEADER
from barnabas.broker.metadata.znodes import LeaderAndIsr


class ElectionCounts:
    """Of one broker, over all its terms as controller."""

    def __init__(self) -> None:
        self.elections = 0
        """Partitions that got a leader, or another one."""
        self.unclean = 0
        """Of those, by a replica that may lack what was acknowledged."""

    def decided(self, before: LeaderAndIsr | None, after: LeaderAndIsr) -> None:
        """A decision was written down."""
        if after.leader == NO_LEADER or before is None or after.leader == before.leader:
            return
        self.elections += 1
        if after.leader not in before.isr or after.leader in before.doubtful:
            self.unclean += 1
