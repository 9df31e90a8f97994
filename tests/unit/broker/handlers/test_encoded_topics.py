"""Metadata encodes a topic once, and answers as if it encoded it for each request."""

from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.cluster.cache import FULL, INCREMENTAL, LEADER_DURING_DELETE, MetadataCache
from barnabas.broker.handlers import metadata
from barnabas.broker.server.context import RequestContext
from barnabas.protocol.codec import decode, encode
from barnabas.protocol.compile import Form
from barnabas.protocol.compile_encode import encoder
from barnabas.protocol.errors import codes_of, errors_of
from barnabas.protocol.messages.metadata import (
    API,
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from barnabas.protocol.schema import Encoded
from barnabas.protocol.steps import at_once
from barnabas.security.principal import ANONYMOUS
from tests.support.steps import taken

PORTS = {1: 9001, 2: 9002}


def update(
    *partitions: tuple[str, int, Any], ports: dict[int, int] = PORTS, kind: int = INCREMENTAL
) -> UpdateMetadataRequest:
    """Partitions are tuples of topic, index, and the values that differ."""
    topics: dict[str, list[UpdateMetadataPartitionState]] = {}
    for name, index, given in partitions:
        values: dict[str, Any] = {
            "leader": 1,
            "leader_epoch": 3,
            "isr": [1, 2],
            "replicas": [1, 2],
            "offline_replicas": [],
        } | given
        topics.setdefault(name, []).append(
            UpdateMetadataPartitionState(
                partition_index=index, controller_epoch=1, zk_version=0, **values
            )
        )
    return UpdateMetadataRequest(
        controller_id=1,
        controller_epoch=1,
        type=kind,
        topic_states=[
            UpdateMetadataTopicState(
                topic_name=name, topic_id=name.encode() * 16, partition_states=states
            )
            for name, states in topics.items()
        ],
        live_brokers=[
            UpdateMetadataBroker(
                id=broker,
                endpoints=[
                    UpdateMetadataEndpoint(host="h", port=port, listener=listener)
                    for listener in ("L", "M")[: 1 + (broker == 1)]
                ],
            )
            for broker, port in ports.items()
        ],
    )


FIRST = update(("a", 0, {}), ("a", 1, {"leader": 2}), ("b", 0, {}), kind=FULL)
CHANGES = {
    "leader": update(("a", 0, {"leader": 2, "leader_epoch": 4})),
    "no leader": update(("a", 0, {"leader": -1})),
    "isr": update(("b", 0, {"isr": [1]})),
    "offline replica": update(("b", 0, {"offline_replicas": [2]})),
    "another partition": update(("a", 2, {})),
    "deleted partition": update(("a", 1, {"leader": LEADER_DURING_DELETE})),
    "deleted topic": update(("b", 0, {"leader": LEADER_DURING_DELETE})),
    "broker gone": update(ports={1: 9001}),
    "broker moved": update(ports={1: 9001, 2: 9003}),
    "everything anew": update(("a", 0, {"leader": 2}), kind=FULL),
}


def cache_of(*updates: UpdateMetadataRequest) -> MetadataCache:
    cache = MetadataCache("c")
    for each in updates:
        taken(cache.apply(each))
    return cache


def steps(cache: MetadataCache, version: int, listener: str = "L", **request: Any) -> Any:
    """Return the steps of a request for all topics."""
    context = RequestContext(
        *(API.key, version, 0, "test", ANONYMOUS, listener, "127.0.0.1", 1, 0),
        asker=request.pop("asker", None),
    )
    topics: list[Any] | None = None if version else []
    return metadata.handle(
        cache, lambda: False, _create, MetadataRequest(topics=topics, **request), context
    )


async def _create(_names: Iterable[str]) -> None:
    raise AssertionError("no name was asked for")


def answer(cache: MetadataCache, version: int, listener: str = "L", **request: Any) -> bytes:
    return encode(taken(steps(cache, version, listener, **request))[0], version)


def kinds() -> Iterator[tuple[int, str, dict[str, bool]]]:
    """Yield versions, listeners and choices of requests that get different answers."""
    for version in (0, 5, 8, 13):
        for listener in ("L", "M"):
            yield version, listener, {}
            if version >= 8:
                yield version, listener, {"include_topic_authorized_operations": True}


@pytest.mark.parametrize("change", CHANGES)
def test_topic_is_encoded_again_after_a_change(change: str) -> None:
    differs = False
    for version, listener, choices in kinds():
        cache = cache_of(FIRST)
        before = answer(cache, version, listener, **choices)
        taken(cache.apply(CHANGES[change]))
        expected = answer(cache_of(FIRST, CHANGES[change]), version, listener, **choices)
        assert answer(cache, version, listener, **choices) == expected
        differs |= expected != before
    assert differs


def test_requests_of_different_kinds_get_different_topics() -> None:
    shared = cache_of(FIRST)
    for _ in range(2):
        for version, listener, choices in kinds():
            expected = answer(cache_of(FIRST), version, listener, **choices)
            assert answer(shared, version, listener, **choices) == expected


def encoded(response: MetadataResponse) -> list[Any]:
    topics: list[Any] = response.topics
    assert all(type(each) is Encoded for each in topics)
    return topics


def test_unchanged_topic_is_encoded_once() -> None:
    cache = cache_of(FIRST)
    a, b = encoded(at_once(steps(cache, 13)))
    taken(cache.apply(update(("a", 0, {"leader": 2}))))
    other_a, same_b = encoded(at_once(steps(cache, 13)))
    assert a is not other_a
    assert b is same_b


def test_errors_of_an_encoded_topic_are_counted() -> None:
    cache = cache_of(FIRST, update(("a", 1, {"leader": -1})))
    for _ in range(2):
        assert errors_of(MetadataResponse)(at_once(steps(cache, 13))) == [5]


def test_topic_that_changes_while_it_is_encoded_is_encoded_again() -> None:
    change = update(("a", 0, {"leader": 2}), ("a", 1, {"leader": -1}))
    expected = answer(cache_of(FIRST, change), 13)
    _, count = taken(steps(cache_of(FIRST), 13))
    for before in range(count):
        cache = cache_of(FIRST)
        work = steps(cache, 13)
        for _ in range(before):
            next(work)
        taken(cache.apply(change))
        taken(work)
        assert answer(cache, 13) == expected


def test_topic_stays_encoded_for_few_kinds() -> None:
    cache = cache_of(FIRST)
    for version, listener, choices in kinds():
        answer(cache, version, listener, **choices)
    assert {len(topic.encoded) for topic in cache.topics.values()} == {4}


def test_operations_of_one_client_are_not_encoded() -> None:
    """The gate fills them in behind the handler."""
    asker: Any = SimpleNamespace(allows=lambda *_, **__: True)
    cache = cache_of(FIRST)
    asked = at_once(steps(cache, 13, asker=asker, include_topic_authorized_operations=True))
    assert [each.name for each in asked.topics] == ["a", "b"]
    encoded(at_once(steps(cache, 13, asker=asker)))


def partitions(codes: Iterable[int]) -> list[MetadataResponsePartition]:
    return [
        MetadataResponsePartition(
            error_code=code, partition_index=index, leader_id=1, replica_nodes=[1], isr_nodes=[1]
        )
        for index, code in enumerate(codes)
    ]


@pytest.mark.parametrize("version", API.versions)
@pytest.mark.parametrize("form", Form)
def test_encoded_element_stands_for_its_struct(version: int, form: Form) -> None:
    topics = [
        MetadataResponseTopic(name="a", partitions=partitions((0, 5))),
        MetadataResponseTopic(name="b", partitions=[]),
    ]
    plain = MetadataResponse(brokers=[], topics=topics)
    body = encode(topics[0], version)
    elements: list[Any] = [Encoded(body, (5,)), topics[1]]
    mixed = MetadataResponse(brokers=[], topics=elements)
    parts = encoder(MetadataResponse, version, form)(mixed)
    found = b"".join(at_once(parts) if form is Form.SLICED else parts)
    assert found == encode(plain, version)
    assert decode(MetadataResponse, version, found) == plain
    assert errors_of(MetadataResponse)(mixed) == errors_of(MetadataResponse)(plain) == [5]
    assert set(codes_of(MetadataResponse)(mixed)) == {0, 5}
