"""The time that rights and quotas add to a request: `python -m benchmarks.checks`.

There are 10,000 rules, and every request was allowed before. The handlers behind the gate do
nothing. Each figure is the least CPU time of several runs, minus that of the bare handler.
"""

import argparse
import asyncio
import time
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from barnabas.broker.cluster.cache import MetadataCache
from barnabas.broker.handlers import fetch, heartbeat, offset_commit, produce
from barnabas.broker.loop.clock import LoopTimers
from barnabas.broker.security.authorizer import Authorizer
from barnabas.broker.security.cluster_acls import ClusterAcls
from barnabas.broker.security.gate import Gate
from barnabas.broker.security.rights import READ, TOPIC
from barnabas.broker.server.context import RequestContext
from barnabas.broker.server.dispatch import Handle, Route
from barnabas.broker.server.limits.quotas import ClientQuotas, Entity, Periods, Quota
from barnabas.metrics.catalogue import QuotaMetrics
from barnabas.metrics.registry import Registry
from barnabas.protocol.messages.fetch import FetchRequest, FetchTopic
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestTopic
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.records.record import Record, build_batch
from barnabas.security.acl.matcher import Policy, RuleSet
from barnabas.security.acl.rules import new_rule
from barnabas.security.principal import Principal

RULES = 10_000
REQUESTS = 20_000
RUNS = 7
ALICE = Principal("User", "alice")


class Rules(NamedTuple):
    """Rules that never change, in place of the metadata store's."""

    rules: RuleSet

    def follow(self, _follower: Callable[[RuleSet | None], None]) -> None: ...


def rules() -> RuleSet:
    """Return rules for many users and topics; those of alice are prefixed."""
    own = [
        new_rule(2, "topic-", 4, str(ALICE), "*", 4, 3),
        new_rule(2, "topic-", 4, str(ALICE), "*", 3, 3),
        new_rule(3, "group-", 4, str(ALICE), "*", 3, 3),
    ]
    others = [
        new_rule(2, f"topic-{number % 1000}", 3, f"User:u{number}", "*", 4, 3)
        for number in range(RULES - len(own))
    ]
    return RuleSet.of([*own, *others])


def requests() -> dict[str, tuple[Any, Any, int]]:
    """Return requests with their handler modules and versions."""
    records = build_batch([Record(0, 1, b"k", b"v" * 1000, ())])
    data = PartitionProduceData(index=0, records=records)
    return {
        "Heartbeat": (
            heartbeat,
            HeartbeatRequest(group_id="group-1", generation_id=1, member_id="m"),
            4,
        ),
        "Produce, 1 topic": (
            produce,
            ProduceRequest(
                acks=1,
                timeout_ms=1,
                topic_data=[TopicProduceData(name="topic-1", partition_data=[data])],
            ),
            9,
        ),
        "Fetch, 1 topic": (
            fetch,
            FetchRequest(
                max_wait_ms=1, min_bytes=1, topics=[FetchTopic(topic="topic-1", partitions=[])]
            ),
            12,
        ),
        "OffsetCommit, 10 topics": (
            offset_commit,
            OffsetCommitRequest(
                group_id="group-1",
                member_id="m",
                topics=[
                    OffsetCommitRequestTopic(name=f"topic-{n}", partitions=[]) for n in range(10)
                ],
            ),
            8,
        ),
    }


def answers(_request: Any, _context: RequestContext) -> None: ...


def asks(request: FetchRequest, context: RequestContext) -> None:
    """Ask for each topic, as the handler does."""
    for topic in request.topics:
        context.allows(READ, TOPIC, topic.topic)


def seconds_each(handle: Handle, request: Any, context: Callable[[], RequestContext]) -> float:
    """Return the time of a call."""
    best = float("inf")
    for _ in range(RUNS):
        contexts = [context() for _ in range(REQUESTS)]
        begun = time.thread_time()
        for each in contexts:
            handle(request, each)
        best = min(best, time.thread_time() - begun)
    return best / REQUESTS


def rights() -> dict[str, float]:
    """Return the time that rights add to a request, in us, by request."""
    acls = cast(ClusterAcls, Rules(rules()))
    authorizer = Authorizer(acls, Policy(), LoopTimers())
    gate = Gate(authorizer, MetadataCache("cluster"))
    added = {}
    for name, (module, request, version) in requests().items():
        bare = Route(module.API, range(version, version + 1), asks if module is fetch else answers)

        def context(module: Any = module, version: int = version) -> RequestContext:
            return RequestContext(module.API.key, version, 1, "c", ALICE, "L", "10.0.0.1", 1, 0)

        guarded = gate.guard(bare, module.RIGHTS).handle
        seconds = seconds_each(guarded, request, context)
        added[name] = (seconds - seconds_each(bare.handle, request, context)) * 1e6
    return added


class Unthrottled(NamedTuple):
    """A connection that no quota ever throttles."""

    def throttle(self, _seconds: float) -> None: ...


def quotas() -> dict[str, float]:
    """Return the time that quotas add to a Produce, in us, by the limits of its client."""
    added = {}
    for name, limits in {
        "another client's limit": None,
        "producer_byte_rate": {Quota.PRODUCE: 1e12},
        "producer_byte_rate and request_percentage": {Quota.PRODUCE: 1e12, Quota.REQUEST: 1e9},
    }.items():
        clients = ClientQuotas(time.monotonic, Periods(), QuotaMetrics(Registry()))
        clients.limit(Entity("bob"), {Quota.PRODUCE: 1})
        if limits is not None:
            clients.limit(Entity("alice"), limits)
        connection, began, best = Unthrottled(), time.monotonic(), float("inf")
        for _ in range(RUNS):
            begun = time.thread_time()
            for _ in range(REQUESTS):
                charge = clients.charge("alice", "app", connection, began)
                if charge is not None:
                    charge.produced(1000)
                    charge.settle()
            best = min(best, time.thread_time() - begun)
        added[name] = best / REQUESTS * 1e6
    return added


async def measure() -> dict[str, float]:
    """Return all times, in us."""
    return {f"rights: {name}": us for name, us in rights().items()} | {
        f"quotas: {name}": us for name, us in quotas().items()
    }


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    for name, us in asyncio.run(measure()).items():
        print(f"{name:50}{us:8.2f} us")


if __name__ == "__main__":
    main()
