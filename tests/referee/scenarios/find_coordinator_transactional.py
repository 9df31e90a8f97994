"""FindCoordinator of transactional ids."""

from barnabas.protocol.messages.find_coordinator import API, FindCoordinatorRequest
from tests.referee.scenario import LEVELS, Peer, Scenarios
from tests.referee.transactions import producer

scenario = Scenarios(API, LEVELS)

TRANSACTION = 1
BATCHED = 4


def find(s: Peer, *keys: str) -> FindCoordinatorRequest:
    if s.version >= BATCHED:
        return FindCoordinatorRequest(coordinator_keys=list(keys), key_type=TRANSACTION)
    return FindCoordinatorRequest(key=keys[0], key_type=TRANSACTION)


@scenario(since=1)
def of_a_producer_that_has_begun(s: Peer) -> None:
    s.ask(find(s, producer(s).transactional_id))


@scenario(since=1)
def of_an_empty_transactional_id(s: Peer) -> None:
    s.ask(find(s, ""))


@scenario(since=BATCHED)
def of_several_transactional_ids(s: Peer) -> None:
    s.ask(find(s, s.name("a"), s.name("b"), s.name("a"), ""))
