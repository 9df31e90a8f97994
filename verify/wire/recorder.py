"""One operation, from before it is sent until its outcome is known, or known to be unknown."""

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from barnabas.client.cluster import Cluster
from barnabas.client.connection import BrokerUnreachable
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.verify.history import History

T = TypeVar("T")

PATIENCE: Final = 30.0
"""How long an operation is tried, in s: longer than a broker needs to come back."""

_MAYBE_WRITTEN: Final = frozenset(
    (
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        # Who waited for replicas is told so when the leader changes (KAFKA-13574).
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    )
)


class NotDone(Exception):
    """The operation did not come to a good end; the history says how."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.code = error.code if isinstance(error, KafkaError) else None


class Recorder:
    """Tries operations of one process, and writes down what became of each."""

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
        told: Callable[[T], dict[str, Any]],
    ) -> T:
        """Runs `work` until it succeeds or is refused for good; raises NotDone.

        Refused after an attempt whose answer was lost means nothing certain: that attempt may have
        done it.
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
                # It may be in the log all the same.
                in_doubt |= error.code in _MAYBE_WRITTEN
                raise

        try:
            result = await self.cluster.retrying(attempt, timeout=self._patience)
        except KafkaError as error:
            certain = not in_doubt and not error.code.retriable
            (self.history.fail if certain else self.history.info)(op, error.code.name)
            raise NotDone(error) from error
        except (BrokerUnreachable, TimeoutError) as error:
            self.history.info(op, type(error).__name__)
            raise NotDone(error) from error
        self.history.ok(op, told(result))
        return result
