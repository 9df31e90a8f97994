"""AlterClientQuotas: limits that are set and removed, and requests that are refused."""

from barnabas.protocol.messages.alter_client_quotas import API, AlterClientQuotasRequest
from tests.referee.scenario import Peer, Scenarios
from tests.support.quotas import any_of, change, entity, exactly, filtered, shows

scenario = Scenarios(API)


@scenario
def limits_of_a_user(s: Peer) -> None:
    alice = s.name("alice")
    s.ask(change(entity(user=alice), ("producer_byte_rate", 1024), ("request_percentage", 12.5)))
    s.ask(filtered(exactly("user", alice)), until=shows(2))
    s.ask(change(entity(user=alice), ("producer_byte_rate", None)))
    s.ask(filtered(exactly("user", alice)), until=shows(1))
    s.ask(change(entity(user=alice), ("request_percentage", None), ("consumer_byte_rate", None)))
    s.ask(filtered(exactly("user", alice)), until=shows(0))


@scenario
def limits_of_a_users_client(s: Peer) -> None:
    alice, app = s.name("al/ice"), s.name("app *")
    s.ask(change(entity(user=alice, client_id=app), ("controller_mutation_rate", 2.5)))
    s.ask(filtered(exactly("user", alice), exactly("client-id", app)), until=shows(1))
    s.ask(filtered(exactly("user", alice), any_of("client-id")))
    s.ask(filtered(exactly("client-id", app)))
    s.ask(filtered(exactly("client-id", app), strict=True))
    s.ask(change(entity(user=alice, client_id=app), ("controller_mutation_rate", None)))


@scenario
def limits_of_an_address(s: Peer) -> None:
    s.ask(change(entity(ip="10.1.2.3"), ("connection_creation_rate", 100.0)))
    s.ask(filtered(exactly("ip", "10.1.2.3")), until=shows(1))
    s.ask(change(entity(ip="10.1.2.3"), ("producer_byte_rate", 1.0)))
    s.ask(change(entity(ip="not an address"), ("connection_creation_rate", 1.0)))
    s.ask(change(entity(ip="10.1.2.3", user="u"), ("connection_creation_rate", 1.0)))
    s.ask(change(entity(ip="10.1.2.3"), ("connection_creation_rate", None)))
    s.ask(filtered(exactly("ip", "10.1.2.3")), until=shows(0))


@scenario
def limit_is_validated_only(s: Peer) -> None:
    alice = s.name("alice")
    s.ask(change(entity(user=alice), ("producer_byte_rate", 1.0), validate_only=True))
    s.ask(filtered(exactly("user", alice)))


@scenario
def limits_that_are_refused(s: Peer) -> None:
    alice = entity(user=s.name("alice"))
    for key, limit in (
        ("producer_byte_rate", 0.0),
        ("producer_byte_rate", -1.0),
        ("consumer_byte_rate", 1.5),
        ("consumer_byte_rate", 1e30),
        ("request_percentage", -0.5),
        ("connection_creation_rate", 1.0),
        ("no_such_rate", 1.0),
    ):
        s.ask(change(alice, (key, limit)))
    s.ask(change(entity(ip="10.1.2.3"), ("connection_creation_rate", 2.0**31)))
    s.ask(filtered(exactly("user", s.name("alice"))))


@scenario
def keys_that_are_removed_without_being_there(s: Peer) -> None:
    alice = entity(user=s.name("alice"))
    s.ask(change(alice, ("producer_byte_rate", None)))
    s.ask(change(alice, ("no_such_rate", None)))
    s.ask(change(alice))


@scenario
def one_wrong_key_of_several(s: Peer) -> None:
    alice = s.name("alice")
    s.ask(change(entity(user=alice), ("producer_byte_rate", 5.0), ("no_such_rate", 1.0)))
    s.ask(filtered(exactly("user", alice)))


@scenario
def entities_that_are_refused(s: Peer) -> None:
    limit = ("producer_byte_rate", 1.0)
    s.ask(change([], limit))
    s.ask(change(entity(user=""), limit))
    s.ask(change(entity(client_id=""), limit))
    s.ask(change(entity(group="g"), limit))
    s.ask(AlterClientQuotasRequest(entries=[], validate_only=False))


@scenario
def key_that_is_named_twice(s: Peer) -> None:
    alice = s.name("alice")
    s.ask(change(entity(user=alice), ("producer_byte_rate", 1.0), ("producer_byte_rate", 2.0)))
    s.ask(filtered(exactly("user", alice)))
