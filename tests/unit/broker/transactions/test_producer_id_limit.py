"""The limit on the producer ids of one principal."""

from contextlib import suppress
from typing import Any

import pytest

from barnabas.broker.server.context import RequestContext
from barnabas.broker.transactions import producer_id_limit
from barnabas.broker.transactions.producer_id_limit import ProducerIdCount, ProducerIdLimit
from barnabas.config.broker import BrokerConfig
from barnabas.protocol.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.init_producer_id import API
from barnabas.security.principal import ANONYMOUS, Principal, TokenPrincipal

ALICE, BOB, ROOT = (Principal("User", name) for name in ("alice", "bob", "root"))


class SuperUsers:
    """An authorizer that knows one super user."""

    def allows(self, *_: Any, **_options: Any) -> bool:
        return True

    def is_super_user(self, principal: Principal) -> bool:
        return principal == ROOT


class Rig:
    def __init__(self, limit: int = 10, expiration_ms: int = 100_000) -> None:
        self.now = 0.0
        self.configure(limit, expiration_ms)
        self.limit = ProducerIdLimit(lambda: self.config, lambda: self.now)

    def configure(self, limit: int, expiration_ms: int) -> None:
        keys = {
            "max.producer.ids.per.principal": str(limit),
            "producer.id.expiration.ms": str(expiration_ms),
        }
        self.config = BrokerConfig.from_properties({"log.dirs": "/data", **keys})

    def admit(self, principal: Principal = ALICE, **fields: Any) -> ProducerIdCount | None:
        context = RequestContext(API.key, 4, 1, "app", principal, "CLIENTS", "h", 1, 0, **fields)
        return self.limit.admit(context)

    def add(self, tries: int, principal: Principal = ALICE, **fields: Any) -> int:
        """Try to add ids; return how many were admitted."""
        added = 0
        for _ in range(tries):
            with suppress(KafkaError):
                count = self.admit(principal, **fields)
                added += 1
                if count is not None:
                    count.add()
        return added


def test_principal_is_refused_beyond_its_limit_and_others_are_not() -> None:
    rig = Rig()
    assert rig.add(15) == 10
    with pytest.raises(KafkaError) as refused:
        rig.admit()
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    assert rig.add(5, TokenPrincipal(*ALICE)) == 0
    assert rig.add(15, BOB) == 10
    assert rig.add(15, ANONYMOUS) == 10


def test_id_that_took_no_memory_does_not_count() -> None:
    rig = Rig()
    for _ in range(50):
        rig.admit()
    assert rig.add(15) == 10


def test_count_falls_to_nothing_within_the_expiration() -> None:
    rig = Rig()
    rig.add(10)
    rig.now = 9.0
    assert rig.add(5) == 0
    rig.now = 30.5
    assert rig.add(5) == 3
    rig.now = 1_000_000.0
    assert rig.add(15) == 10


def test_at_most_twice_the_limit_is_added_within_the_expiration() -> None:
    rig = Rig()
    added = 0
    for second in range(100):
        rig.now = float(second)
        added += rig.add(3)
    assert added <= 20


def test_new_limit_is_in_effect_at_once() -> None:
    rig = Rig()
    rig.add(10)
    rig.configure(20, 100_000)
    assert rig.add(15) == 10
    rig.configure(5, 100_000)
    assert rig.add(5) == 0


@pytest.mark.parametrize(
    ("principal", "fields", "admitted"),
    [
        (ROOT, {"asker": SuperUsers()}, 15),
        (ALICE, {"asker": SuperUsers()}, 10),
        (ROOT, {}, 10),
        (ANONYMOUS, {"inter_broker": True}, 15),
    ],
)
def test_super_users_and_brokers_have_no_limit(
    principal: Principal, fields: dict[str, Any], admitted: int
) -> None:
    assert Rig().add(15, principal, **fields) == admitted


def test_counts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_id_limit, "MAX_PRINCIPALS", 3)
    rig = Rig()
    for number in range(100):
        assert rig.add(1, Principal("User", f"user-{number}")) == 1
    assert len(rig.limit._counts) == 3
    assert rig.add(15, Principal("User", "user-99")) == 9
