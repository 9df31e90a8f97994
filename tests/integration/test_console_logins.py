"""Logins at the console: the brokers check the password, and the rights of the user decide."""

import http.client
import logging
import re
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from barnabas.client.connection import Login
from barnabas.client.sasl import only_asking
from barnabas.console import sessions
from barnabas.console.settings import ConsoleSettings
from barnabas.security.authority import Authority
from barnabas.testing import Broker, allow
from tests.support.running_console import Answered, RunningConsole, confirmation
from tests.support.waiting import until
from tests.support.web_tokens import Issuer

ALICE: Final = "alice <b>&\"'"
PASSWORD: Final = "säcret ${x:y} & more"
BY_A_PAGE: Final = {"HX-Request": "true"}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    users = {ALICE: PASSWORD, "bob": "of bob", "carol": "of carol"}
    rules = [
        allow(ALICE, "Read", "Topic:orders"),
        allow(ALICE, "Describe", "Cluster"),
        allow(ALICE, "Read", "Group:readers"),
        allow("bob", "Describe", "Topic:bills"),
    ]
    with Broker(users=users, rules=rules) as broker:
        for name in ("orders", "bills", "secrets"):
            broker.create_topic(name)
        broker.produce("orders", "a value")
        yield broker


def without_user(broker: Broker) -> dict[str, str]:
    keys = broker.settings().java()
    return {key: text for key, text in keys.items() if not key.startswith("sasl.")}


@pytest.fixture(scope="module")
def console(broker: Broker) -> Iterator[RunningConsole]:
    options: dict[str, Any] = {"properties": without_user(broker), "allow_changes": True}
    with RunningConsole(broker.bootstrap_servers, **options) as console:
        yield console


class Visitor:
    """A browser with its cookie."""

    def __init__(self, console: RunningConsole) -> None:
        self._console = console
        self.cookie = ""

    def log_in(self, user: str, password: str, next: str = "") -> Answered:
        return self.send(f"/login?next={next}" if next else "/login", user=user, password=password)

    def send(self, path: str, **fields: str) -> Answered:
        """Send the form of a login, and keep the cookie."""
        answered = self._console.post(path, self._headers(), **fields)
        if found := answered.headers.get("Set-Cookie"):
            self.cookie = found.partition(";")[0]
        return answered

    def ask(self, path: str, **headers: str) -> Answered:
        return self._console.request(path, headers=self._headers() | headers)

    def see(self, path: str) -> str:
        answered = self.ask(path)
        assert answered.status == 200, answered.words
        assert answered.code == []
        return answered.words

    def post(self, path: str, **fields: str) -> Answered:
        return self._console.post(path, self._headers(), **fields)

    def _headers(self) -> dict[str, str]:
        return {"Cookie": self.cookie} if self.cookie else {}


@pytest.fixture
def visitor(console: RunningConsole) -> Visitor:
    return Visitor(console)


def entered(console: RunningConsole, user: str, password: str) -> Visitor:
    visitor = Visitor(console)
    assert visitor.log_in(user, password).status == 303
    return visitor


def test_without_a_login_every_page_leads_to_its_form(visitor: Visitor) -> None:
    answered = visitor.ask("/topic?name=a%26b&end=on")
    assert answered.status == 303
    assert answered.headers["Location"] == "/login?next=%2Ftopic%3Fname%3Da%2526b%26end%3Don"
    form = visitor.ask("/login")
    assert form.status == 200
    assert "Overview" not in form.words
    assert visitor.ask("/", **BY_A_PAGE).status == 401
    assert visitor.ask("/live").status == 401
    assert visitor.post("/group/reset?id=readers&way=to_earliest").status == 401


def test_rights_of_each_user_decide_what_is_seen(console: RunningConsole, broker: Broker) -> None:
    alice = entered(console, ALICE, PASSWORD)
    bob = entered(console, "bob", "of bob")
    admin = entered(console, "admin", broker.settings().password)
    for _ in range(2):
        seen = {who: who.see("/topics") for who in (alice, bob, admin)}
        names = {
            who: {each for each in ("orders", "bills", "secrets") if each in words}
            for who, words in seen.items()
        }
        assert names == {
            alice: {"orders"},
            bob: {"bills"},
            admin: {"orders", "bills", "secrets"},
        }
    assert ALICE in seen[alice]
    assert "a value" in alice.see("/records?topic=orders")
    refused = bob.ask("/records?topic=orders")
    assert refused.status in (404, 502)
    assert "a value" not in refused.text
    assert "everyone" not in admin.see("/security")
    assert "The cluster refuses" in bob.see("/security")


