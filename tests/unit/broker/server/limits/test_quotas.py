"""Rates and token buckets as Kafka's, the levels of quotas, and charges of requests."""

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.server.limits.quotas import (
    DEFAULT,
    MAX_METERS,
    Charge,
    ClientQuotas,
    Entity,
    Periods,
    Quota,
    Rate,
    TokenBucket,
    timed,
)
from barnabas.metrics.catalogue import QuotaMetrics
from barnabas.metrics.registry import Registry
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.steps import Steps

EVENTS = st.lists(st.tuples(st.integers(0, 3_000), st.integers(1, 10_000)), max_size=40)


class Clock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Peer:
    """A connection that notes for how long it is throttled."""

    def __init__(self) -> None:
        self.throttled: list[float] = []

    def throttle(self, seconds: float) -> None:
        self.throttled.append(seconds)


class Clients:
    """Quotas of clients on a clock of the test."""

    def __init__(self, periods: Periods = Periods()) -> None:  # noqa: B008
        self.clock = Clock()
        self.metrics = QuotaMetrics(Registry())
        self.quotas = ClientQuotas(self.clock, periods, self.metrics)
        self.peer = Peer()

    def limit(self, entity: Entity, **limits: float) -> None:
        self.quotas.limit(entity, {Quota[name.upper()]: each for name, each in limits.items()})

    def charge(self, user: str = "alice", client_id: str = "app") -> Charge:
        charge = self.quotas.charge(user, client_id, self.peer, self.clock.now)
        assert charge is not None
        return charge


def kafka_rate(
    events: list[tuple[float, float]], now: float, windows: int, each: float
) -> tuple[float, float]:
    """Return the rate, and the seconds that it stands for, as Kafka's Rate over SampledStat defines
    them, from all events."""
    samples: list[tuple[float, float]] = []
    for at, amount in events:
        samples = [(start, sum_) for start, sum_ in samples if at - start < windows * each]
        if samples and at - samples[-1][0] < each:
            samples[-1] = (samples[-1][0], samples[-1][1] + amount)
        else:
            samples.append((at, amount))
    samples = [(start, sum_) for start, sum_ in samples if now - start < windows * each]
    elapsed = now - samples[0][0] if samples else 0.0
    full = int(elapsed / each)
    if full < windows - 1:
        elapsed += (windows - 1 - full) * each
    elapsed = max(elapsed, 0.001)
    return sum(sum_ for _, sum_ in samples) / elapsed, elapsed


@given(EVENTS, st.integers(1, 12), st.sampled_from([1, 2]), st.integers(1, 100_000))
def test_throttle_is_the_one_of_kafkas_rate(
    events: list[tuple[int, int]], windows: int, seconds: int, limit: int
) -> None:
    rate, now, history = Rate(windows, seconds), 0.0, []
    rate.limit = limit
    for pause_ms, amount in events:
        now += pause_ms / 1000
        rate.record(amount, now)
        history.append((now, amount))
        expected, span = kafka_rate(history, now, windows, seconds)
        throttle_s = max(0.0, (expected / limit - 1) * span)
        assert rate.throttle_s(now) == pytest.approx(throttle_s, abs=1e-9)


@given(st.integers(10, 5_000), st.integers(1, 5_000), st.integers(20, 60))
def test_client_that_waits_keeps_to_its_rate(limit: int, size: int, seconds: int) -> None:
    size = min(size, limit)
    rate, now, sent = Rate(11, 1), 0.0, 0
    rate.limit = limit
    while now < seconds:
        rate.record(size, now)
        sent += size
        now += max(rate.throttle_s(now), 0.05)
    assert sent <= 1.1 * limit * (now + 11) + size
    assert sent >= min(limit, size / 0.05) * (seconds - 11) * 0.8


def test_burst_is_what_all_windows_but_one_allow() -> None:
    rate = Rate(11, 1)
    rate.limit = 100
    rate.record(rate.burst, 0)
    assert rate.throttle_s(0) == 0
    rate.record(100, 0)
    assert rate.throttle_s(0) == pytest.approx(1)


