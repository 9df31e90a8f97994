"""Checks of rights with one fault each: a check dropped, allow before deny, a prefix as a literal.

Every fault is found by the comparison with the slow matcher, or by the one with Kafka's table.
"""

import inspect
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import pytest

from barnabas.broker.handlers import (
    add_partitions_to_txn,
    create_partitions,
    create_topics,
    delete_topics,
    describe_configs,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    metadata,
    offset_fetch,
    produce,
)
from barnabas.broker.replication.leader.consumer_read import ConsumerRead
from barnabas.broker.routes import API_TABLE
from barnabas.broker.security import gate
from barnabas.broker.security.rights import Rights
from barnabas.protocol.records import batch
from barnabas.security.acl import matcher
from barnabas.security.acl.matcher import Matcher, Policy, RuleSet
from barnabas.security.acl.rules import AclBinding, AclOperation
from barnabas.security.principal import Principal
from tests.support.rights import ASKED, judged
from tests.support.slow_matcher import (
    ALICE,
    ALLOW,
    ANYONE,
    BOB,
    DENY,
    GROUP,
    HOST,
    LITERAL,
    OTHER_HOST,
    PREFIXED,
    ROOT,
    TOPIC,
    decide_any_slowly,
    decide_slowly,
    rule,
)


def mutated(function: FunctionType, old: str, new: str) -> CodeType:
    """Return the code of a function with another text in its source."""
    source = textwrap.dedent(inspect.getsource(function))
    assert old in source, f"{function.__qualname__} has no {old!r}"
    names: dict[str, Any] = dict(function.__globals__)
    exec(source.replace(old, new, 1), names)
    code: CodeType = names[function.__name__].__code__
    return code


# --- the matcher


class Fault(NamedTuple):
    """A function with other text in its source."""

    title: str
    function: Callable[..., Any]
    old: str
    new: str
    apis: tuple[str, ...] = ()
    """The APIs whose requests find it."""


MATCHING = (
    Fault("allow wins", Matcher.answer, "not denied & _DENIED_BY[operation] and ", ""),
    Fault(
        "no rule allows",
        Matcher.answer,
        "return self._policy.allow_everyone",
        "return True",
    ),
    Fault("no rule denies", Matcher.answer, "if not found:", "if found is None:"),
    Fault(
        "all may what no rule allows them",
        Matcher.answer,
        "if not found:",
        "if not any(client.subjects[0] in rules.by_subject for rules in found):",
    ),
    Fault(
        "super users are asked",
        Matcher.answer,
        "in self._policy.super_users",
        "is None",
    ),
    Fault(
        "super users by name",
        Matcher.answer,
        "client.principal in self._policy.super_users",
        "client.principal.name in {each.name for each in self._policy.super_users}",
    ),
    Fault(
        "denial implies as permission does",
        Matcher.answer,
        "denied & _DENIED_BY",
        "denied & _ALLOWED_BY",
    ),
    Fault(
        "nothing is implied",
        Matcher.answer,
        "allowed & _ALLOWED_BY",
        "allowed & _DENIED_BY",
    ),
    Fault(
        "first subject alone",
        Matcher.answer,
        "for subject in subjects:",
        "for subject in subjects[:1]:",
    ),
    Fault(
        "first pattern alone",
        Matcher.answer,
        "for rules in found:",
        "for rules in found[:1]:",
    ),
    Fault("last pattern counts", Matcher.answer, "denied |= bits[0]", "denied = bits[0]"),
    Fault(
        "a prefix as a literal",
        matcher._TypeRules.naming,
        "prefixed.get(name[:length])",
        "prefixed.get(name) if length == len(name) else None",
    ),
    Fault(
        "a prefix is shorter",
        matcher._TypeRules.naming,
        "length > len(name)",
        "length >= len(name)",
    ),
    Fault("no prefix", matcher._TypeRules.naming, "in self._lengths", "in ()"),
    Fault("no wildcard", matcher._TypeRules.naming, "(name, WILDCARD) if", "(name,) if"),
    Fault(
        "a literal as a prefix",
        matcher._TypeRules.naming,
        "if each in literal]",
        "if each in literal]\n    found += [literal[x] for x in literal if x == name[:-1]]",
    ),
    Fault(
        "any host",
        matcher._subjects,
        "(principal, WILDCARD), (ANYONE, host)",
        "(principal, WILDCARD), (principal, HOST), (ANYONE, host)",
    ),
    Fault("no rule for every principal", matcher._subjects, ", (ANYONE, WILDCARD)", ""),
    Fault("no rule for every host", matcher._subjects, "(principal, WILDCARD), ", ""),
    Fault(
        "a type of principals is all types",
        matcher._subjects,
        "return (principal, host)",
        "return (ANYONE._replace(name=principal.name), host)",
    ),
    Fault(
        "decisions without the operation",
        matcher.slot,
        "operation << 3 | resource_type",
        "resource_type",
    ),
    Fault(
        "decisions without the type",
        matcher.slot,
        "operation << 3 | resource_type",
        "operation << 3",
    ),
    Fault(
        "denials of a type do not count", Matcher.answer_for_some, "if denies & bits:", "if False:"
    ),
    Fault(
        "wildcard denial of a type does not count",
        Matcher.answer_for_some,
        "if WILDCARD in literals:",
        "if False:",
    ),
    Fault(
        "prefixes do not deny in a type",
        matcher._is_denied,
        "range(1, len(name) + 1)",
        "()",
    ),
    Fault(
        "literals do not deny in a type", matcher._is_denied, "pattern.name in literals", "False"
    ),
)
NAMES = ("a", "ab", "abc", "b", "*", "hardcode")
PRINCIPALS = (ALICE, BOB, ROOT, Principal("Group", "alice"), Principal("Group", "root"))
OPERATIONS = (
    *(AclOperation.ALL, AclOperation.READ, AclOperation.READ, AclOperation.DESCRIBE),
    *(AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS),
)
"""Few operations, so that several rules concern a question."""


