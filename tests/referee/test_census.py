"""The number and the kinds of the scenarios that the comparison of two brokers needs.

The requests of a scenario depend on the answers, so each one is played, against Barnabas only.
test_differential.py compares the answers of these plays with Kafka's.
"""

from collections import defaultdict
from fnmatch import fnmatchcase
from typing import Any

import pytest

from barnabas.protocol.schema import Api
from tests.referee.brokers import PlayOnce
from tests.referee.differences import WANTED, Difference
from tests.referee.normalise import plain
from tests.referee.rights.cases import cases
from tests.referee.rights.rows import ROWS
from tests.referee.scenario import CLOSED, LEVELS, Exchange, Peer, Scenario
from tests.referee.scenarios import every_scenario, malformed
from tests.support.raw import APIS

# The first test waits for all scenarios; another worker would play them again.
pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("referee")]

SCENARIOS = every_scenario()

CHANGES_STATE = frozenset(
    {*(0, 8, 11, 13, 14, 19, 20, 21, 22, 24, 25, 26, 27, 28), *(33, 37, 38, 39, 40, 42, 44, 47, 57)}
)
"""Keys of the APIs whose requests change state that later requests see."""

REFUSED_WITHOUT_SECURITY = frozenset({17, 29, 30, 31, 36, 38, 39, 40, 41})
"""Keys of the APIs that a listener without SASL, or a broker without an authorizer, refuses
whatever is asked."""

BROKEN = {str(scenario) for group in malformed.ALL for scenario in group}
"""The scenarios that every API has."""


@pytest.fixture
def played(play_once: PlayOnce) -> list[tuple[Scenario, Peer]]:
    return [(scenario, play_once(scenario)) for scenario in SCENARIOS]


def versions_of(api: Api) -> list[int]:
    """Return the lowest, a middle and the highest version."""
    versions = api.versions
    return sorted({versions[0], versions[len(versions) // 2], versions[-1]})


def is_refused(exchange: Exchange) -> bool:
    """Return whether the broker closed the connection, or found an error in the request or a part
    of it."""
    if exchange.answer == CLOSED:
        return True
    return _has_error(plain(exchange.answer, exchange.version))


def _has_error(value: Any) -> bool:
    if isinstance(value, dict):
        return any(
            (key.endswith("error_code") and item != 0) or _has_error(item)
            for key, item in value.items()
        )
    return isinstance(value, list) and any(_has_error(item) for item in value)


def test_every_api_that_is_served_is_compared() -> None:
    beside_malformed = {s.api.name for s in SCENARIOS if str(s) not in BROKEN}
    assert {api.name for api in APIS.values()} == beside_malformed, (
        "add a module of scenarios to tests/referee/scenarios/"
    )


def test_there_are_five_hundred_scenarios() -> None:
    assert len({scenario.title for scenario in SCENARIOS}) >= 500


def test_two_hundred_are_of_transactions_at_each_level() -> None:
    titles = {level: {s.title for s in SCENARIOS if s.level == level} for level in LEVELS}
    assert len(titles[1]) >= 200
    assert len(titles[2]) >= 200
    assert titles[1] <= titles[0]


def test_scenario_titles_are_unique() -> None:
    titles = [str(scenario) for scenario in SCENARIOS]
    assert len(set(titles)) == len(titles)


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_an_api_has_five_scenarios_beside_malformed_bytes(api: Api) -> None:
    titles = {s.title for s in SCENARIOS if s.api is api and str(s) not in BROKEN}
    assert len(titles) >= 5


def test_every_api_has_valid_and_refused_requests_at_three_versions(
    played: list[tuple[Scenario, Peer]],
) -> None:
    outcomes: dict[tuple[str, int], set[bool]] = defaultdict(set)
    for scenario, peer in played:
        for exchange in peer.transcript:
            if exchange.api is scenario.api and exchange.version == scenario.version:
                outcomes[exchange.api.name, exchange.version].add(is_refused(exchange))
    lacking = [
        f"{api.name} v{version}: {'nothing wrong' if outcome == {False} else 'nothing right'}"
        for api in APIS.values()
        if api.key not in REFUSED_WITHOUT_SECURITY
        for version in versions_of(api)
        if (outcome := outcomes[api.name, version]) != {False, True}
    ]
    assert not lacking, lacking


def test_half_of_the_scenarios_are_sequences_that_change_state(
    played: list[tuple[Scenario, Peer]],
) -> None:
    sent = [peer.sent for _, peer in played]
    sequences = [each for each in sent if len(each) >= 3 and CHANGES_STATE & set(each)]
    assert len(sequences) >= len(played) / 2


@pytest.mark.parametrize("wanted", WANTED, ids=lambda wanted: wanted.about)
def test_every_wanted_difference_names_existing_scenarios(wanted: Difference) -> None:
    titles = [(s.title, s.version) for s in SCENARIOS]
    titles += [(case.title, v) for case in cases(ROWS) for v in case.row.versions()]
    for pattern in wanted.scenarios:
        versions = {version for title, version in titles if fnmatchcase(title, pattern)}
        assert versions
        assert versions >= set(wanted.versions)