@given(EVENTS, st.integers(1, 100), st.integers(1, 12))
def test_tokens_return_at_the_limit(
    events: list[tuple[int, int]], limit: int, windows: int
) -> None:
    bucket, now = TokenBucket(windows, 1), 1000.0
    bucket.limit = limit
    balance = float(limit * windows)
    for pause_ms, tokens in events:
        now += pause_ms / 1000
        balance = min(limit * windows, balance + limit * pause_ms / 1000) - tokens
        bucket.take(tokens, now)
        assert bucket.throttle_s(now) == pytest.approx(max(0.0, -balance / limit), abs=1e-6)


NAMES = ("alice", "bob", DEFAULT)


@given(
    st.dictionaries(
        st.builds(Entity, st.sampled_from([*NAMES, None]), st.sampled_from([*NAMES, None])).filter(
            lambda entity: entity != Entity()
        ),
        st.integers(1, 1000),
        max_size=12,
    ),
    st.sampled_from(["alice", "carol"]),
    st.sampled_from(["bob", "dave"]),
)
def test_most_specific_level_applies(limits: dict[Entity, int], user: str, client_id: str) -> None:
    clients = Clients()
    for entity, limit in limits.items():
        clients.limit(entity, produce=limit)
    expected = next(
        (
            limits[entity]
            for entity in (
                Entity(user, client_id), Entity(user, DEFAULT), Entity(user, None),
                Entity(DEFAULT, client_id), Entity(DEFAULT, DEFAULT), Entity(DEFAULT, None),
                Entity(None, client_id), Entity(None, DEFAULT),
            )
            if entity in limits
        ),
        None,
    )  # fmt: skip
    charge = clients.quotas.charge(user, client_id, clients.peer, clients.clock.now)
    if expected is None:
        assert charge is None
        return
    assert charge is not None
    charge.produced(expected * 10)
    assert charge.settle() == 0
    clients.charge(user, client_id).produced(expected)
    more = clients.charge(user, client_id)
    more.produced(expected)
    assert more.settle() == 2000


def test_limit_of_all_others_is_for_each_of_them() -> None:
    clients = Clients()
    clients.limit(Entity(DEFAULT), produce=100)
    for user, client_id in product(("u1", "u2"), ("c1", "c2")):
        charge = clients.charge(user, client_id)
        charge.produced(600)
        assert (charge.settle() > 0) == (client_id == "c2")


def test_every_quota_has_its_own_level() -> None:
    clients = Clients()
    clients.limit(Entity("alice"), produce=100)
    clients.limit(Entity(client_id="app"), fetch=100, produce=1)
    charge = clients.charge()
    charge.produced(1000)
    assert charge.max_fetch == 1000
    assert charge.settle() == 0


def test_clients_without_limits_are_not_charged() -> None:
    clients = Clients()
    assert clients.quotas.charge("alice", "app", clients.peer, clients.clock.now) is None
    clients.limit(Entity("bob"), produce=1)
    assert clients.quotas.charge("alice", "app", clients.peer, clients.clock.now) is None
    clients.limit(Entity("alice"), produce=1)
    assert clients.charge() is not None
    clients.limit(Entity("alice"))
    assert clients.quotas.charge("alice", "app", clients.peer, clients.clock.now) is None


def test_changed_limit_keeps_the_measured_rate() -> None:
    clients = Clients()
    clients.limit(Entity("alice"), produce=1000)
    clients.charge().produced(5000)
    clients.limit(Entity("alice"), produce=100)
    charge = clients.charge()
    charge.produced(0)
    assert charge.settle() == 40_000
    assert clients.peer.throttled == [40]


def test_throttle_is_charged_once() -> None:
    clients = Clients()
    clients.limit(Entity("alice"), produce=100)
    charge = clients.charge()
    charge.produced(2000)
    assert charge.settle() == charge.settle() == 10_000
    assert clients.peer.throttled == [10]
    assert clients.metrics.throttled.cell("producer_byte_rate").value == 1
    assert clients.metrics.throttle_ms.cell("producer_byte_rate").value == 10_000


def test_answer_that_is_not_sent_is_not_counted() -> None:
    clients = Clients()
    clients.limit(Entity("alice"), fetch=100)
    assert clients.charge().fetched(900)
    charge = clients.charge()
    assert not charge.fetched(200)
    assert charge.settle() == 1000
    assert clients.charge().fetched(100)