def wrong_decision() -> str | None:
    """Return a decision of the matcher that the slow one does not share."""
    chance = Random(7)
    for _ in range(1500):
        rules = [_any_rule(chance) for _ in range(chance.randrange(10))]
        policy = Policy(frozenset({ROOT}), chance.random() < 0.3)
        fast = Matcher(RuleSet.of(rules), policy)
        for _ in range(4):
            who, host = chance.choice(PRINCIPALS), chance.choice((HOST, OTHER_HOST))
            operation = chance.choice(OPERATIONS[1:])
            kind, name = chance.choice((TOPIC, GROUP)), chance.choice(NAMES)
            question = (who, host, operation, kind, name)
            if fast.allows(*question) != decide_slowly(rules, policy, *question):
                return f"{question} by {rules}"
            of_type = question[:4]
            if fast.allows_any(*of_type) != decide_any_slowly(rules, policy, *of_type):
                return f"any of {of_type} by {rules}"
    return None


def _any_rule(chance: Random) -> AclBinding:
    return rule(
        chance.choice(NAMES),
        chance.choice(OPERATIONS),
        chance.choice((ALLOW, ALLOW, DENY)),
        who=chance.choice((*PRINCIPALS, ALICE, ALICE, ANYONE)),
        how=chance.choice((LITERAL, PREFIXED)),
        host=chance.choice((HOST, OTHER_HOST, "*", "*")),
        kind=chance.choice((TOPIC, GROUP)),
    )


def test_the_matcher_decides_as_the_slow_one() -> None:
    assert wrong_decision() is None


@pytest.mark.parametrize("fault", MATCHING, ids=lambda each: each.title)
def test_fault_of_the_matcher_is_found(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matcher, "HOST", HOST, raising=False)
    monkeypatch.setattr(fault.function, "__code__", _code(fault))
    assert wrong_decision() is not None


def _code(fault: Fault) -> CodeType:
    assert isinstance(fault.function, FunctionType)
    return mutated(fault.function, fault.old, fault.new)


# --- the gate and the handlers


