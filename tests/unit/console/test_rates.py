"""Rates of topics and brokers, between two samples."""

import pytest

from barnabas.console import rates as module
from barnabas.console.rates import PERIOD_S, UNKNOWN, Rate, Rates
from barnabas.protocol.errors import ErrorCode, KafkaError

TEXT = """# HELP x Bytes.
kafka_server_brokertopicmetrics_messagesin_total{{topic="a.b"}} {0}
kafka_server_brokertopicmetrics_bytesin_total{{topic="a.b"}} {1}
kafka_server_brokertopicmetrics_bytesout_total{{topic="a.b"}} {2}
kafka_server_brokertopicmetrics_bytesin_total{{topic="other"}} 5e+06
kafka_server_brokertopicmetrics_bytesrejected_total{{topic="a.b"}} 77.0
"""


class Brokers:
    """Brokers with counters, as a cluster and as its endpoints."""

    def __init__(self) -> None:
        self.nodes = {1: None, 2: None}
        self.counts = {1: (0.0, 0.0, 0.0), 2: (0.0, 0.0, 0.0)}
        self.silent: set[int] = set()
        self.asked = 0
        self.time = 100.0
        self.rates = Rates(self, self, lambda: self.time)  # type: ignore[arg-type]

    async def refresh(self, _topics: object) -> None:
        pass

    async def get(self, broker: int, path: str) -> bytes:
        assert path.count("name[]=") == 3
        self.asked += 1
        if broker in self.silent:
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return TEXT.format(*self.counts[broker]).encode()

    async def after(self, seconds: float, **counts: tuple[float, float, float]) -> None:
        self.time += seconds
        self.counts |= {int(name[1:]): each for name, each in counts.items()}
        await self.rates.sample()


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


async def test_rate_is_the_growth_between_two_samples(brokers: Brokers) -> None:
    await brokers.after(0, b1=(10, 1000, 500))
    assert brokers.rates.of_topic("a.b") == UNKNOWN
    await brokers.after(10, b1=(30, 2000, 500), b2=(10, 0, 100))
    assert brokers.rates.of_topic("a.b") == Rate(3.0, 100.0, 10.0)
    assert brokers.rates.of_broker(1) == Rate(2.0, 100.0, 0.0)
    assert brokers.rates.of_cluster() == Rate(3.0, 100.0, 10.0)
    assert brokers.rates.of_topic("other") == brokers.rates.of_topic("idle") == Rate(0, 0, 0)
    await brokers.after(20, b1=(30, 2000, 500))
    assert brokers.rates.of_cluster() == Rate(0, 0, 0)


async def test_broker_that_began_to_count_again_has_no_negative_rate(brokers: Brokers) -> None:
    await brokers.after(0, b1=(1000, 1000, 1000))
    await brokers.after(10, b1=(20, 10, 0))
    assert brokers.rates.of_broker(1) == Rate(2.0, 1.0, 0.0)


async def test_samples_are_not_taken_more_often(brokers: Brokers) -> None:
    await brokers.after(0)
    await brokers.after(1)
    assert brokers.asked == 2


async def test_silent_broker_leaves_topics_to_their_offsets(brokers: Brokers) -> None:
    await brokers.after(0)
    brokers.silent.add(2)
    await brokers.after(10, b1=(10, 10, 10))
    rates = brokers.rates
    assert not rates.are_counted
    assert rates.problems[2].startswith("CLUSTER_AUTHORIZATION_FAILED")
    assert rates.of_broker(1) == Rate(1.0, 1.0, 1.0)
    assert rates.of_broker(2) == rates.of_cluster() == rates.of_topic("a.b") == UNKNOWN
    rates.note_offsets("a.b", 100)
    brokers.time += PERIOD_S
    rates.note_offsets("a.b", 150)
    assert rates.of_topic("a.b") == Rate(5.0, None, None)
    brokers.time += 1
    rates.note_offsets("a.b", 500)
    assert rates.of_topic("a.b") == Rate(5.0, None, None)


async def test_broker_that_is_gone_is_forgotten(brokers: Brokers) -> None:
    await brokers.after(0)
    await brokers.after(10)
    del brokers.nodes[2]
    await brokers.after(10)
    assert brokers.rates.of_broker(2) == UNKNOWN
    assert brokers.rates.are_counted


def test_offsets_of_few_topics_are_kept(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_TOPICS", 2)
    for each in ("first", "second", "third"):
        brokers.rates.note_offsets(each, 0)
    brokers.time += PERIOD_S
    for each in ("first", "third"):
        brokers.rates.note_offsets(each, 10)
    assert brokers.rates.of_topic("first") == UNKNOWN
    assert brokers.rates.of_topic("third").records_in == 1.0