def test_batch_that_is_larger_than_the_limit_allows_is_sent_when_nothing_is_owed() -> None:
    clients = Clients()
    clients.limit(Entity("alice"), fetch=100)
    charge = clients.charge()
    assert charge.fetched(1500)
    assert charge.settle() == 5000
    assert not clients.charge().fetched(1500)
    clients.clock.now += 11
    assert clients.charge().fetched(1500)


def test_mutations_are_refused_once_the_tokens_are_used() -> None:
    clients = Clients(Periods(mutation_windows=2))
    clients.limit(Entity("alice"), mutation=5)
    assert clients.charge().mutate(12, strict=True) is None
    charge = clients.charge()
    error = charge.mutate(1, strict=True)
    assert error is not None
    assert error.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert charge.settle() == 400
    clients.clock.now += 0.4
    assert clients.charge().mutate(1, strict=True) is None


def test_older_clients_are_throttled_instead() -> None:
    clients = Clients(Periods(mutation_windows=2))
    clients.limit(Entity("alice"), mutation=5)
    charge = clients.charge()
    assert charge.mutate(15, strict=False) is None
    assert charge.settle() == 1000


def test_time_of_the_request_counts_without_its_waits() -> None:
    clients = Clients(Periods(windows=2))
    clients.limit(Entity("alice"), request=10)
    charge = clients.charge()
    clients.clock.now += 0.1
    charge.pause()
    clients.clock.now += 5
    charge.resume()
    clients.clock.now += 0.1
    # 20 % in a second, so that two seconds make it 10 %: one window is the most.
    assert charge.settle() == 1000


def test_time_between_steps_does_not_count() -> None:
    clients = Clients(Periods(windows=2))
    clients.limit(Entity("alice"), request=10)
    charge = clients.charge()

    def steps() -> Steps[str]:
        for _ in range(5):
            clients.clock.now += 0.01
            yield None
        return "answer"

    def driven() -> Steps[str]:
        return (yield from timed(charge, steps()))

    work = driven()
    for _ in range(5):
        next(work)
        clients.clock.now += 3
    with pytest.raises(StopIteration, match="answer"):
        next(work)
    assert charge.settle() == 0
    over = clients.charge()
    clients.clock.now += 0.06
    assert 0 < over.settle() <= 200


def test_results_and_errors_reach_timed_steps() -> None:
    clients = Clients()
    clients.limit(Entity("alice"), request=10)
    seen: list[Any] = []

    def steps() -> Steps[None]:
        seen.append((yield None))
        try:
            yield None
        except KeyError as error:
            seen.append(error)
        try:
            yield None
        finally:
            seen.append("closed")

    work = timed(clients.charge(), steps())
    next(work)
    work.send("result")  # type: ignore[arg-type]
    work.throw(KeyError("k"))
    work.close()
    assert [str(each) for each in seen] == ["result", "'k'", "closed"]


def test_extreme_limits_are_no_errors() -> None:
    clients = Clients()
    clients.limit(Entity("alice"), fetch=1e308, mutation=5e-324, produce=5e-324)
    charge = clients.charge()
    assert charge.max_fetch == 2**31 - 1
    charge.produced(1)
    assert charge.mutate(1, strict=False) is None
    assert charge.settle() == 2**31 - 1


def test_addresses_have_a_rate_of_new_connections() -> None:
    clients = Clients(Periods(windows=2))
    clients.limit(Entity(ip="10.0.0.1"), connections=2)
    clients.limit(Entity(ip=DEFAULT), connections=1)
    assert [clients.quotas.admits("10.0.0.1") for _ in range(3)] == [True, True, False]
    assert [clients.quotas.admits("10.0.0.2") for _ in range(2)] == [True, False]
    clients.clock.now += 2
    assert clients.quotas.admits("10.0.0.2")


def test_meters_that_have_nothing_to_tell_are_forgotten() -> None:
    clients = Clients()
    clients.limit(Entity(client_id=DEFAULT), produce=1000)
    for number in range(MAX_METERS + 10):
        clients.charge(client_id=f"c{number}").produced(1)
        clients.clock.now += 0.01
    assert len(clients.quotas._meters) < 2_000