_ALLOWS = "context.allows("
ASKING = (
    Fault(
        "nothing for the whole",
        gate._Guarded._require,
        "for need in self._whole:",
        "for need in ():",
        ("Heartbeat",),
    ),
    Fault(
        "the first need alone",
        gate._Guarded._require,
        "in self._whole:",
        "in self._whole[:1]:",
        ("AddOffsetsToTxn",),
    ),
    Fault(
        "nothing for elements",
        gate._Guarded._refusal,
        "for need in self._needs:",
        "for need in ():",
        ("ListOffsets",),
    ),
    Fault(
        "the first need of an element",
        gate._Guarded._refusal,
        "in self._needs:",
        "in self._needs[:1]:",
        ("AlterConfigs",),
    ),
    Fault(
        "the alternative is needed too",
        gate._Need.is_met,
        "if unless is not None and unless",
        "if unless is not None and not unless",
        ("WriteTxnMarkers",),
    ),
    Fault(
        "no alternative",
        gate._Need.is_met,
        "unless = self._unless",
        "unless = None",
        ("WriteTxnMarkers",),
    ),
    Fault(
        "conditions do not count",
        gate._Need.is_met,
        "self.when is not None and not self.when(subject)",
        "False",
        ("InitProducerId",),
    ),
    Fault(
        "versions do not count",
        gate._Need.is_met,
        "self._versions is not None and",
        "False and",
        ("AddPartitionsToTxn",),
    ),
    Fault(
        "versions are others",
        gate._Need.is_met,
        "not in self._versions",
        "in self._versions",
        ("AddPartitionsToTxn",),
    ),
    Fault(
        "any resource is all", gate._Need.is_met, "if self.any:", "if False:", ("InitProducerId",)
    ),
    Fault(
        "topic ids need nothing",
        gate._Need.name,
        "name = cache.topic_name(topic_id)",
        "return None",
        ("Produce",),
    ),
    Fault(
        "refused elements are answered too",
        gate._Guarded._handle_partly,
        "answers.append((yield from each.refusal(element, code, context.api_version)))",
        "pass",
        ("ListOffsets",),
    ),
    Fault(
        "refused elements reach the handler",
        gate._Guarded._handle_partly,
        "if code is None:",
        "if True:",
        ("ListOffsets",),
    ),
    Fault(
        "a transactional batch is overlooked",
        batch.begins_transactional,
        "ATTRIBUTES_AT + 1",
        "ATTRIBUTES_AT",
        ("Produce",),
    ),
    Fault(
        "no batch is transactional",
        produce._is_transactional,
        "return True",
        "return False",
        ("Produce",),
    ),
    Fault(
        "partitions of any topic",
        add_partitions_to_txn._for_client,
        f"or not {_ALLOWS}WRITE, TOPIC, topic)",
        "",
        ("AddPartitionsToTxn",),
    ),
    Fault(
        "topics of any name",
        create_topics.handle,
        f"may_create_all or {_ALLOWS}CREATE, TOPIC, topic.name)",
        "True",
        ("CreateTopics",),
    ),
    Fault(
        "topics by the cluster alone",
        create_topics.handle,
        f" or {_ALLOWS}CREATE, TOPIC, topic.name)",
        "",
        ("CreateTopics",),
    ),
    Fault(
        "topics without the cluster",
        create_topics.handle,
        "may_create_all or ",
        "",
        ("CreateTopics",),
    ),
    Fault(
        "deletes any topic",
        delete_topics.handle,
        f"may_delete_all or {_ALLOWS}DELETE, TOPIC, name)",
        "True",
        ("DeleteTopics",),
    ),
    Fault(
        "deletes what it may describe",
        delete_topics.handle,
        f"{_ALLOWS}DELETE, TOPIC",
        f"{_ALLOWS}DESCRIBE, TOPIC",
        ("DeleteTopics",),
    ),
    Fault(
        "grows any topic",
        create_partitions.handle,
        f"if not {_ALLOWS}ALTER, TOPIC, topic.name)",
        "if False",
        ("CreatePartitions",),
    ),
    Fault(
        "describes any partition",
        describe_topic_partitions.handle,
        "if not context.allows(",
        "if not (lambda *_, **__: True)(",
        ("DescribeTopicPartitions",),
    ),
    Fault(
        "metadata of any name",
        metadata._Asked.by_name,
        f"if not self.{_ALLOWS}DESCRIBE, TOPIC, name)",
        "if False",
        ("Metadata",),
    ),
    Fault(
        "metadata of any id",
        metadata._Asked.by_id,
        f"if not self.{_ALLOWS}DESCRIBE, TOPIC, topic.name)",
        "if False",
        ("Metadata",),
    ),
    Fault(
        "records for any consumer",
        ConsumerRead._authorize,
        f"if not self.{_ALLOWS}AclOperation.READ, ResourceType.TOPIC, name)",
        "if False",
        ("Fetch",),
    ),
    Fault(
        "records for any follower",
        fetch._serve_follower,
        f"if not {_ALLOWS}CLUSTER_ACTION, CLUSTER, CLUSTER_NAME)",
        "if False",
        ("Fetch",),
    ),
    Fault(
        "offsets of any group",
        offset_fetch._table,
        f"if not {_ALLOWS}DESCRIBE, GROUP, asked.group_id)",
        "if False",
        ("OffsetFetch",),
    ),
    Fault(
        "offsets of any topic",
        offset_fetch._look,
        "topic.name is not None and not",
        "False and not",
        ("OffsetFetch",),
    ),
    Fault(
        "any coordinator",
        find_coordinator.handle,
        f"if not {_ALLOWS}need.operation, need.type, key)",
        "if False",
        ("FindCoordinator",),
    ),
    Fault(
        "configurations of the cluster",
        describe_configs.is_of_cluster,
        "resource.resource_type in _OF_CLUSTER",
        "False",
        ("DescribeConfigs",),
    ),
    Fault(
        "loggers need nothing",
        describe_configs.is_of_cluster,
        "in _OF_CLUSTER",
        "in _OF_CLUSTER - {8}",
        ("IncrementalAlterConfigs",),
    ),
)


