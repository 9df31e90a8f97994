"""The matcher, compared with one that looks at every rule, as Kafka's documents describe it."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.security.acl import matcher
from barnabas.security.acl.matcher import (
    AclDecision,
    Matcher,
    Policy,
    Reason,
    RuleSet,
    Unreadable,
    parse_super_users,
)
from barnabas.security.acl.rules import (
    AclBinding,
    AclOperation,
    ResourcePattern,
    ResourceType,
)
from barnabas.security.principal import Principal
from tests.support.slow_matcher import (
    ALICE,
    ALL,
    ALLOW,
    ANYONE,
    BOB,
    DENY,
    DESCRIBE,
    GROUP,
    HOST,
    LITERAL,
    OTHER_HOST,
    PREFIXED,
    READ,
    ROOT,
    TOPIC,
    WRITE,
    decide_any_slowly,
    decide_slowly,
    rule,
)

DEFAULT = Policy()


def by(rules: Sequence[AclBinding], policy: Policy = DEFAULT) -> Matcher:
    return Matcher(RuleSet.of(rules), policy)


resource_names = st.sampled_from(
    ["a", "ab", "abc", "b", "ba", "*", "*a", "h", "hardcode", "a" * 300]
)
principals = st.sampled_from([ALICE, BOB, ROOT, Principal("Group", "alice")])
hosts = st.sampled_from([HOST, OTHER_HOST])
kinds = st.sampled_from([TOPIC, GROUP])
operations = st.sampled_from(list(AclOperation)[AclOperation.READ :])
bindings = st.builds(
    rule,
    resource_names,
    st.sampled_from(list(AclOperation)[ALL:]),
    st.sampled_from([ALLOW, ALLOW, DENY]),
    who=principals | st.just(ANYONE),
    how=st.sampled_from([LITERAL, PREFIXED]),
    host=hosts | st.just("*"),
    kind=kinds,
)
rule_lists = st.lists(bindings, max_size=8)
policies = st.builds(Policy, st.sampled_from([frozenset(), frozenset({ROOT})]), st.booleans())
questions = st.tuples(principals, hosts, operations, kinds, resource_names)


@settings(max_examples=600)
@given(rules=rule_lists, policy=policies, asked=st.lists(questions, min_size=1, max_size=12))
def test_decides_as_the_slow_matcher(
    rules: list[AclBinding],
    policy: Policy,
    asked: list[tuple[Principal, str, AclOperation, ResourceType, str]],
) -> None:
    fast = by(rules, policy)
    for question in asked * 2:
        expected = decide_slowly(rules, policy, *question)
        assert fast.allows(*question) == expected
        decision = fast.decide(*question)
        assert decision.allowed == expected
        assert (decision.rule is None) == (
            decision.reason not in (Reason.ALLOW_RULE, Reason.DENY_RULE)
        )
        if decision.rule is not None:
            assert decision.rule in rules
            # The rule decides alone as all rules do together.
            assert decide_slowly([decision.rule], Policy(), *question) == expected
        any_of_type = question[:4]
        assert fast.allows_any(*any_of_type) == decide_any_slowly(rules, policy, *any_of_type)


few_names = st.sampled_from(["a", "ab", "abc", "*"])
read_rules = st.builds(
    rule,
    few_names,
    st.sampled_from([READ, READ, ALL, WRITE]),
    st.sampled_from([ALLOW, DENY]),
    how=st.sampled_from([LITERAL, PREFIXED]),
)


@settings(max_examples=400)
@given(rules=st.lists(read_rules, min_size=1, max_size=5))
def test_decides_for_a_type_as_the_slow_matcher(rules: list[AclBinding]) -> None:
    for operation in (READ, DESCRIBE):
        expected = decide_any_slowly(rules, DEFAULT, ALICE, HOST, operation, TOPIC)
        assert by(rules).allows_any(ALICE, HOST, operation, TOPIC) == expected


@settings(max_examples=200)
@given(before=rule_lists, after=rule_lists, question=questions)
def test_next_version_has_the_replaced_rules_alone(
    before: list[AclBinding],
    after: list[AclBinding],
    question: tuple[Principal, str, AclOperation, ResourceType, str],
) -> None:
    first = RuleSet.of(before)
    patterns = {each.pattern for each in after}
    content = {
        pattern: [each.entry for each in after if each.pattern == pattern] for pattern in patterns
    }
    removed = {each.pattern: () for each in before[:2] if each.pattern not in patterns}
    second = first.replaced({**content, **removed})
    assert second.version == first.version + 1
    kept = [each for each in before if each.pattern not in patterns and each.pattern not in removed]
    for rules, stored in ((before, first), (kept + after, second)):
        assert {
            AclBinding(pattern, entry)
            for pattern, entries in stored.patterns()
            for entry in entries
        } == set(rules)
        expected = decide_slowly(rules, Policy(), *question)
        assert Matcher(stored, Policy()).allows(*question) == expected


# --- single rules, by name


def allows(fast: Matcher, name: str, operation: AclOperation = READ, host: str = HOST) -> bool:
    return fast.allows(ALICE, host, operation, TOPIC, name)


def test_super_user_passes_a_rule_that_denies_everyone() -> None:
    fast = by([rule("*", ALL, DENY, who=ANYONE)], Policy(frozenset({ALICE})))
    assert allows(fast, "t")
    assert fast.decide(ALICE, HOST, READ, TOPIC, "t") == AclDecision(True, Reason.SUPER_USER)
    assert fast.allows_any(ALICE, HOST, WRITE, TOPIC)
    assert not fast.allows(BOB, HOST, READ, TOPIC, "t")


def test_super_users_are_a_list_with_semicolons() -> None:
    dn = "User:CN=a,OU=b"
    assert parse_super_users(f"{dn}; User:bob;;") == {Principal("User", "CN=a,OU=b"), BOB}
    assert parse_super_users("") == frozenset()
    with pytest.raises(ValueError, match="expected a string in format principalType:"):
        parse_super_users("alice")


def test_wildcard_as_super_user_is_the_name_of_a_user() -> None:
    assert not allows(by([], Policy(frozenset({ANYONE}))), "t")


def test_without_rules_everyone_may_if_the_policy_says_so_and_nothing_names_the_resource() -> None:
    fast = by([rule("abc", who=BOB, how=PREFIXED)], Policy(allow_everyone=True))
    assert allows(fast, "ab")
    assert not allows(fast, "abcd")
    assert fast.decide(ALICE, HOST, READ, TOPIC, "ab").reason is Reason.NO_RULE_ALLOWED
    assert fast.decide(ALICE, HOST, READ, TOPIC, "abcd").reason is Reason.NO_RULE_MATCHES


def test_denied_read_leaves_describe_and_denied_describe_leaves_read() -> None:
    fast = by([rule("t", READ, DENY), rule("t", ALL)])
    assert allows(fast, "t", DESCRIBE)
    assert not allows(fast, "t", READ)
    fast = by([rule("t", DESCRIBE, DENY), rule("t", READ)])
    assert allows(fast, "t", READ)
    assert not allows(fast, "t", DESCRIBE)


def test_each_pair_of_operations_as_the_slow_matcher_decides() -> None:
    everything = list(AclOperation)[ALL:]
    for of_rule in everything:
        for rules in ([rule("t", of_rule)], [rule("t", of_rule, DENY), rule("t", ALL)]):
            fast = by(rules)
            for asked in everything[1:]:
                question = (ALICE, HOST, asked, TOPIC, "t")
                assert fast.allows(*question) == decide_slowly(rules, DEFAULT, *question)


@pytest.mark.parametrize(
    ("of_the_rule", "of_the_connection"),
    [
        ("0:0:0:0:0:0:0:1", "::1"),
        ("2001:DB8::a", "2001:db8:0:0:0:0:0:a"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
    ],
)
def test_address_of_a_rule_may_be_written_in_any_way(
    of_the_rule: str, of_the_connection: str
) -> None:
    fast = by([rule("t"), rule("t", READ, DENY, host=of_the_rule)])
    assert not allows(fast, "t", host=matcher.host_key(of_the_connection))  # type: ignore[attr-defined]
    assert allows(fast, "t", host="192.0.2.1")


def test_unreadable_pattern_denies_what_it_matches() -> None:
    damaged = ResourcePattern(TOPIC, "ab", PREFIXED)
    rules = RuleSet.of([rule("*", ALL)]).replaced({damaged: Unreadable("no JSON")})
    fast = Matcher(rules, Policy(frozenset({BOB}), allow_everyone=True))
    assert allows(fast, "a")
    assert not allows(fast, "abc")
    assert fast.allows(BOB, HOST, READ, TOPIC, "abc")
    assert fast.decide(ALICE, HOST, READ, TOPIC, "abc").reason is Reason.UNREADABLE
    assert Matcher(rules.replaced({damaged: ()}), Policy()).allows(ALICE, HOST, READ, TOPIC, "abc")


def test_group_with_an_empty_name_is_not_answered_for_the_whole_type() -> None:
    fast = by([rule("g", READ, kind=GROUP)])
    assert fast.allows_any(ALICE, HOST, READ, GROUP)
    assert not fast.allows(ALICE, HOST, READ, GROUP, "")


def remembered(fast: Matcher) -> int:
    clients = fast._clients.values()
    return sum(len(known) for client in clients for known in client.decided.values())


def test_remembered_decisions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matcher, "MAX_DECISIONS", 10)
    fast = by([rule("t", how=PREFIXED)])
    assert allows(fast, "t")
    assert remembered(fast) == 1
    for number in range(95):
        assert allows(fast, f"t{number}")
        assert not allows(fast, f"s{number}")
    assert remembered(fast) <= 10
    for number in range(95):
        assert not fast.allows(Principal("User", f"u{number}"), HOST, READ, TOPIC, "t")
    assert len(fast._clients) <= 10


def test_long_names_are_not_remembered() -> None:
    fast = by([rule("t", how=PREFIXED)])
    assert allows(fast, "t" * 30_000)
    assert not remembered(fast)


def test_prefixes_are_looked_up_by_length_not_one_by_one() -> None:
    rules = RuleSet.of([rule(f"team-{number:05}", how=PREFIXED) for number in range(5_000)])
    prefixed = rules._types[TOPIC].prefixed
    asked: list[str] = []

    class Counted(dict[str, matcher._PatternRules]):
        def get(self, name: str, default: object = None) -> object:  # type: ignore[override]
            asked.append(name)
            return super().get(name, default)  # type: ignore[arg-type]

    rules._types[TOPIC].prefixed = Counted(prefixed)
    fast = Matcher(rules, Policy())
    assert allows(fast, "team-00017.orders")
    assert not allows(fast, "team-1")
    assert asked == ["team-00017"]


def test_rules_of_a_type_count_by_their_own_operations() -> None:
    # As in Kafka, a rule to write is no rule to describe here, unless a name is asked first.
    fast = by([rule("t", WRITE)])
    assert fast.allows_any(ALICE, HOST, WRITE, TOPIC)
    assert not fast.allows_any(ALICE, HOST, DESCRIBE, TOPIC)
    assert by([rule("*", WRITE)]).allows_any(ALICE, HOST, DESCRIBE, TOPIC)


def test_rule_for_every_resource_of_a_type_is_not_covered_by_prefixes() -> None:
    denied = [rule("*", permission=DENY, how=PREFIXED), rule("h", permission=DENY, how=PREFIXED)]
    assert by([rule("*"), *denied]).allows_any(ALICE, HOST, READ, TOPIC)
    assert not by([rule("hat"), *denied]).allows_any(ALICE, HOST, READ, TOPIC)
