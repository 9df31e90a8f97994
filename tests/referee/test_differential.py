"""Apache Kafka and Barnabas get the same requests, and must answer the same.

`normalise.TABLE` has the fields that differ by nature, `differences.WANTED` the deliberate
differences; docs/COMPATIBILITY.md prints both.
"""

from fnmatch import fnmatchcase

import pytest

from tests.referee.brokers import Address, set_level
from tests.referee.differences import WANTED, Difference
from tests.referee.normalise import differences, normalised
from tests.referee.scenario import Peer, Scenario
from tests.referee.scenarios import every_scenario

SCENARIOS = every_scenario()

pytestmark = pytest.mark.xdist_group("referee")


def play(scenario: Scenario, broker: Address) -> Peer:
    set_level(broker, scenario.level)
    with scenario.peer(broker) as peer:
        scenario.play(peer)
    return peer


def wanted_in(scenario: Scenario) -> list[Difference]:
    return [
        wanted
        for wanted in WANTED
        if any(fnmatchcase(scenario.title, pattern) for pattern in wanted.scenarios)
        and (not wanted.versions or scenario.version in wanted.versions)
    ]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_barnabas_answers_as_kafka(scenario: Scenario, kafka: Address, barnabas: Address) -> None:
    theirs, ours = play(scenario, kafka), play(scenario, barnabas)
    assert [(e.api.name, e.version) for e in ours.transcript] == [
        (e.api.name, e.version) for e in theirs.transcript
    ]
    shown, unwanted = set(), []
    wanted = wanted_in(scenario)
    answers = zip(normalised(theirs.transcript), normalised(ours.transcript), strict=True)
    for number, (exchange, (kafkas, barnabases)) in enumerate(
        zip(theirs.transcript, answers, strict=True), 1
    ):
        for path, expected, answered in differences(kafkas, barnabases, exchange.api.name):
            reasons = [w for w in wanted if fnmatchcase(path, w.path)]
            shown.update(reasons)
            if not reasons:
                unwanted.append(f"answer {number}, {path}: {expected!r}, not {answered!r}")
    assert not unwanted, "\n".join(["Kafka answers", *unwanted])
    assert shown == set(wanted), "a wanted difference no longer shows"