async def faults(directory: Path, *apis: str) -> list[str]:
    async with judged(directory) as broker:
        return [
            fault
            for asked in ASKED
            if asked.api in apis
            for version in {asked.versions[0], asked.versions[-1]}
            async for fault in broker.faults(asked, version)
        ]


@pytest.mark.parametrize("fault", ASKING, ids=lambda each: each.title)
async def test_fault_of_a_check_is_found(
    fault: Fault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fault.function, "__code__", _code(fault))
    assert await faults(tmp_path, *fault.apis)


def without_one() -> Iterator[tuple[ModuleType, Rights]]:
    """Yield each declaration for clients of a cluster without one of its rights."""
    for row in API_TABLE:
        if not row.clients:
            # Brokers need ClusterAction for all that they send.
            continue
        rights: Rights = row.module.RIGHTS
        for number, need in enumerate(rights.whole):
            if need.versions is not None and not {*need.versions} & {*row.clients}:
                continue
            kept = rights.whole[:number] + rights.whole[number + 1 :]
            yield row.module, rights._replace(whole=kept)  # type: ignore[misc]
        if rights.each is not None:
            for number in range(len(rights.each.needs)):
                needs = rights.each.needs[:number] + rights.each.needs[number + 1 :]
                yield row.module, rights._replace(each=rights.each._replace(needs=needs))  # type: ignore[misc]


async def test_right_that_is_not_declared_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One broker for all APIs: each gets its first fault, then its second.
    left = [(module, rights) for module, rights in without_one()]
    turn = 0
    while left:
        now: dict[str, tuple[ModuleType, Rights]] = {}
        for module, rights in left:
            now.setdefault(module.__name__, (module, rights))
        left = [each for each in left if each not in now.values()]
        with monkeypatch.context() as patched:
            for module, rights in now.values():
                patched.setattr(module, "RIGHTS", rights)
            apis = {module.API.name for module, _ in now.values()}
            found = await faults(tmp_path / str(turn), *apis)
        assert apis == {fault.split()[0] for fault in found}
        turn += 1
    assert turn >= 2
