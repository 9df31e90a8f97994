"""Broker keys of the controller: when leaderships return to the brokers that should have them."""

from barnabas.config.declare import boolean, integer, long
from barnabas.config.table import Table


class ControllerKeys(Table):
    """They matter on the broker that is the controller."""

    auto_leader_rebalance_enable = boolean(
        True, "Whether the controller gives leaderships back to preferred replicas by itself."
    )
    leader_imbalance_check_interval_seconds = long(
        300, "How often it looks whether leaderships are out of balance.", at_least=1
    )
    leader_imbalance_per_broker_percentage = integer(
        10,
        "A broker's leaderships are given back when more than so many of the partitions that "
        "prefer it are led by others, in percent.",
    )
