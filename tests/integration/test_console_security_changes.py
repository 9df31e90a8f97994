"""Changes of rules, quotas and users by the console: shown first, and done as they were shown."""

import asyncio
import html
import logging
import re
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

import pytest

from barnabas.client.admin import Admin
from barnabas.client.cluster import Cluster
from barnabas.client.connection import AuthenticationError
from barnabas.client.security import connect_with
from barnabas.client.user_admin import UserAdmin
from barnabas.console.render import NONE
from barnabas.security.acl.rules import AclFilter
from barnabas.security.sasl.credentials import ScramMechanism
from barnabas.testing import Broker, allow, deny
from tests.support.running_console import Answered, RunningConsole, confirmation

T = TypeVar("T")
CODE: Final = "<script>alert(1)\"'>&{{ 7*7 }}"
EVE: Final = f"eve {CODE}"
RULE: Final = {
    "principal": f"User:{EVE}",
    "permission": "Allow",
    "operation": "Read",
    "type": "Topic",
    "name": f"orders {CODE}",
    "pattern": "Literal",
}
PASSWORD: Final = "geheim <ä> & more"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(users=["carol"], rules=[allow("bob", "Describe", "Cluster")]) as broker:
        yield broker


@pytest.fixture(scope="module")
def console(broker: Broker) -> Iterator[RunningConsole]:
    settings = broker.settings().java()
    with RunningConsole(
        broker.bootstrap_servers, properties=settings, allow_changes=True
    ) as console:
        yield console


def manage(broker: Broker, work: Callable[[Cluster], Awaitable[T]]) -> T:
    async def managed() -> T:
        connect = connect_with(broker.settings().java())
        async with Cluster(broker.bootstrap_servers, connect=connect) as cluster:
            return await work(cluster)

    return asyncio.run(managed())


def rules(broker: Broker) -> set[str]:
    found = manage(broker, lambda cluster: Admin(cluster).describe_acls(AclFilter()))
    return {str(each) for each in found}


def quotas(broker: Broker) -> list[Any]:
    return manage(broker, lambda cluster: Admin(cluster).describe_client_quotas({}))


def passwords(broker: Broker, name: str) -> dict[ScramMechanism, int]:
    found = manage(broker, lambda cluster: UserAdmin(cluster).describe_users([name]))
    return found.get(name, {})


def logs_in(broker: Broker, user: str, password: str) -> bool:
    """Whether the brokers take a password."""
    account = {"sasl.username": user, "sasl.password": password}
    known = {**broker.settings().java(), **account, "sasl.mechanism": "SCRAM-SHA-512"}
    del known["sasl.jaas.config"]

    async def ask() -> None:
        async with Cluster(broker.bootstrap_servers, connect=connect_with(known)) as cluster:
            await cluster.refresh()

    try:
        asyncio.run(ask())
    except AuthenticationError:
        return False
    return True


def ask(console: RunningConsole, path: str, **parameters: object) -> Answered:
    return console.request(f"{path}?{urlencode(parameters)}")


def link(answered: Answered, path: str, *texts: str) -> str:
    """Return the one link to a path whose address has all these texts."""
    found = {
        each
        for each in answered.links
        if each.startswith(f"{path}?") and all(text in each for text in texts)
    }
    assert len(found) == 1, answered.links
    return found.pop()


def confirm(console: RunningConsole, shown: Answered, **typed: str) -> Answered:
    assert shown.status == 200, shown.words
    assert shown.code == []
    address, fields = confirmation(shown)
    return console.post(address, **fields, **typed)


