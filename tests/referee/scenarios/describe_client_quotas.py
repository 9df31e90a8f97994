"""DescribeClientQuotas: filters, and filters that are refused."""

from barnabas.protocol.messages.describe_client_quotas import API, EXACT, OF_OTHERS, SPECIFIED
from tests.referee.scenario import Peer, Scenarios
from tests.support.quotas import (
    any_of,
    change,
    entity,
    exactly,
    filtered,
    of_others,
    shows,
)

scenario = Scenarios(API)
LIMIT = ("consumer_byte_rate", 1e9)


@scenario
def entity_without_limits(s: Peer) -> None:
    s.ask(filtered(exactly("user", s.name("ghost"))))
    s.ask(filtered(exactly("user", "")))
    s.ask(filtered(exactly("user", s.name("ghost")), strict=True))


@scenario
def limit_of_all_other_clients_of_a_user(s: Peer) -> None:
    alice = s.name("alice")
    s.ask(change(entity(user=alice, client_id=None), LIMIT))
    s.ask(change(entity(user=alice), LIMIT))
    s.ask(filtered(exactly("user", alice), of_others("client-id")), until=shows(1))
    s.ask(filtered(exactly("user", alice), any_of("client-id")), until=shows(1))
    s.ask(filtered(exactly("user", alice), strict=True), until=shows(1))


@scenario
def filters_that_are_refused(s: Peer) -> None:
    s.ask(filtered(exactly("", "u")))
    s.ask(filtered(exactly("group", "g")))
    s.ask(filtered(exactly("user", "u"), any_of("user")))
    s.ask(filtered(("user", EXACT, None)))
    s.ask(filtered(("user", OF_OTHERS, "u")))
    s.ask(filtered(("user", SPECIFIED, "u")))
    s.ask(filtered(("user", 9, None)))


@scenario
def address_beside_other_parts(s: Peer) -> None:
    s.ask(filtered(exactly("ip", "10.9.9.9"), any_of("user")))
    s.ask(filtered(any_of("client-id"), any_of("ip")))


@scenario
def no_entity_has_no_parts(s: Peer) -> None:
    s.ask(filtered(strict=True))
