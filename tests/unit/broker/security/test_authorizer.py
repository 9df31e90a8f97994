"""The authorizer: decisions by the rules that this broker knows, and their audit log."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.broker.security import authorizer as module
from barnabas.broker.security.authorizer import (
    LINES_OF_CLIENT,
    LINES_OF_PRINCIPAL,
    MAX_LINES,
    Action,
    Authorizer,
)
from barnabas.broker.security.cluster_acls import ClusterAcls
from barnabas.broker.store.embedded import EmbeddedStore
from barnabas.security.acl.matcher import Policy, Reason, slot
from barnabas.security.acl.rules import AclFilter, AclOperation, ResourceType, new_rule
from barnabas.security.principal import Principal

ALICE, BOB, ROOT = (Principal("User", name) for name in ("alice", "bob", "root"))
HOST = "10.0.0.1"
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
TOPIC = ResourceType.TOPIC
POLICY = Policy(frozenset({ROOT}), allow_everyone=True)
READ_BY_ALICE = new_rule(2, "t", 3, "User:alice", "*", 3, 3)
WRITES_DENIED = new_rule(2, "*", 3, "User:*", "*", 4, 2)


class Timers:
    """Timers that a test fires."""

    def __init__(self) -> None:
        self.due: list[tuple[float, Callable[[], None]]] = []
        self.now = 0.0

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Any:
        self.due.append((self.now + seconds, callback))
        return callback

    async def pause(self) -> None: ...

    def second_ends(self, seconds: float = 1.0) -> None:
        self.now += seconds
        due = [callback for at, callback in self.due if at <= self.now]
        self.due = [each for each in self.due if each[0] > self.now]
        for callback in due:
            callback()


@pytest.fixture
def timers() -> Timers:
    return Timers()


@pytest.fixture
async def acls(store: EmbeddedStore) -> ClusterAcls:
    acls = ClusterAcls(store.session())
    await acls.start(lambda: None)
    await acls.create([READ_BY_ALICE, WRITES_DENIED])
    return acls


@pytest.fixture
def authorizer(acls: ClusterAcls, timers: Timers) -> Authorizer:
    return Authorizer(acls, POLICY, timers)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.INFO, logger=module.__name__)

    def lines() -> list[str]:
        texts = [each.getMessage() for each in caplog.records if each.name == module.__name__]
        caplog.clear()
        return texts

    return lines


def ask(authorizer: Authorizer, *actions: Action, who: Principal = ALICE) -> list[bool]:
    return [authorizer.allows(who, HOST, "Fetch", each) for each in actions]


async def test_each_action_is_answered_by_the_rules_in_force(
    authorizer: Authorizer, acls: ClusterAcls
) -> None:
    actions = Action(READ, TOPIC, "t"), Action(READ, TOPIC, "s"), Action(WRITE, TOPIC, "t")
    assert ask(authorizer, *actions) == [True, False, False]
    assert ask(authorizer, *actions, who=ROOT) == [True] * 3
    await acls.delete([AclFilter(TOPIC, "t")])
    assert ask(authorizer, *actions) == [False, False, False]
    await acls.delete([AclFilter()])
    assert ask(authorizer, *actions) == [True] * 3


async def test_without_loaded_rules_super_users_alone_are_allowed(
    store: EmbeddedStore, timers: Timers
) -> None:
    acls = ClusterAcls(store.session())
    authorizer = Authorizer(acls, POLICY, timers)
    action = Action(READ, TOPIC, "t")
    assert ask(authorizer, action) == [False]
    assert ask(authorizer, action, who=ROOT) == [True]
    assert authorizer.why(ALICE, HOST, action).reason is Reason.NOT_LOADED
    assert authorizer.why(ROOT, HOST, action).reason is Reason.SUPER_USER
    assert not authorizer.allows_any(ALICE, HOST, "InitProducerId", WRITE, TOPIC)
    await acls.start(lambda: None)
    assert ask(authorizer, action) == [True]


def test_denial_is_logged_once_with_its_rule_and_then_counted(
    authorizer: Authorizer, timers: Timers, lines: Callable[[], list[str]]
) -> None:
    for _ in range(3):
        ask(authorizer, Action(WRITE, TOPIC, "t"), Action(READ, TOPIC, "t"))
    assert lines() == [
        "denied principal='User:alice' host='10.0.0.1' api='Fetch' operation='Write' "
        "resource='Topic:t' rule='DENY WRITE for User:* from host * on LITERAL TOPIC *' "
        "reason='DenyRule'"
    ]
    timers.second_ends()
    assert lines() == ["more denied within a second denials=2 principals='User:alice 2'"]
    timers.second_ends()
    ask(authorizer, Action(WRITE, TOPIC, "t"))
    assert lines() == []
    timers.second_ends()
    assert lines() == ["more denied within a second denials=1 principals='User:alice 1'"]
    ask(authorizer, Action(READ, TOPIC, "s"))
    (line,) = lines()
    assert line.endswith("reason='DefaultDeny'")


def test_many_denials_make_a_few_lines_a_minute(
    authorizer: Authorizer, timers: Timers, lines: Callable[[], list[str]]
) -> None:
    """A client that asks for other names all the time fills no disk."""
    for second in range(60):
        ask(authorizer, *(Action(READ, TOPIC, f"{second}-{number}" * 500) for number in range(10)))
        timers.second_ends()
    shown = lines()
    full = [line for line in shown if line.startswith("denied ")]
    assert len(full) == LINES_OF_CLIENT
    assert all(len(line) < 500 for line in full)
    assert len(shown) <= LINES_OF_CLIENT + 60
    assert timers.due == []
    ask(authorizer, Action(READ, TOPIC, "another minute"))
    assert len(lines()) == 1


def test_noise_of_one_principal_does_not_hide_the_denials_of_another(
    authorizer: Authorizer, timers: Timers, lines: Callable[[], list[str]]
) -> None:
    for number in range(2 * MAX_LINES):
        authorizer.allows(
            ALICE, f"10.0.{number % 200}.1", "Fetch", Action(READ, TOPIC, f"{number}")
        )
    assert sum(line.startswith("denied ") for line in lines()) == LINES_OF_PRINCIPAL
    ask(authorizer, Action(READ, TOPIC, "t2"), Action(READ, TOPIC, "t2"), who=BOB)
    (line,) = lines()
    assert line.startswith("denied principal='User:bob'")
    timers.second_ends()
    noise = 2 * MAX_LINES - LINES_OF_PRINCIPAL
    assert lines() == [
        f"more denied within a second denials={noise + 1} "
        f"principals='User:alice {noise}, User:bob 1'"
    ]


def test_principals_of_the_audit_log_are_bounded(
    authorizer: Authorizer,
    timers: Timers,
    lines: Callable[[], list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_LINES", 20)
    monkeypatch.setattr(module, "MAX_COUNTED", 30)
    for number in range(100):
        ask(authorizer, Action(READ, TOPIC, "t2"), who=Principal("User", f"{number:03}" * 200))
    audit = authorizer._audit
    assert (len(audit._lines), len(audit._counted)) == (2 * 20 + 1, 30)
    timers.second_ends()
    *full, line = lines()
    assert len(full) == 20
    assert line.startswith("more denied within a second denials=80 principals='User:020020")
    assert line.endswith("others=75")
    assert len(line) < 2000


def test_remembered_denials_are_bounded(
    authorizer: Authorizer, timers: Timers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_REMEMBERED", 20)
    for number in range(100):
        ask(authorizer, Action(READ, TOPIC, f"s{number}"))
        timers.second_ends(60)
    assert len(authorizer._audit._known) <= 20


def test_actions_that_decide_what_is_shown_are_not_logged(
    authorizer: Authorizer, lines: Callable[[], list[str]]
) -> None:
    hidden = Action(DESCRIBE, TOPIC, "s")
    assert not authorizer.allows(ALICE, HOST, "Metadata", hidden, log_denied=False)
    assert lines() == []


def test_allowed_actions_are_logged_for_the_search_of_a_fault(
    authorizer: Authorizer, lines: Callable[[], list[str]], caplog: pytest.LogCaptureFixture
) -> None:
    ask(authorizer, Action(READ, TOPIC, "t"))
    assert lines() == []
    caplog.set_level(logging.DEBUG, logger=module.__name__)
    ask(authorizer, Action(READ, TOPIC, "t"), Action(READ, TOPIC, "s"))
    allowed, denied = lines()
    assert denied.startswith("denied ")
    assert allowed.startswith("allowed principal='User:alice'")


def test_idempotent_producer_needs_one_topic_that_it_may_write(
    authorizer: Authorizer, lines: Callable[[], list[str]]
) -> None:
    assert authorizer.allows_any(ALICE, HOST, "InitProducerId", READ, TOPIC)
    assert not authorizer.allows_any(ALICE, HOST, "InitProducerId", WRITE, TOPIC)
    (line,) = lines()
    assert line.startswith("denied principal='User:alice' host='10.0.0.1' api='InitProducerId'")
    assert authorizer.allows_any(ROOT, HOST, "InitProducerId", WRITE, TOPIC)


async def test_decisions_are_remembered_until_the_rules_change_and_not_while_they_are_logged(
    authorizer: Authorizer, acls: ClusterAcls, caplog: pytest.LogCaptureFixture
) -> None:
    key = slot(READ, TOPIC)
    ask(authorizer, Action(READ, TOPIC, "t"), Action(READ, TOPIC, "s"))
    assert authorizer.decided(ALICE, HOST)[key] == {"t": True, "s": False}
    assert not authorizer.decided(ROOT, HOST)
    assert not authorizer.decided(ALICE, "10.0.0.2")
    with caplog.at_level(logging.DEBUG, logger=module.__name__):
        assert not authorizer.decided(ALICE, HOST)
    await acls.delete([AclFilter(TOPIC, "t")])
    assert not authorizer.decided(ALICE, HOST)
