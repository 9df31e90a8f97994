"""The quotas of clients: limits on what a user or a client id takes of this broker (KIP-13,
KIP-124, KIP-219, KIP-599). Pure: the clock is a parameter, and a connection throttles itself.

A client that is over a limit gets its response at once, with the time in ms for which it should
wait, and its connection begins no request during that time. Clients for which no limit is set cost
nothing: `ClientQuotas.charge` returns None for them. Times without a unit are in seconds of the
monotonic clock.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from barnabas.metrics.catalogue import QuotaMetrics
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.steps import Steps

T = TypeVar("T")
DEFAULT: Final = ""
"""The name of the entity that stands for all others of its type; no entity has an empty name."""
MAX_METERS: Final = 10_000
"""The meters after which those are forgotten that have nothing to tell."""
_INT_MAX: Final = 2**31 - 1
_PERCENT: Final = 100
_SHORTEST_S: Final = 0.001
"""The shortest time over which a rate is measured."""


class Quota(Enum):
    """A resource that quotas limit; the value is the key of the configuration."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUEST = "request_percentage"
    MUTATION = "controller_mutation_rate"
    CONNECTIONS = "connection_creation_rate"


_NONE: Final[Mapping[Quota, float]] = MappingProxyType({})


class Entity(NamedTuple):
    """The owner of limits: a user, a client id, both, or an address. DEFAULT is all others; None
    is no part of the entity."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None


class Rate:
    """The rate of one client, and its limit per second.

    It is measured over the last windows of time, the current one included.
    """

    def __init__(self, windows: int, seconds: float) -> None:
        """Keep `windows` windows of `seconds` each."""
        self._windows = windows
        self._seconds = seconds
        self.limit = math.inf
        self._amounts: deque[list[float]] = deque()
        """The start of each window, and its amount."""
        self._total = 0.0
        self._next_s = -math.inf
        """The time at which a window begins or ends, at the earliest."""

    def record(self, amount: float, now: float) -> float:
        """Record an amount; return the seconds after which the rate is the limit again, if nothing
        is added. A negative amount takes an earlier one back."""
        if now >= self._next_s:
            self._begin_window(now)
        self._amounts[-1][1] += amount
        self._total = total = self._total + amount
        # All windows but one count as full at least.
        return 0.0 if total <= self.burst else self.throttle_s(now)

    def throttle_s(self, now: float) -> float:
        """Return the seconds after which the rate is the limit again, if nothing is added.

        As in Kafka, all windows but one count as full from the beginning.
        """
        self._expire(now)
        elapsed = now - self._amounts[0][0] if self._amounts else 0.0
        missing = max(0, self._windows - 1 - int(elapsed / self._seconds))
        span = max(elapsed + missing * self._seconds, _SHORTEST_S)
        return max(0.0, self._total / self.limit - span)

    @property
    def limit(self) -> float:
        return self._limit

    @limit.setter
    def limit(self, limit: float) -> None:
        self._limit = limit
        self.burst = limit * max(self._windows - 1, 0) * self._seconds
        """The amount that is within the limit after a pause."""

    def is_idle(self, now: float) -> bool:
        """Whether nothing would be lost with this object."""
        self._expire(now)
        return self._total == 0

    def _begin_window(self, now: float) -> None:
        self._expire(now)
        amounts = self._amounts
        if not amounts or now - amounts[-1][0] >= self._seconds:
            amounts.append([now, 0])
        next_s = amounts[-1][0] + self._seconds
        self._next_s = min(next_s, amounts[0][0] + self._windows * self._seconds)

    def _expire(self, now: float) -> None:
        amounts = self._amounts
        while amounts and now - amounts[0][0] >= self._windows * self._seconds:
            self._total -= amounts.popleft()[1]
        if not amounts:
            self._total = 0.0
            self._next_s = -math.inf


class TokenBucket:
    """Tokens for operations that come in bursts, as many per second as the limit (KIP-599).

    An operation takes its tokens also if there are fewer: the balance becomes negative, and the
    next one waits until it is not.
    """

    def __init__(self, windows: int, seconds: float) -> None:
        self.limit = math.inf
        self._capacity_s = windows * seconds
        self._tokens = math.inf
        self._refilled_at = 0.0

    def take(self, tokens: float, now: float) -> None:
        self._refill(now)
        self._tokens -= tokens

    def throttle_s(self, now: float) -> float:
        """Return the seconds until the balance is not negative."""
        self._refill(now)
        return max(0.0, -self._tokens / self.limit)

    def is_idle(self, now: float) -> bool:
        """Whether nothing would be lost with this object."""
        self._refill(now)
        return self._tokens >= self.limit * self._capacity_s

    def _refill(self, now: float) -> None:
        gained = self.limit * (now - self._refilled_at)
        self._tokens = min(self.limit * self._capacity_s, self._tokens + gained)
        self._refilled_at = now


Meter = Rate | TokenBucket


class Periods(NamedTuple):
    """The number and the length of windows in seconds, of rates and of token buckets."""

    windows: int = 11
    seconds: float = 1.0
    mutation_windows: int = 11
    mutation_seconds: float = 1.0

    def rate(self) -> Rate:
        """Return a new rate."""
        return Rate(self.windows, self.seconds)

    def meter(self, quota: Quota) -> Meter:
        """Return a new meter."""
        if quota is Quota.MUTATION:
            return TokenBucket(self.mutation_windows, self.mutation_seconds)
        return self.rate()


class Meters(NamedTuple):
    """The meters of one client; None for what is not limited."""

    produce: Rate | None
    fetch: Rate | None
    request: Rate | None
    mutation: TokenBucket | None


class Throttled(Protocol):
    """A connection, as quotas use it."""

    def throttle(self, seconds: float, /) -> None:
        """Begin no request for some seconds."""
        ...


class Charge:
    """The charge of one request to its client's meters."""

    # Class attributes, because each assignment costs, and most requests need no other values.
    _throttle_s = 0.0
    _quota = Quota.REQUEST
    """The quota for which the client waits longest."""
    _settled_ms = -1
    _spent_s = 0.0

    def __init__(
        self, owner: "ClientQuotas", meters: Meters, connection: Throttled, began: float
    ) -> None:
        """The event loop works for the request since the time `began`."""
        self._owner = owner
        self._meters = meters
        self._connection = connection
        self._resumed_at = began

    def resume(self) -> None:
        """Count the time from now on: the event loop works for the request. It does so at first."""
        self._resumed_at = self._owner.monotonic()

    def pause(self) -> None:
        """Count no time: the request waits."""
        self._spent_s += self._owner.monotonic() - self._resumed_at

    @property
    def max_fetch(self) -> int:
        """The bytes that a response to a Fetch may have: more would never be within the limit."""
        fetch = self._meters.fetch
        return _INT_MAX if fetch is None else int(min(fetch.burst, _INT_MAX))

    def produced(self, size: int) -> None:
        """Charge the bytes of a Produce request, when it has arrived."""
        produce = self._meters.produce
        if produce is not None:
            throttle_s = produce.record(size, self._resumed_at)
            if throttle_s:
                self._wait(Quota.PRODUCE, throttle_s)

    def fetched(self, size: int) -> bool:
        """Charge the bytes of a response to a Fetch; return False if it has to be empty instead.

        The bytes of a response that is not sent are not counted. A batch that is larger than the
        limit ever allows is sent when nothing is owed, or its consumer would get no further.
        """
        fetch = self._meters.fetch
        if fetch is None:
            return True
        now = self._owner.monotonic()
        is_owed = fetch.throttle_s(now) > 0
        throttle_s = fetch.record(size, now)
        if throttle_s <= 0:
            return True
        self._wait(Quota.FETCH, throttle_s)
        if size > fetch.burst and not is_owed:
            return True
        fetch.record(-size, now)
        return False

    def mutate(self, partitions: int, *, strict: bool) -> KafkaError | None:
        """Charge partitions that are created or deleted.

        A strict charge returns THROTTLING_QUOTA_EXCEEDED if the client is over its limit already,
        and charges nothing; clients that do not know the error are throttled alone.
        """
        bucket = self._meters.mutation
        if bucket is None:
            return None
        now = self._owner.monotonic()
        exceeded_s = bucket.throttle_s(now)
        if strict and exceeded_s > 0:
            self._wait(Quota.MUTATION, exceeded_s)
            return KafkaError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded."
            )
        bucket.take(partitions, now)
        if not strict:
            self._wait(Quota.MUTATION, bucket.throttle_s(now))
        return None

    def owes_mutations(self, throttle_ms: int) -> None:
        """Let the client wait for mutations that another broker has charged."""
        self._wait(Quota.MUTATION, throttle_ms / 1000)

    def settle(self) -> int:
        """Charge the time of the request and throttle the connection; return that time in ms.

        A second call returns the same.
        """
        if self._settled_ms < 0:
            request = self._meters.request
            if request is not None:
                now = self._owner.monotonic()
                spent_s = self._spent_s + now - self._resumed_at
                throttle_s = request.record(spent_s * _PERCENT, now)
                if throttle_s:
                    # As in Kafka, one window at most.
                    self._wait(Quota.REQUEST, min(throttle_s, self._owner.periods.seconds))
            self._settled_ms = self._throttle() if self._throttle_s else 0
        return self._settled_ms

    def _wait(self, quota: Quota, seconds: float) -> None:
        """Let the client wait for some seconds, if no other quota lets it wait longer."""
        if seconds > self._throttle_s:
            self._quota, self._throttle_s = quota, seconds

    def _throttle(self) -> int:
        throttle_ms = round(min(self._throttle_s * 1000, _INT_MAX))
        if throttle_ms:
            self._owner.count(self._quota, throttle_ms)
            self._connection.throttle(throttle_ms / 1000)
        return throttle_ms