def test_pages_are_there_for_a_user_with_few_rights(console: RunningConsole) -> None:
    bob = entered(console, "bob", "of bob")
    assert "The health cannot be checked: CLUSTER_AUTHORIZATION_FAILED" in bob.see("/")
    for path in (
        "/brokers",
        "/topic?name=bills",
        "/topic?name=bills&end=on",
        "/groups",
        "/transactions",
        "/pipelines",
        "/timeline",
    ):
        bob.see(path)


def test_rights_of_each_user_decide_what_is_changed(console: RunningConsole) -> None:
    alice = entered(console, ALICE, PASSWORD)
    bob = entered(console, "bob", "of bob")
    wanted = "/group/reset?id=readers&way=to_earliest&topic=orders"
    assert bob.ask(wanted).status == 502
    address, fields = confirmation(alice.ask(wanted))
    # A confirmation is for the session that has seen it.
    assert bob.post(address, **fields).status == 403
    assert "were reset" in alice.post(address, **fields).words


@pytest.mark.parametrize(
    ("user", "password"),
    [
        ("bob", "wrong"),
        ("unknown", "wrong"),
        ("bob", "of bob "),
        ("bob\0x", "of bob"),
        ("=,", "a1b2c3"),
    ],
)
def test_wrong_password_is_one_sentence(visitor: Visitor, user: str, password: str) -> None:
    answered = visitor.log_in(user, password)
    assert answered.status == 401
    assert "The brokers refuse this user name or this password." in answered.words
    assert "Set-Cookie" not in answered.headers
    assert password not in answered.text


@pytest.mark.parametrize(
    "fields",
    [{"user": "bob"}, {"user": "bob", "password": "x", "more": "y"}, {}],
)
def test_form_that_is_not_whole_is_refused(visitor: Visitor, fields: dict[str, str]) -> None:
    assert visitor.post("/login", **fields).status == 400


def test_password_is_in_no_log_no_page_and_no_address(
    console: RunningConsole, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    Visitor(console).log_in(ALICE, "not the password")
    alice = entered(console, ALICE, PASSWORD)
    alice.see("/")
    alice.post("/logout")
    assert f"{ALICE!r} at 127.0.0.1 has logged in" in caplog.text
    assert f"{ALICE!r} at 127.0.0.1 has logged out" in caplog.text
    assert "127.0.0.1 is refused" in caplog.text
    for secret in (PASSWORD, "s%C3%A4cret", "not the password", "not+the"):
        assert secret not in caplog.text


def test_cookie_is_new_at_each_login_and_closed_to_scripts(visitor: Visitor) -> None:
    first = visitor.log_in("bob", "of bob")
    found = first.headers["Set-Cookie"]
    assert "; HttpOnly" in found
    assert "; SameSite=strict" in found
    assert "; Path=/" in found
    assert "Domain" not in found
    assert "Secure" not in found
    before = visitor.cookie
    visitor.log_in("bob", "of bob")
    assert visitor.cookie != before
    visitor.cookie = before
    # The login has ended the session that the browser had.
    assert visitor.ask("/").status == 303


@pytest.mark.parametrize(
    ("wanted", "to"),
    [
        ("%2Ftopic%3Fname%3Dbills", "/topic?name=bills"),
        ("%2F%2Fother.example", "/"),
        ("%2F%5Cother.example", "/"),
        ("https%3A%2F%2Fother.example", "/"),
        ("%2F%0D%0AX%3A", "/"),
    ],
)
def test_login_leads_to_the_page_that_was_asked_for(visitor: Visitor, wanted: str, to: str) -> None:
    assert visitor.log_in("bob", "of bob", wanted).headers["Location"] == to


def test_logout_ends_the_session(visitor: Visitor) -> None:
    visitor.log_in("bob", "of bob")
    visitor.see("/")
    assert visitor.ask("/logout").status == 405
    answered = visitor.post("/logout")
    assert answered.headers["Location"] == "/login"
    assert "Max-Age=0" in answered.headers["Set-Cookie"]
    assert visitor.ask("/").status == 303


@pytest.mark.parametrize("path", ["/login", "/logout"])
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://other.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Host": "other.example"},
    ],
)
def test_form_of_another_site_does_not_log_in_or_out(
    console: RunningConsole, path: str, headers: dict[str, str]
) -> None:
    answered = console.post(path, headers, user="bob", password="of bob")
    assert answered.status in (403, 421)
    assert "Set-Cookie" not in answered.headers


