"""Apache Kafka and Barnabas get the same requests, and must answer the same.

`normalise.TABLE` has the fields that differ by nature, `differences.WANTED` the deliberate
differences; docs/COMPATIBILITY.md prints both.
"""

import pytest

from tests.referee.brokers import Address, PlayOnce, play
from tests.referee.compare import unwanted
from tests.referee.scenario import Scenario
from tests.referee.scenarios import every_scenario

SCENARIOS = every_scenario()

pytestmark = pytest.mark.xdist_group("referee")


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_barnabas_answers_as_kafka(
    scenario: Scenario, kafka: Address, play_once: PlayOnce, request: pytest.FixtureRequest
) -> None:
    number = getattr(request.node, "execution_count", 1)
    theirs, ours = play(scenario, kafka, number), play_once(scenario, number)
    transcripts = theirs.transcript, ours.transcript
    assert not (wrong := list(unwanted(scenario.title, scenario.version, *transcripts))), wrong
