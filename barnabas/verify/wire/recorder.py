"""The recorder of an operation: it retries, and writes invocation and outcome to the history."""

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from barnabas.client.cluster import Cluster
from barnabas.client.connection import BrokerUnreachable
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.verify.history import History

T = TypeVar("T")

PATIENCE: Final = 30.0
"""Seconds for which an operation is retried: longer than the restart of a broker."""

_MAYBE_WRITTEN: Final = frozenset(
    (
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        # Also the error of a produce that waited for replicas during a leader change (KAFKA-13574).
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    )
)


class OperationFailed(Exception):
    """The operation failed, or its outcome is unknown; the history has the details."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.code = error.code if isinstance(error, KafkaError) else None


class Recorder:
    """A recorder of the operations of one process."""

    def __init__(
        self, history: History, cluster: Cluster, proc: str, *, patience: float = PATIENCE
    ) -> None:
        self.history = history
        self.cluster = cluster
        self.proc = proc
        self._patience = patience

    async def do(
        self,
        f: str,
        value: dict[str, Any],
        work: Callable[[], Awaitable[T]],
        describe: Callable[[T], dict[str, Any]],
    ) -> T:
        """Run `work` until it succeeds or is refused for good; raises OperationFailed.

        After an attempt without a response a refusal is uncertain: that attempt may have succeeded.
        """
        op = self.history.invoke(self.proc, f, value)
        in_doubt = False

        async def attempt() -> T:
            nonlocal in_doubt
            try:
                return await work()
            except (BrokerUnreachable, TimeoutError):
                in_doubt = True
                raise
            except KafkaError as error:
                # The record may be in the log nevertheless.
                in_doubt |= error.code in _MAYBE_WRITTEN
                raise

        try:
            result = await self.cluster.retrying(attempt, timeout=self._patience)
        except KafkaError as error:
            certain = not in_doubt and not error.code.retriable
            (self.history.fail if certain else self.history.info)(op, error.code.name)
            raise OperationFailed(error) from error
        except (BrokerUnreachable, TimeoutError) as error:
            self.history.info(op, type(error).__name__)
            raise OperationFailed(error) from error
        self.history.ok(op, describe(result))
        return result