def test_rule_is_added_and_removed_after_dry_runs(broker: Broker, console: RunningConsole) -> None:
    before, text = rules(broker), f"READ for User:{EVE} from host * on LITERAL TOPIC orders {CODE}"
    assert "/security/rule" in console.get("/security").links
    shown = ask(console, "/security/rule", **{**RULE, "principal": f" User:{EVE} "})
    assert f"A rule will be added: ALLOW {text}" in shown.words
    assert f"User:{EVE} * Read Allow Topic orders {CODE} Literal" in shown.words
    assert rules(broker) == before
    assert "The rule was added" in confirm(console, shown).words
    assert rules(broker) == before | {f"ALLOW {text}"}
    again = ask(console, "/security/rule", **RULE)
    assert (again.status, "there is this rule already" in again.words) == (400, True)
    shown = console.request(link(console.get("/security"), "/security/rule/remove", "eve"))
    assert "What only this rule allows is denied then" in shown.words
    assert "The rule was removed" in confirm(console, shown).words
    assert rules(broker) == before
    gone = ask(console, "/security/rule/remove", **RULE)
    assert (gone.status, "there is no such rule" in gone.words) == (400, True)


def test_only_the_rule_that_was_shown_is_removed(broker: Broker, console: RunningConsole) -> None:
    near = [
        deny("dan", "Read", "Topic:a"),
        allow("dan", "Read", "Topic:a", host="10.0.0.1"),
        allow("dan", "Read", "Topic:a*"),
        allow("dan", "Write", "Topic:a"),
        allow("dan", "Read", "Group:a"),
        allow("dan2", "Read", "Topic:a"),
    ]
    chosen = allow("dan", "Read", "Topic:a")
    manage(broker, lambda cluster: Admin(cluster).create_acls([*near, chosen]))
    before = rules(broker)
    wanted = {**RULE, "principal": "User:dan", "name": "a", "host": "*"}
    confirm(console, ask(console, "/security/rule/remove", **wanted))
    assert before - rules(broker) == {str(chosen)}
    assert ask(console, "/security/rule/remove", **wanted).status == 400


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"principal": "eve"}, "did you mean User:eve? Principal"),
        ({"operation": "Fly"}, "'Fly' is not one of All, Read"),
        ({"type": "Planet"}, "'Planet' is not one of Topic"),
        ({"name": ""}, "Invalid empty resource name"),
        ({"pattern": "Match"}, "'Match' is not one of Literal, Prefixed"),
        ({"permission": "Any"}, "'Any' is not one of Allow, Deny"),
        ({"operation": "IdempotentWrite"}, "only supports operations"),
    ],
)
def test_rule_that_is_wrong_says_why(
    broker: Broker, console: RunningConsole, changed: dict[str, str], why: str
) -> None:
    before = rules(broker)
    answered = ask(console, "/security/rule", **{**RULE, **changed})
    assert (answered.status, why in answered.words) == (400, True), answered.words
    assert answered.code == []
    assert rules(broker) == before


def test_rule_of_the_cluster_needs_no_name(console: RunningConsole) -> None:
    wanted = {**RULE, "type": "Cluster", "operation": "Alter", "name": "", "host": "10.0.0.9"}
    shown = ask(console, "/security/rule", **wanted)
    assert "from host 10.0.0.9 on LITERAL CLUSTER kafka-cluster" in shown.words


def test_quota_is_set_changed_and_removed_after_dry_runs(
    broker: Broker, console: RunningConsole
) -> None:
    assert "/security/quota" in console.get("/security", show="quotas").links
    key, entity = "producer_byte_rate", {"user": EVE, "client_id": "<default>"}
    shown = ask(console, "/security/quota", **entity, quota=key, value="1MB")
    assert f"{key} of user {EVE}, every client-id without quotas of its own" in shown.words
    assert f"{key} {NONE} 1048576 bytes a second of Produce requests" in shown.words
    assert quotas(broker) == []
    assert "was set" in confirm(console, shown).words
    assert quotas(broker) == [({"user": EVE, "client-id": None}, {key: 1048576.0})]
    listed = console.get("/security", show="quotas")
    # The link of a row asks for the new value first.
    form = console.request(link(listed, "/security/quota"))
    assert "will be" not in form.words
    assert EVE in html.unescape(form.text)
    shown = ask(console, "/security/quota", **entity, quota=key, value="2000")
    assert f"{key} 1048576 2000" in shown.words
    other = ask(console, "/security/quota", **entity, quota=key, value="3000")
    assert "was set" in confirm(console, shown).words
    answered = confirm(console, other)
    assert (answered.status, "has changed since" in answered.words) == (409, True)
    shown = console.request(link(listed, "/security/quota/remove"))
    assert f"{key} 2000 {NONE}" in shown.words
    assert "was removed" in confirm(console, shown).words
    assert quotas(broker) == []


