"""The console's pages about users, rules and quotas, with names that would like to be code."""

import asyncio
from collections.abc import Iterator
from typing import Final

import pytest

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster as Client
from barnabas.client.security import connect_with
from barnabas.console.render import NONE
from barnabas.testing import Broker, allow, deny
from tests.support.running_console import RunningConsole

CODE: Final = "<script>alert(1)\"'><img src=x onerror=alert(2)>{{ 7*7 }}"
ALICE: Final = f"alice {CODE}"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    rules = [
        allow(ALICE, "Read", f"Topic:orders {CODE}"),
        deny(ALICE, "Read", f"Topic:orders {CODE}", host="10.1.2.3"),
        allow("bob", "Describe", "Cluster"),
    ]
    with Broker(users=[ALICE, "bob", "carol"], rules=rules) as broker:
        yield broker


@pytest.fixture(scope="module")
def console(broker: Broker) -> Iterator[RunningConsole]:
    settings = broker.settings().java()
    with RunningConsole(broker.bootstrap_servers, properties=settings) as console:
        yield console


def test_rules_are_listed_and_found(console: RunningConsole) -> None:
    answered = console.get("/security")
    assert answered.code == []
    assert f"User:{ALICE} * Read Allow Topic orders {CODE} Literal" in answered.words
    assert "3 rules." in answered.words
    assert "0 rules." in console.get("/security", q="carol").words
    assert "2 rules." in console.get("/security", q="ORDERS").words
    assert console.request("/security?show=secrets").status == 400


def test_users_and_quotas_are_listed_without_a_secret(
    broker: Broker, console: RunningConsole
) -> None:
    settings = broker.settings().java()

    async def limit() -> None:
        connect = connect_with(settings)
        async with Client(broker.bootstrap_servers, connect=connect) as client:
            entity = {"user": ALICE, "client-id": None}
            await Admin(client).alter_client_quotas(entity, {"producer_byte_rate": 1024.0})

    asyncio.run(limit())
    users = console.get("/security", show="users")
    assert f"{ALICE} SCRAM-SHA-256 4096 {ALICE} SCRAM-SHA-512 4096" in users.words
    assert broker.settings(ALICE).password not in users.text
    quotas = console.get("/security", show="quotas")
    assert f"{ALICE} <default> {NONE} producer_byte_rate 1024" in quotas.words
    assert users.code == quotas.code == []


def test_reason_of_a_decision_is_that_of_the_command(console: RunningConsole) -> None:
    def why(principal: str, name: str, **more: str) -> str:
        wanted = {"operation": "Read", "type": "Topic", "name": name, **more}
        answered = console.get("/security/why", principal=principal, **wanted)
        assert answered.code == []
        return answered.words

    orders = f"orders {CODE}"
    assert f"Allowed: ALLOW READ for User:{ALICE} from" in why(f"User:{ALICE}", orders)
    assert f"Denied: DENY READ for User:{ALICE} from host 10.1.2.3" in why(
        f"User:{ALICE}", orders, host="10.1.2.3"
    )
    assert "Denied: none of the 2 rules of the resource allows it" in why("User:bob", orders)
    assert "Allowed: User:admin is a super user" in why("User:admin", orders)
    assert "Allowed: ALLOW DESCRIBE for User:bob" in why(
        "User:bob", "", operation="Describe", type="Cluster"
    )
    assert "Allowed" not in console.get("/security/why").words
    for wrong in ("bob", "User:bob&operation=Fly", "User:bob&operation=Read&type=Topic"):
        assert console.request(f"/security/why?principal={wrong}").status == 400


def test_user_without_rights_learns_that_the_cluster_refuses(broker: Broker) -> None:
    settings = broker.settings("carol").java()
    with RunningConsole(broker.bootstrap_servers, properties=settings) as console:
        for kind in ("rules", "users", "quotas"):
            words = console.get("/security", show=kind).words
            assert "The cluster refuses: CLUSTER_AUTHORIZATION_FAILED" in words
        asked = console.get(
            "/security/why", principal="User:bob", operation="Read", type="Topic", name="x"
        )
        assert "The cluster refuses: CLUSTER_AUTHORIZATION_FAILED" in asked.words


def test_cluster_without_authorizer_says_so() -> None:
    with Broker() as broker, RunningConsole(broker.bootstrap_servers) as console:
        assert "everyone may do everything" in console.get("/security").words
        asked = console.get(
            "/security/why", principal="User:bob", operation="Read", type="Topic", name="x"
        )
        assert "everyone may do everything" in asked.words
        assert "0 users." in console.get("/security", show="users").words
