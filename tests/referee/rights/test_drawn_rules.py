"""Kafka and Barnabas draw the same conclusions from rules that were drawn at random: for the topic
of a user, all operations that it may perform, and whether it may write to any topic at all."""

import gc
from collections.abc import Iterator
from random import Random
from typing import NamedTuple

import pytest

from barnabas.security.acl.rules import AclOperation as Op
from barnabas.security.acl.rules import AclPermissionType, PatternType, ResourceType
from tests.referee.compare import unwanted
from tests.referee.normalise import normalised
from tests.referee.rights import site
from tests.referee.rights.cases import GIVEN, OTHER_HOST, Given, Row, Rule
from tests.referee.rights.rows import DESCRIBE, WRITE, init, metadata
from tests.referee.rights.site import Site

pytestmark = pytest.mark.xdist_group("referee-rights")
OPERATIONS = Row(
    "operations",
    12,
    DESCRIBE,
    lambda g: metadata(g, include_topic_authorized_operations=True),
    "t",
)
ANY_TOPIC = Row("any topic", 4, WRITE, lambda _: init(None))
USERS = range(150)


class Drawn(NamedTuple):
    """A user with rules for topics, and a topic with its name.

    Attributes:
        wide: whether rules may name all topics of the test.
    """

    number: int
    row: Row
    wide: bool

    @property
    def name(self) -> str:
        return f"drawn-{self.number:03}"

    @property
    def principal(self) -> str:
        return self.name

    def rules(self, _given: Given) -> list[Rule]:
        """Return up to six rules: some match the topic, some more than it, others not."""
        random = Random(self.number)
        return [self._rule(random) for _ in range(random.randint(0, 6))]

    def _rule(self, random: Random) -> Rule:
        literal, prefixed = PatternType.LITERAL, PatternType.PREFIXED
        everyone = random.random() < 0.2
        own = [(self.name, literal), (self.name, prefixed), (f"{self.name}x", prefixed)]
        wider = [(self.name[:-1], prefixed), ("dx", literal)]
        if self.wide:
            wider += [("*", literal), ("d", prefixed)]
        name, pattern = random.choice(own if everyone else own + wider)
        operations = (Op.ALL, Op.WRITE, Op.READ, Op.DESCRIBE, Op.DELETE, Op.ALTER)
        operations += (Op.ALTER_CONFIGS, Op.DESCRIBE_CONFIGS)
        return Rule(
            ResourceType.TOPIC,
            name,
            random.choice(operations),
            pattern,
            random.choices((AclPermissionType.ALLOW, AclPermissionType.DENY), (2, 1))[0],
            random.choices(("*", "127.0.0.1", OTHER_HOST), (6, 2, 1))[0],
            everyone,
        )


class Both(NamedTuple):
    """Both brokers: closed, or open to everyone where no rule names a resource."""

    kafka: Site
    barnabas: Site
    is_open: bool


@pytest.fixture(scope="module", params=[False, True], ids=["closed", "open"])
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Both]:
    keys = {"allow_everyone_if_no_acl_found": str(request.param).lower()}
    drawn = [Drawn(number, OPERATIONS, wide=not request.param) for number in USERS]
    with (
        site.kafka(tmp_path_factory.mktemp("kafka"), drawn, **keys) as kafka,
        site.barnabas(drawn, **keys) as barnabas,
    ):
        yield Both(kafka, barnabas, request.param)
    gc.collect()


@pytest.mark.parametrize("row", [OPERATIONS, ANY_TOPIC], ids=lambda row: row.title)
def test_drawn_rules_decide_as_in_kafka(row: Row, both: Both) -> None:
    wrong, answers = {}, set()
    for number in USERS:
        user = Drawn(number, row, wide=not both.is_open)
        theirs, ours = both.kafka.ask(user, row.version), both.barnabas.ask(user, row.version)
        answers.add(repr(normalised(theirs)).replace(user.name, "name"))
        found = list(unwanted(f"rights/{row.title}", row.version, theirs, ours))
        if found:
            wrong[user.name] = [*found, *map(str, user.rules(GIVEN))]
    assert not wrong
    # Where no rule names all topics, everyone may write to one of them.
    assert len(answers) >= (20 if row is OPERATIONS else 1 if both.is_open else 2)
