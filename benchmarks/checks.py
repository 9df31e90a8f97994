"""The time that rights and quotas add to a request, in the part `security` of `beside_kafka`.

There are 10,000 rules, and every request was allowed before. The handlers behind the gate do
nothing. Each figure is the least CPU time of several runs, minus that of the bare call.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, cast

from barnabas.broker.cluster.cache import MetadataCache
from barnabas.broker.handlers import fetch, heartbeat, offset_commit, produce
from barnabas.broker.loop.clock import LoopTimers
from barnabas.broker.security.authorizer import Authorizer
from barnabas.broker.security.cluster_acls import ClusterAcls
from barnabas.broker.security.gate import Gate
from barnabas.broker.security.rights import READ, TOPIC
from barnabas.broker.server.context import RequestContext
from barnabas.broker.server.dispatch import Route
from barnabas.broker.server.limits.quotas import ClientQuotas, Entity, Periods, Quota
from barnabas.metrics.catalogue import QuotaMetrics
from barnabas.metrics.registry import Registry
from barnabas.protocol.records.record import Record, build_batch
from barnabas.security.acl.matcher import Policy, RuleSet
from barnabas.security.principal import Principal
from barnabas.testing import allow
from benchmarks import raw
from benchmarks.measures import Round

RULES = 10_000
REQUESTS = 20_000
RUNS = 7
ALICE = Principal("User", "alice")


def rules() -> RuleSet:
    """Return rules for many users and topics; those of alice are prefixed."""
    own = [
        allow(ALICE.name, "Write", "Topic:topic-*"),
        allow(ALICE.name, "Read", "Topic:topic-*"),
        allow(ALICE.name, "Read", "Group:group-*"),
    ]
    others = [
        allow(f"u{number}", "Write", f"Topic:topic-{number % 1000}")
        for number in range(RULES - len(own))
    ]
    return RuleSet.of([*own, *others])


def requests() -> dict[str, tuple[Any, int, dict[str, Any]]]:
    """Return requests with their handler modules and versions."""
    records = build_batch([Record(0, 1, b"k", b"v" * 1000, ())])
    topic = {"name": "topic-1", "partition_data": [{"index": 0, "records": records}]}
    member = {"group_id": "group-1", "member_id": "m"}
    topics = [{"name": f"topic-{number}", "partitions": []} for number in range(10)]
    asked = [{"topic": "topic-1", "partitions": []}]
    return {
        "Heartbeat": (heartbeat, 4, {**member, "generation_id": 1}),
        "Produce, 1 topic": (produce, 9, {"acks": 1, "timeout_ms": 1, "topic_data": [topic]}),
        "Fetch, 1 topic": (fetch, 12, {"max_wait_ms": 1, "min_bytes": 1, "topics": asked}),
        "OffsetCommit, 10 topics": (offset_commit, 8, {**member, "topics": topics}),
    }


def answers(_request: Any, _context: RequestContext) -> None: ...


def asks(request: Any, context: RequestContext) -> None:
    """Ask for each topic, as the handler of Fetch does."""
    for topic in request.topics:
        context.allows(READ, TOPIC, topic.topic)


def _us_each(call: Callable[[Any], object], make: Callable[[], Iterable[Any]]) -> float:
    """Return the time of a call with an argument."""
    best = float("inf")
    for _ in range(RUNS):
        given = make()
        begun = time.thread_time()
        for each in given:
            call(each)
        best = min(best, time.thread_time() - begun)
    return best / REQUESTS * 1e6


def _added_by_rights(gate: Gate, module: Any, version: int, data: dict[str, Any]) -> float:
    bare = Route(module.API, range(version, version + 1), asks if module is fetch else answers)
    guarded = gate.guard(bare, module.RIGHTS).handle
    request = raw.message(module.API.request, data)

    def contexts() -> list[RequestContext]:
        key = module.API.key
        return [
            RequestContext(key, version, 1, "c", ALICE, "L", "10.0.0.1", 1, 0)
            for _ in range(REQUESTS)
        ]

    seconds = _us_each(lambda context: guarded(request, context), contexts)
    return seconds - _us_each(lambda context: bare.handle(request, context), contexts)


def _of_quotas(limits: dict[Quota, float] | None) -> float:
    """Return the time that the quotas of a Produce take, by the limits of its client."""
    clients = ClientQuotas(time.monotonic, Periods(), QuotaMetrics(Registry()))
    clients.limit(Entity("bob"), {Quota.PRODUCE: 1})
    if limits is not None:
        clients.limit(Entity("alice"), limits)
    connection, began = SimpleNamespace(throttle=lambda _seconds: None), time.monotonic()

    def charged(_number: int) -> None:
        charge = clients.charge("alice", "app", connection, began)
        if charge is not None:
            charge.produced(1000)
            charge.settle()

    bare = _us_each(lambda _number: None, lambda: range(REQUESTS))
    return _us_each(charged, lambda: range(REQUESTS)) - bare


async def _measure() -> Round:
    """Measure in a loop, which the timers of an authorizer need."""
    never_changed = SimpleNamespace(rules=rules(), follow=lambda _follower: None)
    acls = cast(ClusterAcls, never_changed)
    gate = Gate(Authorizer(acls, Policy(), LoopTimers()), MetadataCache("cluster"))
    limits = {
        "another client's limit": None,
        "producer_byte_rate": {Quota.PRODUCE: 1e12},
        "producer_byte_rate and request_percentage": {Quota.PRODUCE: 1e12, Quota.REQUEST: 1e9},
    }
    found = {f"rights: {name}": _added_by_rights(gate, *each) for name, each in requests().items()}
    found |= {f"quotas: {name}": _of_quotas(each) for name, each in limits.items()}
    return {name: {"us": us} for name, us in found.items()}


def measure() -> Round:
    """Return all times."""
    return asyncio.run(_measure())
