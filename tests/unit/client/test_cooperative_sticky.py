"""The cooperative assignor for random groups: one owner per partition, balance, few moves."""

from itertools import pairwise

import hypothesis.strategies as st
from hypothesis import given

from barnabas.client.groups.assignors import (
    Subscription,
    assign_cooperative_sticky,
    assign_sticky,
)
from barnabas.protocol.topic_partition import TopicPartition

TOPICS = ["a", "b", "c"]
MEMBERS = [f"m{n}" for n in range(5)]
counts = st.fixed_dictionaries({topic: st.integers(0, 7) for topic in TOPICS})
Owned = dict[str, list[TopicPartition]]


def partitions(parts: dict[str, int]) -> list[TopicPartition]:
    return [(topic, n) for topic, count in parts.items() for n in range(count)]


@st.composite
def groups(draw: st.DrawFn, *, equal: bool) -> tuple[dict[str, Subscription], dict[str, int]]:
    """Generate members with owned partitions, none owned twice, and partition counts of topics."""
    parts = draw(counts)
    some = st.lists(st.sampled_from(TOPICS), min_size=1, unique=True)
    names = draw(st.lists(st.sampled_from(MEMBERS), min_size=1, unique=True))
    owned: Owned = {name: [] for name in names}
    for partition in partitions(parts):
        if owner := draw(st.none() | st.sampled_from(names)):
            owned[owner].append(partition)
    topics = {name: TOPICS if equal else draw(some) for name in names}
    return {name: Subscription(topics[name], owned[name], 3) for name in names}, parts


@given(groups(equal=True))
def test_sticky_with_equal_subscriptions_is_balanced_and_moves_least(
    group: tuple[dict[str, Subscription], dict[str, int]],
) -> None:
    members, parts = group
    shares = assign_sticky(members, parts)
    assert sorted(tp for share in shares.values() for tp in share) == sorted(partitions(parts))
    sizes = sorted(map(len, shares.values()))
    assert sizes[-1] - sizes[0] <= 1
    least, above = divmod(sum(sizes), len(members))
    had = [len(row.owned) for row in members.values()]
    best = sum(min(n, least) for n in had) + min(above, sum(n > least for n in had))
    assert sum(len(set(shares[name]) & set(row.owned)) for name, row in members.items()) == best


@given(groups(equal=False))
def test_sticky_with_different_subscriptions_assigns_each_partition_once(
    group: tuple[dict[str, Subscription], dict[str, int]],
) -> None:
    members, parts = group
    shares = assign_sticky(members, parts)
    wanted = {topic for row in members.values() for topic in row.topics}
    given_ = sorted(tp for share in shares.values() for tp in share)
    assert given_ == sorted(tp for tp in partitions(parts) if tp[0] in wanted)
    for name, share in shares.items():
        assert {topic for topic, _ in share} <= set(members[name].topics)
        for other, row in members.items():
            if any(topic in row.topics for topic, _ in share):
                assert len(share) <= len(shares[other]) + 1
    again = {name: Subscription(row.topics, shares[name], 4) for name, row in members.items()}
    assert {n: sorted(s) for n, s in assign_sticky(again, parts).items()} == {
        n: sorted(s) for n, s in shares.items()
    }


def rebalance(owned: Owned, ages: dict[str, int], parts: dict[str, int]) -> tuple[Owned, set[str]]:
    """Return the partitions that members then own, and the members that must join again."""
    members = {name: Subscription(TOPICS, owned[name], ages[name]) for name in owned}
    shares = assign_cooperative_sticky(members, parts)
    for name, share in shares.items():
        for other in owned.keys() - {name}:
            if ages[other] == max(ages.values()):
                # The other member may learn of the rebalance last.
                assert not set(share) & set(owned[other])
    return shares, {name for name in owned if set(owned[name]) - set(shares[name])}


@given(st.lists(st.sets(st.sampled_from(MEMBERS), min_size=1), min_size=1, max_size=6), counts)
def test_cooperative_rebalances_never_give_a_partition_two_owners(
    present: list[set[str]], parts: dict[str, int]
) -> None:
    owned: Owned = {}
    for names in present:
        before = owned
        owned = {name: owned.get(name, []) for name in sorted(names)}
        steps = [owned]
        again = {"at first"}
        while again:
            owned, again = rebalance(owned, dict.fromkeys(owned, 1), parts)
            steps.append(owned)
        assert len(steps) <= 4
        assert sorted(tp for share in owned.values() for tp in share) == sorted(partitions(parts))
        sizes = sorted(map(len, owned.values()))
        assert sizes[-1] - sizes[0] <= 1
        for name in names & before.keys():
            for earlier, later in pairwise(steps):
                kept = set(before[name]) & set(owned[name])
                assert kept & set(earlier[name]) <= set(later[name])


@given(
    groups(equal=True),
    st.sets(st.sampled_from(partitions(dict.fromkeys(TOPICS, 7)))),
    st.booleans(),
)
def test_stale_claim_does_not_revoke_partitions_of_others(
    group: tuple[dict[str, Subscription], dict[str, int]], claimed: set[TopicPartition], last: bool
) -> None:
    members, parts = group
    names = [*members, "away"] if last else ["away", *members]
    claims = {"away": sorted(claimed), **{name: row.owned for name, row in members.items()}}
    owned = {name: list(claims[name]) for name in names}
    ages = {**dict.fromkeys(members, 3), "away": 2}
    shares, again = rebalance(owned, ages, parts)
    at_most = -(-sum(parts.values()) // len(owned))
    for name, row in members.items():
        assert len(set(shares[name]) & set(row.owned)) >= min(len(row.owned), at_most - 1)
    owned = shares
    while again:
        owned, again = rebalance(owned, dict.fromkeys(owned, 4), parts)
    assert sorted(tp for share in owned.values() for tp in share) == sorted(partitions(parts))


def test_partition_with_two_equal_claims_is_revoked_from_both_first() -> None:
    both = Subscription(["a"], [("a", 0)], 1)
    shares = assign_cooperative_sticky({"m0": both, "m1": both}, {"a": 1})
    assert shares == {"m0": [], "m1": []}