def test_session_ends_when_no_person_uses_it(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "IDLE_S", 3.0)
    with RunningConsole(broker.bootstrap_servers, properties=without_user(broker)) as console:
        bob = entered(console, "bob", "of bob")
        # What a page asks for by itself does not count.
        until(lambda: bob.ask("/", **BY_A_PAGE).status == 401)
        assert bob.ask("/").status == 303


def test_sessions_are_bounded(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MOST_SESSIONS", 3)
    monkeypatch.setattr(sessions, "MOST_OF_A_USER", 2)
    with RunningConsole(broker.bootstrap_servers, properties=without_user(broker)) as console:
        bobs = [entered(console, "bob", "of bob") for _ in range(3)]
        assert [each.ask("/").status for each in bobs] == [303, 200, 200]
        entered(console, ALICE, PASSWORD)
        late = Visitor(console)
        answered = late.log_in("carol", "of carol")
        assert answered.status == 503
        assert "Too many persons are logged in" in answered.words
        bobs[-1].post("/logout")
        assert late.log_in("carol", "of carol").status == 303


def test_console_with_a_certificate_serves_https(broker: Broker, tmp_path: Path) -> None:
    authority = Authority.new("console")
    certificate, trusted = tmp_path / "console.pem", tmp_path / "ca.pem"
    certificate.write_bytes(authority.issue("console", ["127.0.0.1"]))
    trusted.write_bytes(authority.pem)
    options: dict[str, Any] = {"certificate_file": str(certificate)}
    with RunningConsole(
        broker.bootstrap_servers, properties=without_user(broker), **options
    ) as console:
        assert console.url.startswith("https://127.0.0.1:")
        connection = http.client.HTTPSConnection(
            console.host, timeout=60, context=ssl.create_default_context(cafile=str(trusted))
        )
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        connection.request("POST", "/login", "user=bob&password=of+bob", kind)
        found = connection.getresponse().headers["Set-Cookie"]
        connection.close()
    assert re.match(r"__Host-session-\w+=", found)
    assert "; Secure" in found


SASL: Final = {"security.protocol": "SASL_SSL"}
TOKENS: Final = "sasl.oauthbearer.token.endpoint.url"


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "console.example"])
def test_logins_at_other_addresses_need_tls(host: str) -> None:
    def settings(**options: Any) -> ConsoleSettings:
        return ConsoleSettings(bootstrap="localhost:1", host=host, **options)

    with pytest.raises(ValueError, match="would show passwords to the network"):
        settings(properties=SASL).require_safety()
    settings(properties=SASL, behind_proxy=True).require_safety()
    settings(properties=SASL, certificate_file="console.pem").require_safety()
    settings(properties={**SASL, "sasl.username": "a"}).require_safety()
    settings().require_safety()


def test_levers_are_refused_beside_logins() -> None:
    options: dict[str, Any] = {"properties": SASL, "faults": "localhost:2"}
    with pytest.raises(ValueError, match="levers ask for no rights"):
        ConsoleSettings(bootstrap="localhost:1", **options).require_safety()


@pytest.mark.parametrize(
    ("properties", "has"),
    [
        ({}, False),
        ({"security.protocol": "SSL"}, False),
        ({"security.protocol": "sasl_plaintext"}, True),
        ({**SASL, "sasl.mechanism": "PLAIN"}, True),
        ({**SASL, "sasl.jaas.config": "x"}, False),
        ({**SASL, "sasl.mechanism": "GSSAPI"}, False),
        ({**SASL, "sasl.mechanism": "OAUTHBEARER"}, True),
        ({**SASL, "sasl.mechanism": "OAUTHBEARER", TOKENS: "file:///token"}, False),
    ],
)
def test_logins_are_for_a_client_without_user(properties: dict[str, str], has: bool) -> None:
    options: dict[str, Any] = {"properties": properties}
    assert ConsoleSettings(bootstrap="localhost:1", **options).has_logins is has


