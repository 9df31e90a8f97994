"""InitProducerId with two-phase commit (KIP-939) below transaction.version 2."""

from barnabas.protocol.messages.init_producer_id import API
from tests.referee.scenario import LEVELS, Peer, Scenarios
from tests.referee.scenarios.init_producer_id_transactional import init
from tests.referee.scenarios.two_phase_commit import TWO_PHASE, two_phase
from tests.referee.transactions import producer

scenario = Scenarios(API, LEVELS[:-1])


@scenario(since=TWO_PHASE)
def two_phase_commit_needs_level_2(s: Peer) -> None:
    x = producer(s)
    x.ask(two_phase(x))
    s.ask(x.describe())


@scenario(since=TWO_PHASE)
def a_keep_needs_level_2(s: Peer) -> None:
    x = producer(s)
    s.ask(init(x, keep_prepared_txn=True))
    s.ask(two_phase(x, keep_prepared_txn=True))
    s.ask(x.describe())
