"""Apache Kafka and Barnabas get the same requests, and must answer the same.

`normalise.TABLE` has the fields that differ by nature, `differences.WANTED` the deliberate
differences; docs/COMPATIBILITY.md prints both.
"""

import pytest

from tests.referee.brokers import Address, set_level
from tests.referee.compare import unwanted
from tests.referee.scenario import Peer, Scenario
from tests.referee.scenarios import every_scenario

SCENARIOS = every_scenario()

pytestmark = pytest.mark.xdist_group("referee")


def play(scenario: Scenario, broker: Address, number: int) -> Peer:
    set_level(broker, scenario.level)
    with scenario.peer(broker, number) as peer:
        scenario.play(peer)
    return peer


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_barnabas_answers_as_kafka(
    scenario: Scenario, kafka: Address, barnabas: Address, request: pytest.FixtureRequest
) -> None:
    number = getattr(request.node, "execution_count", 1)
    theirs, ours = play(scenario, kafka, number), play(scenario, barnabas, number)
    transcripts = theirs.transcript, ours.transcript
    assert not (wrong := list(unwanted(scenario.title, scenario.version, *transcripts))), wrong
