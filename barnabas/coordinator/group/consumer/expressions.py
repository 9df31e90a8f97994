"""Subscriptions by regular expression, as Kafka 4.4 takes them (KIP-848): RE2, whole names.

The topics that the expressions of a group match are resolved behind the answer to a heartbeat.
"""

from collections.abc import Callable, Collection
from functools import partial
from typing import Final

from barnabas.coordinator import expressions
from barnabas.coordinator.decision import Decision, Instant, StartTimer
from barnabas.coordinator.expressions import Expression, ExpressionError, NotInstalledError
from barnabas.coordinator.group.consumer import records
from barnabas.coordinator.group.consumer.group import (
    NO_TARGET,
    ConsumerGroup,
    ConsumerMember,
    ResolvedExpression,
)
from barnabas.coordinator.group.consumer.topics import hash_of_topics
from barnabas.coordinator.group.draft import Draft
from barnabas.coordinator.group.table import GroupDecision, GroupTable
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.steps import Steps

__all__ = ["Expression", "compiled", "refresh_if_due", "refresh_is_due"]

_SHOWN: Final = 200
"""The letters of an expression that an error repeats."""
_REFRESH: Final = "consumer expressions"
_AT_LEAST_MS: Final = 10_000
"""Between two times at which the expressions of a group are resolved."""


def compiled(text: str) -> Expression:
    """Compile a subscription. Raises INVALID_REGULAR_EXPRESSION, with Kafka's text.

    So it does if google-re2 is not installed: with UNSUPPORTED_VERSION Kafka's consumers would
    report that the broker does not know their protocol.
    """
    try:
        return expressions.compiled(text)
    except ExpressionError as error:
        reason = f"is not a valid regular expression: {error}."
    except NotInstalledError:
        reason = expressions.NOT_INSTALLED
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    raise KafkaError(
        ErrorCode.INVALID_REGULAR_EXPRESSION, f"SubscribedTopicRegex `{shown}` {reason}"
    )


def refresh_is_due(table: GroupTable, group: ConsumerGroup, now: Instant, new: str = "") -> bool:
    """Return whether an expression of the group, or a `new` one, has to be resolved: topics have
    changed, or rights may have. A group's are resolved together, after 10 s at the earliest."""
    used = {new, *group.expression_users} - {""}
    if not used:
        return False
    known, wall_ms = group.expressions, now.wall_ms
    again_ms = table.settings_of(group.group_id).regex_refresh_interval_ms
    if all(
        text in known
        and known[text].version == table.topics.version
        and 0 <= wall_ms - known[text].timestamp_ms < again_ms
        for text in used
    ):
        return False
    last_ms = max((each.timestamp_ms for each in known.values()), default=-_AT_LEAST_MS)
    return not 0 <= wall_ms - last_ms < _AT_LEAST_MS


def refresh_if_due(
    draft: Draft,
    group: ConsumerGroup,
    member: ConsumerMember,
    may_describe: Callable[[str], bool],
) -> None:
    """Resolve the expressions of a group after this decision, if that is due."""
    if refresh_is_due(draft.table, group, draft.now, member.expression):
        decide = partial(_resolve, draft.table, group.group_id, may_describe)
        key = (_REFRESH, group.group_id)
        draft.effects.append(StartTimer(key, 0, group.group_id, decide))


def _resolve(
    table: GroupTable, group_id: str, may_describe: Callable[[str], bool], now: Instant
) -> GroupDecision[None]:
    draft = Draft(table, now)
    group = table.consumers.get(group_id)
    if group is None or not group.expression_users:
        return draft.decision(None)
    return Decision(None, draft.records, draft.effects, steps=_resolved(draft, group, may_describe))


def _resolved(
    draft: Draft, group: ConsumerGroup, may_describe: Callable[[str], bool]
) -> Steps[None]:
    """Add the records of the group's expressions, and of its next epoch if they match others."""
    table = draft.table
    version = table.topics.version
    names = []
    for name in list(table.topics.names()):
        yield None
        if may_describe(name):
            names.append(name)
    found: dict[str, ResolvedExpression] = {}
    for text in list(group.expression_users):
        yield None
        matched = compiled(text).matching(names)
        found[text] = ResolvedExpression(matched, version, draft.now.wall_ms)
        draft.records.append(records.expression(group.group_id, text, found[text]))
    before = {text: each.topics for text, each in group.expressions.items()}
    differs = any(before.get(text, frozenset()) != each.topics for text, each in found.items())
    if differs or (yield from _some_have_more(table, group, found.keys() - before.keys())):
        subscribed = {*group.subscribers}.union(*(each.topics for each in found.values()))
        metadata_hash = hash_of_topics(table.topics, subscribed)
        reason = "a regular expression matches other topics"
        draft.begin_epoch(group.group_id, group.epoch + 1, metadata_hash, reason)


def _some_have_more(table: GroupTable, group: ConsumerGroup, fresh: Collection[str]) -> Steps[bool]:
    """Return whether a member whose expression is a `fresh` one has a part in topics of the one
    before it, which others may get. An epoch that waits for its target looks at that anyway."""
    if not fresh or group.epoch > group.assignment_epoch:
        return False
    for member in list(group.members.values()):
        yield None
        # It matches no topics: others would be news themselves.
        names = map(table.topics.name_of, group.targets.get(member.member_id, NO_TARGET))
        if member.expression in fresh and not set(names) <= set(member.topics):
            return True
    return False
