"""Apache Kafka with StandardAuthorizer and Barnabas with its authorizer get the same requests of
the same principals under the same rules, and must answer the same."""

import gc
from collections.abc import Iterator

import pytest

from tests.referee.compare import unwanted
from tests.referee.normalise import normalised
from tests.referee.rights import site
from tests.referee.rights.cases import ALLOWED, Case, Row, cases
from tests.referee.rights.rows import ROWS
from tests.referee.rights.site import Site
from tests.referee.scenario import Exchange

pytestmark = pytest.mark.xdist_group("referee-rights")
CASES = list(cases(ROWS))


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site.kafka(tmp_path_factory.mktemp("kafka"), CASES) as running:
        yield running


@pytest.fixture(scope="module")
def barnabas() -> Iterator[Site]:
    with site.barnabas(CASES) as running:
        yield running
    # Its files are closed with their last reference: here, and not in a later test.
    gc.collect()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.title)
def test_barnabas_answers_as_kafka(row: Row, kafka: Site, barnabas: Site) -> None:
    theirs = {case: kafka.ask(case, row.version) for case in cases((row,))}
    assert_granted(row, theirs)
    ours = {case: barnabas.ask(case, row.version) for case in theirs}
    # A wanted difference in the answers hides none in who gets them.
    assert_granted(row, ours)
    wrong = {c.way: list(unwanted(c.title, row.version, theirs[c], ours[c])) for c in theirs}
    assert {each: found for each, found in wrong.items() if found} == {}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.title)
def test_every_version_is_refused_as_by_kafka(row: Row, kafka: Site, barnabas: Site) -> None:
    case, versions = Case(row, "none"), list(row.versions())
    theirs, ours = kafka.ask(case, *versions), barnabas.ask(case, *versions)
    wrong = {
        version: list(unwanted(case.title, version, [theirs[at]], [ours[at]]))
        for at, version in enumerate(versions)
    }
    assert {each: found for each, found in wrong.items() if found} == {}


def assert_granted(row: Row, transcripts: dict[Case, list[Exchange]]) -> None:
    """Assert that the row's right is the one that decides, in each way but those that it names."""
    answers = {
        case.way: repr(normalised(exchanges)).replace(case.name, "name")
        for case, exchanges in transcripts.items()
    }
    like = {way: answers["exact" if way in ALLOWED else "none"] for way in answers}
    assert answers["none"] != answers["exact"]
    assert {way for way in answers if answers[way] != like[way]} == set(row.apart), answers
