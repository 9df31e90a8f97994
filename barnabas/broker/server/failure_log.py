"""The log of connections that the broker closes, such as those that fail to authenticate.

A stranger opens hundreds of them in a second, so that a line for each would fill the disk.
"""

import asyncio

from barnabas.broker.observability.logging import get_logger
from barnabas.broker.server.connection import Connection
from barnabas.metrics.registry import Cell

_LEAST_S = 1.0
"""The least seconds between two lines."""
_log = get_logger(__name__)


class FailureLog:
    """A log of one kind of failure: each is counted, and one line a second is written."""

    def __init__(self, event: str, failures: Cell | None = None) -> None:
        """`failures` is the metric that counts them, if there is one."""
        self._event = event
        self._failures = failures
        self._not_logged = 0
        self._log_after = 0.0

    def failed(self, connection: Connection, reason: str) -> None:
        """Count a failure; log it, unless another one has been logged just now."""
        if self._failures is not None:
            self._failures.value += 1
        now = asyncio.get_running_loop().time()
        if now < self._log_after:
            self._not_logged += 1
            return
        _log.warning(
            self._event,
            host=connection.host,
            listener=connection.listener,
            reason=reason,
            not_logged=self._not_logged,
        )
        self._not_logged, self._log_after = 0, now + _LEAST_S