@pytest.mark.parametrize(
    ("parameters", "why"),
    [
        ({"value": "1"}, "name a user, a client id or an address"),
        ({"user": "a", "value": "fast"}, "producer_byte_rate=fast is not a number"),
        ({"user": "a", "value": "0"}, "is not a number greater than 0"),
        ({"user": "a", "value": "1", "quota": "no_such"}, "INVALID_REQUEST"),
        ({"ip": "10.0.0.1", "value": "1"}, "INVALID_REQUEST"),
        ({"user": "a", "ip": "10.0.0.1", "value": "1"}, "INVALID_REQUEST"),
    ],
)
def test_quota_that_is_wrong_says_why(
    broker: Broker, console: RunningConsole, parameters: dict[str, str], why: str
) -> None:
    answered = ask(console, "/security/quota", **{"quota": "producer_byte_rate", **parameters})
    assert answered.status >= 400
    assert why in answered.words
    gone = ask(console, "/security/quota/remove", user="a", quota="producer_byte_rate")
    assert (gone.status, "user a has no quota" in gone.words) == (400, True)
    assert quotas(broker) == []


def test_user_is_created_changed_and_deleted_after_dry_runs(
    broker: Broker, console: RunningConsole, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    name = f"frank {CODE}"
    assert "/security/user" in console.get("/security", show="users").links
    shown = ask(console, "/security/user", user=name, mechanism="SCRAM-SHA-512")
    assert f"The user {name} will be created" in shown.words
    assert "SCRAM-SHA-256 no no SCRAM-SHA-512 no the new one" in shown.words
    assert passwords(broker, name) == {}
    done = confirm(console, shown, password=PASSWORD, again=PASSWORD)
    assert f"The password of {name} was set for SCRAM-SHA-512." in done.words
    assert passwords(broker, name) == {ScramMechanism.SHA_512: 4096}
    assert logs_in(broker, name, PASSWORD)
    shown = ask(console, "/security/user", user=name)
    assert f"The password of the user {name} will be changed" in shown.words
    other = "another <ü>"
    assert "was set" in confirm(console, shown, password=other, again=other).words
    assert not logs_in(broker, name, PASSWORD)
    assert logs_in(broker, name, other)
    listed = console.get("/security", show="users")
    shown = console.request(link(listed, "/security/user/delete", "frank", "SHA-256"))
    assert "The one for SCRAM-SHA-512 stays" in shown.words
    assert "was deleted" in confirm(console, shown).words
    assert passwords(broker, name) == {ScramMechanism.SHA_512: 4096}
    shown = ask(console, "/security/user/delete", user=name)
    assert "The user cannot log in by SCRAM then" in shown.words
    assert "was deleted" in confirm(console, shown).words
    assert passwords(broker, name) == {}
    assert ask(console, "/security/user/delete", user=name).status == 400
    for secret in (PASSWORD, other, "geheim", "another+"):
        assert secret not in caplog.text
        assert secret not in done.text + listed.text


def test_hash_is_not_made_weaker(broker: Broker, console: RunningConsole) -> None:
    manage(
        broker,
        lambda cluster: UserAdmin(cluster).set_password("gina", "x", ScramMechanism.SHA_256, 8192),
    )
    shown = ask(console, "/security/user", user="gina")
    confirm(console, shown, password=PASSWORD, again=PASSWORD)
    assert passwords(broker, "gina") == {ScramMechanism.SHA_256: 8192, ScramMechanism.SHA_512: 4096}


@pytest.mark.parametrize(
    ("typed", "status", "why"),
    [
        ({"password": "a", "again": "b"}, 400, "the two passwords are not the same"),
        ({"password": "", "again": ""}, 400, "the password is empty"),
        ({"password": "a"}, 403, "no valid token"),
        ({}, 403, "no valid token"),
    ],
)
def test_password_that_is_not_typed_twice_is_not_set(
    broker: Broker, console: RunningConsole, typed: dict[str, str], status: int, why: str
) -> None:
    shown = ask(console, "/security/user", user="henry")
    answered = confirm(console, shown, **typed)
    assert (answered.status, why in answered.words) == (status, True), answered.words
    assert passwords(broker, "henry") == {}
    # The page leads back to its dry run, and is not replaced before it is read.
    assert "/security/user?user=henry" in answered.links
    assert 'id="live"' not in answered.text


def test_user_that_cannot_be_changed_says_why(console: RunningConsole) -> None:
    for wanted, why in (
        ({"user": "henry "}, "begins or ends with a space"),
        ({"user": "henry", "mechanism": "PLAIN"}, "PLAIN is no mechanism of SCRAM"),
    ):
        answered = ask(console, "/security/user", **wanted)
        assert (answered.status, why in answered.words) == (400, True)


def test_password_is_not_asked_for_where_the_network_would_read_it(broker: Broker) -> None:
    settings = broker.settings().java()
    options: dict[str, Any] = {"properties": settings, "allow_changes": True, "host": "0.0.0.0"}
    with RunningConsole(broker.bootstrap_servers, **options) as console:
        answered = ask(console, "/security/user", user="henry")
        assert answered.status == 400
        assert "only where the network cannot read it" in answered.words
        assert 'type="password"' not in answered.text
    with RunningConsole(broker.bootstrap_servers, **options, behind_proxy=True) as console:
        assert ask(console, "/security/user", user="henry").status == 200


def test_changes_of_security_need_their_token_and_the_option(
    broker: Broker, console: RunningConsole
) -> None:
    before = rules(broker), quotas(broker)
    wanted = {
        "/security/rule": RULE,
        "/security/quota": {"user": "a", "quota": "request_percentage", "value": "5"},
        "/security/user": {"user": "henry"},
    }
    for path, parameters in wanted.items():
        address, fields = confirmation(ask(console, path, **parameters))
        typed = {"password": "x", "again": "x"} if "user" in path else {}
        for name in fields:
            assert console.post(address, **{**fields, **typed, name: "x"}).status == 403
        foreign = {"Origin": "http://other.example"}
        assert console.post(address, foreign, **fields, **typed).status == 403
    settings = broker.settings().java()
    with RunningConsole(broker.bootstrap_servers, properties=settings) as reads_only:
        for kind in ("rules", "quotas", "users"):
            page = reads_only.get("/security", show=kind)
            assert not re.search(r"/security/(rule|quota|user)", page.text)
        removals = ("/security/rule/remove", "/security/quota/remove", "/security/user/delete")
        for path in (*wanted, *removals):
            assert reads_only.request(path).status == 404
            assert reads_only.post(path).status == 405
    assert (rules(broker), quotas(broker)) == before
    assert passwords(broker, "henry") == {}


def test_user_without_rights_changes_nothing(broker: Broker) -> None:
    settings = broker.settings("carol").java()
    options: dict[str, Any] = {"properties": settings, "allow_changes": True}
    before = rules(broker)
    with RunningConsole(broker.bootstrap_servers, **options) as console:
        quota = {"user": "carol", "quota": "producer_byte_rate", "value": "9"}
        for path, parameters in (
            ("/security/rule", RULE),
            ("/security/quota", quota),
            ("/security/user", {"user": "carol"}),
            ("/security/user/delete", {"user": "admin"}),
        ):
            answered = ask(console, path, **parameters)
            assert answered.status == 502
            assert "CLUSTER_AUTHORIZATION_FAILED" in answered.words
    assert rules(broker) == before