JAAS: Final = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="x" password="y" '
    'user_x="y";'
)


def plain_broker(**more: str) -> Broker:
    return Broker(
        {
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
            "security.inter.broker.protocol": "SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
            **more,
        }
    )


def test_plain_without_tls_is_used_only_if_it_is_named() -> None:
    protocol = {"security.protocol": "SASL_PLAINTEXT"}
    with plain_broker() as broker:
        with RunningConsole(broker.bootstrap_servers, properties=protocol) as console:
            answered = Visitor(console).log_in("x", "y")
            assert answered.status == 401
            assert "they offer PLAIN" in answered.words
        named = {**protocol, "sasl.mechanism": "PLAIN"}
        with RunningConsole(broker.bootstrap_servers, properties=named) as console:
            assert "Brokers 1" in entered(console, "x", "y").see("/")
            assert Visitor(console).log_in("x", "z").status == 401


def test_login_by_a_token_has_the_rights_and_the_end_of_its_user(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    issuer = Issuer()
    keys = {
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": issuer.write(tmp_path / "keys.json"),
        "sasl.oauthbearer.expected.audience": "kafka",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:x;User:{ALICE}",
    }
    protocol = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    caplog.set_level(logging.DEBUG)

    def log_in(token: str) -> tuple[Visitor, Answered]:
        visitor = Visitor(console)
        return visitor, visitor.send("/login", token=token)

    with (
        plain_broker(**keys) as broker,
        RunningConsole(broker.bootstrap_servers, properties=protocol) as console,
    ):
        form = Visitor(console).ask("/login").text
        assert 'name="token" type="password"' in form
        assert 'name="user"' not in form
        good = issuer.token(ALICE, aud="kafka")
        alice, answered = log_in(f" {good}\n")
        assert answered.status == 303
        assert "Brokers 1" in alice.see("/")
        assert ALICE in alice.see("/")
        assert f"{ALICE!r} at 127.0.0.1 has logged in" in caplog.text
        bob, _ = log_in(issuer.token("bob", aud="kafka"))
        assert "The cluster refuses" in bob.see("/security")
        bad = {
            "another": issuer.token(ALICE, aud="another"),
            "old": issuer.token(ALICE, aud="kafka", lasts_s=-100),
            "foreign": Issuer().token(ALICE, aud="kafka"),
            "text": "no token at all",
        }
        for token in bad.values():
            refused = log_in(token)[1]
            assert refused.status == 401
            assert "The brokers refuse this token." in refused.words
            assert "Set-Cookie" not in refused.headers
            assert token not in refused.text
        assert log_in("")[1].status == 400
        assert Visitor(console).log_in("x", "y").status == 400
        short, _ = log_in(issuer.token(ALICE, aud="kafka", lasts_s=2))
        until(lambda: short.ask("/topics").status != 200)
        # The client has to log in again, and the token is too old: the session is over.
        assert until(lambda: short.ask("/topics").status == 303)
        for token in (good, *bad.values()):
            assert token not in caplog.text


def test_mechanisms_are_asked_for_once_and_again_after_they_changed(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0

    def offering(offered: list[str]) -> Login:
        nonlocal asked
        asked += 1
        if asked > 1:
            return only_asking(offered)
        # As if the brokers had offered only this before.
        offered.append("PLAIN")
        return only_asking([])

    monkeypatch.setattr(sessions, "only_asking", offering)
    with RunningConsole(broker.bootstrap_servers, properties=without_user(broker)) as console:
        answered = Visitor(console).log_in("bob", "of bob")
        assert answered.status == 401
        assert "does not offer the mechanism PLAIN" in answered.words
        for _ in range(3):
            entered(console, "bob", "of bob")
    assert asked == 2


def test_brokers_that_do_not_answer_are_said() -> None:
    with RunningConsole("127.0.0.1:1", properties=SASL) as console:
        answered = Visitor(console).log_in("bob", "of bob")
        assert answered.status == 502
        assert "cannot reach 127.0.0.1:1" in answered.words
        assert "of bob" not in answered.text
