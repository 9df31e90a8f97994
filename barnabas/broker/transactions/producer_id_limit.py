"""The limit on the producer ids of one principal (`max.producer.ids.per.principal`).

A partition remembers a producer id for `producer.id.expiration.ms`, and cannot tell an id that a
client made up from one that another broker has given out. So an id counts where memory is used for
it: once where it is given out, and once in each partition that it is new to.

The count of a principal falls steadily, from the limit to 0 in `producer.id.expiration.ms`. At most
twice the limit is remembered at a time.
"""

from collections.abc import Callable
from typing import Final

from barnabas.broker.observability.logging import get_logger
from barnabas.broker.server.context import RequestContext
from barnabas.config.broker import BrokerConfig
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.security.principal import Principal

MAX_PRINCIPALS: Final = 10_000
"""The principals that are counted; the one that was counted first makes way for another."""
_LOG_INTERVAL_S: Final = 60.0
_log = get_logger(__name__)


class ProducerIdCount:
    """The producer ids of one principal."""

    __slots__ = ("_at", "_count")

    def __init__(self, now: float) -> None:
        """`now` is in seconds of the monotonic clock."""
        self._at = now
        self._count = 0.0

    def add(self) -> None:
        """Count one more id."""
        self._count += 1

    def current(self, per_second: float, now: float) -> float:
        """Return the count at the time `now`; it falls by `per_second`."""
        self._count = max(0.0, self._count - (now - self._at) * per_second)
        self._at = now
        return self._count


class ProducerIdLimit:
    """The counts of all principals."""

    def __init__(self, config: Callable[[], BrokerConfig], monotonic: Callable[[], float]) -> None:
        """`monotonic` returns seconds."""
        self._config = config
        self._monotonic = monotonic
        self._counts: dict[Principal, ProducerIdCount] = {}
        self._log_after = -_LOG_INTERVAL_S

    def admit(self, context: RequestContext) -> ProducerIdCount | None:
        """Return the count of the sender, to which the id is added once memory is used for it.

        None for brokers and super users, who have no limit. Raises POLICY_VIOLATION: clients report
        it to the application, while they repeat a batch that gets THROTTLING_QUOTA_EXCEEDED.
        librdkafka asks for an id again every 500 ms whatever the error is.
        """
        principal, asker = context.principal, context.asker
        if context.inter_broker or (asker is not None and asker.is_super_user(principal)):
            return None
        config, now = self._config(), self._monotonic()
        limit = config.max_producer_ids_per_principal
        count = self._counts.get(principal) or self._begin(principal, now)
        if count.current(limit * 1000 / config.producer_id_expiration_ms, now) > limit - 1:
            self._refused(context, now)
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"{principal} has used too many new producer ids of late, more than "
                "max.producer.ids.per.principal.",
            )
        return count

    def _begin(self, principal: Principal, now: float) -> ProducerIdCount:
        if len(self._counts) >= MAX_PRINCIPALS:
            del self._counts[next(iter(self._counts))]
        count = self._counts[principal] = ProducerIdCount(now)
        return count

    def _refused(self, context: RequestContext, now: float) -> None:
        """Log a refusal, once a minute."""
        if now >= self._log_after:
            self._log_after = now + _LOG_INTERVAL_S
            _log.warning(
                "producer ids refused: max.producer.ids.per.principal",
                principal=str(context.principal),
                host=context.client_host,
                client_id=context.client_id,
            )
