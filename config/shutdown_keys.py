"""Broker keys of controlled shutdown."""

from barnabas.config.declare import boolean, integer
from barnabas.config.table import Table


class ShutdownKeys(Table):
    """How a broker of a cluster hands its leaderships over before it stops."""

    controlled_shutdown_enable = boolean(
        True, "Whether a broker that is to stop lets others lead first."
    )
    controlled_shutdown_max_retries = integer(
        3, "How often it asks the controller, while there is something that may move.", at_least=0
    )
    controlled_shutdown_retry_backoff_ms = integer(
        5000, "Milliseconds before it asks again.", at_least=0
    )