def timed(charge: Charge, steps: Steps[T]) -> Steps[T]:
    """Do the steps of a request; their time counts, but not the time between them."""
    charge.pause()
    step = partial(next, steps)
    while True:
        charge.resume()
        try:
            awaited = step()
        except StopIteration as stop:
            result: T = stop.value
            return result
        finally:
            charge.pause()
        try:
            step = partial(steps.send, (yield awaited))
        except GeneratorExit:
            steps.close()
            raise
        except BaseException as error:
            step = partial(steps.throw, error)


class ClientQuotas:
    """The limits of all clients, and the meters of those that are limited."""

    def __init__(
        self, monotonic: Callable[[], float], periods: Periods, metrics: QuotaMetrics
    ) -> None:
        """`monotonic` returns seconds."""
        self.monotonic = monotonic
        self.periods = periods
        self.limits: dict[Entity, Mapping[Quota, float]] = {}
        """The limits that are set, by entity. Change them by `limit`."""
        self._metrics = metrics
        self._clients: dict[tuple[str, str], Meters | None] = {}
        self._meters: dict[tuple[Quota, str | None, str | None], Meter] = {}
        self._forget_beyond = MAX_METERS

    def limit(self, entity: Entity, limits: Mapping[Quota, float]) -> None:
        """Set all limits of an entity; none, if there are none."""
        if limits:
            self.limits[entity] = limits
        else:
            self.limits.pop(entity, None)
        self._clients.clear()

    def charge(
        self, user: str, client_id: str, connection: Throttled, began: float
    ) -> Charge | None:
        """Return the charge of a request that began at a time; None for a client without limits."""
        try:
            meters = self._clients[user, client_id]
        except KeyError:
            if len(self._clients) >= MAX_METERS:
                self._clients.clear()
            meters = self._clients[user, client_id] = self._of_client(user, client_id)
        return None if meters is None else Charge(self, meters, connection, began)

    def admits(self, host: str) -> bool:
        """Count a new connection of an address; return False if it has too many of late (KIP-612).

        A refused one is not counted.
        """
        if not self.limits:
            return True
        for name in (host, DEFAULT):
            limit = self.limits.get(Entity(ip=name), _NONE).get(Quota.CONNECTIONS)
            if limit is not None:
                rate = self._meter_of((Quota.CONNECTIONS, host, None), limit)
                now = self.monotonic()
                if rate.record(1, now) <= 0:
                    return True
                rate.record(-1, now)
                return False
        return True

    def count(self, quota: Quota, throttle_ms: int) -> None:
        """Count a throttled request."""
        self._metrics.throttled.cell(quota.value).value += 1
        self._metrics.throttle_ms.cell(quota.value).value += throttle_ms

    def _of_client(self, user: str, client_id: str) -> Meters | None:
        produce, fetch, request, mutation = (
            self._meter(quota, user, client_id)
            for quota in (Quota.PRODUCE, Quota.FETCH, Quota.REQUEST, Quota.MUTATION)
        )
        if not (produce or fetch or request or mutation):
            return None
        return Meters(produce, fetch, request, mutation)

    def _meter(self, quota: Quota, user: str, client_id: str) -> Any:
        """Return the meter that the most specific limit has for a client; None without a limit."""
        for entity in _levels(user, client_id):
            limit = self.limits.get(entity, _NONE).get(quota)
            if limit is not None:
                # A default is a limit for each of the others, not for all of them together.
                key = (
                    quota,
                    None if entity.user is None else user,
                    None if entity.client_id is None else client_id,
                )
                return self._meter_of(key, limit)
        return None

    def _meter_of(self, key: tuple[Quota, str | None, str | None], limit: float) -> Any:
        meter = self._meters.get(key)
        if meter is None:
            self._forget_idle()
            meter = self._meters[key] = self.periods.meter(key[0])
        meter.limit = limit
        return meter

    def _forget_idle(self) -> None:
        if len(self._meters) >= self._forget_beyond:
            now = self.monotonic()
            self._meters = {
                key: each for key, each in self._meters.items() if not each.is_idle(now)
            }
            self._forget_beyond = max(MAX_METERS, 2 * len(self._meters))


def _levels(user: str, client_id: str) -> Iterator[Entity]:
    """Yield the entities that a client belongs to, the most specific first (KIP-55)."""
    for of_user in (user, DEFAULT):
        yield Entity(of_user, client_id)
        yield Entity(of_user, DEFAULT)
        yield Entity(of_user)
    yield Entity(None, client_id)
    yield Entity(None, DEFAULT)
