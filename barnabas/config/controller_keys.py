"""Broker keys of the controller: leader balance and controlled shutdown."""

from barnabas.config.declare import boolean, integer, long
from barnabas.config.table import Table


class ControllerKeys(Table):
    """Keys of the preferred leader balance; only the active controller uses them."""

    auto_leader_rebalance_enable = boolean(
        True, "Let the controller move leaderships back to preferred replicas automatically."
    )
    leader_imbalance_check_interval_seconds = long(
        300, "Interval at which the controller checks the balance of leaderships.", at_least=1
    )
    leader_imbalance_per_broker_percentage = integer(
        10,
        "Percentage of the partitions preferring a broker that may be led by others; above it"
        " the controller moves leaderships back to that broker.",
    )


class ShutdownKeys(Table):
    """Keys of controlled shutdown: a broker hands over its leaderships before it stops."""

    controlled_shutdown_enable = boolean(
        True, "Move a broker's leaderships to other brokers before it stops."
    )
    controlled_shutdown_max_retries = integer(
        3,
        "Number of retries of a controlled shutdown while leaderships can still be moved.",
        at_least=0,
    )
    controlled_shutdown_retry_backoff_ms = integer(5000, "Pause before a retry.", at_least=0)
