"""A broker with an authorizer, and everything that the cases need on it."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from barnabas.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from barnabas.protocol.schema import Message, fields_of
from barnabas.protocol.types import ZERO_UUID
from barnabas.security.acl.rules import AclOperation, ResourceType
from barnabas.testing.broker import Broker
from tests.referee import brokers, given
from tests.referee.given import Topic
from tests.referee.releases import features_off
from tests.referee.rights import rows
from tests.referee.rights.cases import Given, Row, Rule, owner, second
from tests.referee.scenario import Exchange
from tests.referee.scenarios.create_delegation_token import creation
from tests.support.kafka.node import Kafka
from tests.support.raw import APIS, Connection

ADMIN = "admin"
READY = "ready"
"""The principal of the last rule, and its topic: when it is in force, all are."""
DEADLINE_S = 60.0
TRANSACTION_MS = 900_000
"""The timeout of open transactions: none ends before its case."""
SUPER_USERS = "User:admin;User:ANONYMOUS"
"""Kafka's controller knows its broker as anonymous."""


class AnyCase(Protocol):
    """A user with rules, and its request."""

    @property
    def name(self) -> str: ...
    @property
    def principal(self) -> str: ...
    @property
    def row(self) -> Row: ...
    def rules(self, given: Given) -> list[Rule]: ...


class Site(NamedTuple):
    """A prepared broker."""

    host: str
    port: int
    given: Mapping[str, Given]

    def ask(self, case: AnyCase, *versions: int) -> list[Exchange]:
        """Send the request of a case in some versions, on a connection of its own."""
        exchanges = []
        with log_in(self.host, self.port, case.principal) as connection:
            for version in versions:
                connection.post(case.row.request(self.given[case.name]), version)
                answer = connection.take()
                if case.row.pick is not None:
                    case.row.pick(answer, case.name)
                exchanges.append(Exchange(case.row.api, version, answer))
        return exchanges


def log_in(host: str, port: int, user: str) -> Connection:
    """Return a connection of a user, whose password is its name."""
    connection = Connection(host, port, client_id="rights", timeout_s=20)
    connection.post(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert connection.take().error_code == 0
    connection.post(SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{user}".encode()), 2)
    answer = connection.take()
    assert answer.error_code == 0, answer
    return connection


def _users(cases: Iterable[AnyCase]) -> str:
    users = " ".join(f'user_{u}="{u}"' for u in (ADMIN, READY, *(c.principal for c in cases)))
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    return f'{module} username="{ADMIN}" password="{ADMIN}" {users};'


def _with_dots(keys: Mapping[str, str]) -> dict[str, str]:
    return {key.replace("_", "."): value for key, value in keys.items()}


@contextmanager
def kafka(directory: Path, cases: Sequence[AnyCase], **keys: str) -> Iterator[Site]:
    """Run Apache Kafka with StandardAuthorizer; `keys` have `_` for dots."""
    properties = (
        brokers.KAFKAS
        | _with_dots(keys)
        | {
            "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "delegation.token.secret.key": "a secret of all brokers",
            "listener.name.plaintext.plain.sasl.jaas.config": _users(cases),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": SUPER_USERS,
        }
    )
    with Kafka(directory, features=features_off(), properties=properties) as node:
        yield _prepare("127.0.0.1", node.port, cases)


@contextmanager
def barnabas(cases: Sequence[AnyCase], **keys: str) -> Iterator[Site]:
    """Run Barnabas with the same users and the same authorizer."""
    properties = (
        brokers.OURS
        | _with_dots(keys)
        | {
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
            "security.inter.broker.protocol": "SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "delegation.token.secret.key": "a secret of all brokers",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": _users(cases),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": SUPER_USERS,
        }
    )
    with Broker(properties) as broker:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        yield _prepare(host, int(port), cases)


def _prepare(host: str, port: int, cases: Sequence[AnyCase]) -> Site:
    """Create all rules and the setting of each case; return when the broker follows them."""
    parts = {case.name: case.row.setting for case in cases}
    parts |= {second(case.name): case.row.setting for case in cases if case.row.other}
    settings = {name: Given(name, ZERO_UUID) for name in parts}

    def having(part: str) -> list[Given]:
        return [settings[name] for name in parts if part in parts[name]]

    with log_in(host, port, ADMIN) as admin:
        older = FeatureUpdateKey(feature="transaction.version", max_version_level=0, upgrade_type=2)
        _settle(admin, [UpdateFeaturesRequest(feature_updates=[older])])
        _settle(admin, [_find("group", 0), _find("id", 1)])
        tokens = _settle(admin, [creation(owner=owner(g.name)) for g in having("d")])
        for g, token in zip(having("d"), tokens, strict=True):
            settings[g.name] = g._replace(token_id=token.token_id)
        _settle(admin, _creations(cases, settings))
        made = _settle(admin, _new_topics([READY, *(g.name for g in having("t"))]))
        for topic in (topic for answer in made for topic in answer.topics):
            if topic.name == READY:
                continue
            settings[topic.name] = settings[topic.name]._replace(topic_id=topic.topic_id)
        _settle(admin, [given.list_offsets(g.name, (0, -2)) for g in having("t")])
        topics = [(g.name, Topic(g.name, g.topic_id)) for g in having("g")]
        _settle(admin, [given.commit(name, topic, 1) for name, topic in topics])
        # Answers without a producer id have 0 too, so that no case gets it.
        _settle(admin, [InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)])
        began = [
            InitProducerIdRequest(transactional_id=g.name, transaction_timeout_ms=TRANSACTION_MS)
            for g in having("x")
        ]
        for g, answer in zip(having("x"), _settle(admin, began), strict=True):
            producer = {"producer_id": answer.producer_id, "epoch": answer.producer_epoch}
            settings[g.name] = g._replace(**producer)
        _settle(admin, [rows.add_partitions(g) for g in having("o")], version=3)
    with log_in(host, port, READY) as ready:
        asked = rows.metadata(Given(READY, ZERO_UUID), include_topic_authorized_operations=True)
        _settle(ready, [asked], done=_may_describe)
    for name in parts:
        settings[name] = settings[name]._replace(other=settings.get(second(name)))
    return Site(host, port, settings)


def _find(name: str, key_type: int) -> FindCoordinatorRequest:
    """Return the request that makes the broker create its internal topic."""
    return FindCoordinatorRequest(coordinator_keys=[name], key_type=key_type)


def _creations(cases: Sequence[AnyCase], settings: Mapping[str, Given]) -> list[CreateAclsRequest]:
    """Return the requests that create the rules of all cases, and then the one of READY."""
    ready = Rule(ResourceType.TOPIC, READY, AclOperation.DESCRIBE)
    rules = [(case.principal, rule) for case in cases for rule in case.rules(settings[case.name])]
    creations = [
        AclCreation(
            resource_type=rule.type,
            resource_name=rule.name,
            resource_pattern_type=rule.pattern,
            principal="User:*" if rule.everyone else f"User:{principal}",
            host=rule.host,
            operation=rule.operation,
            permission_type=rule.permission,
        )
        for principal, rule in [*rules, (READY, ready)]
    ]
    return [CreateAclsRequest(creations=part) for part in _parts(creations)]


def _new_topics(names: Sequence[str]) -> list[CreateTopicsRequest]:
    one = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    topics = [CreatableTopic(name=name, **one) for name in names]
    return [CreateTopicsRequest(topics=part, timeout_ms=30_000) for part in _parts(topics)]


def _parts(elements: list[Any], size: int = 500) -> list[list[Any]]:
    return [elements[at : at + size] for at in range(0, len(elements), size)]


def _settle(
    connection: Connection,
    requests: Sequence[Any],
    version: int | None = None,
    done: Callable[[Any], bool] = lambda answer: not any(_errors(answer)),
) -> list[Any]:
    """Return the answers to requests, each repeated until its answer is as wanted."""
    answers: list[Any] = [None] * len(requests)
    waiting = list(range(len(requests)))
    end = time.monotonic() + DEADLINE_S
    while waiting:
        for number in waiting:
            request = requests[number]
            last = APIS[type(request)].versions[-1]
            connection.post(request, last if version is None else version)
        for number in waiting:
            answers[number] = connection.take()
        failed = [number for number in waiting if not done(answers[number])]
        assert not failed or time.monotonic() < end, answers[failed[0]]
        waiting = failed
    return answers


def _may_describe(answer: Any) -> bool:
    """Return whether the client may describe its topic and no more, as no other rule lets it."""
    (topic,) = answer.topics
    return bool(topic.topic_authorized_operations == 1 << AclOperation.DESCRIBE)


def _errors(value: Any) -> Iterator[int]:
    """Yield all error codes in an answer."""
    if isinstance(value, list):
        for each in value:
            yield from _errors(each)
    elif isinstance(value, Message):
        for spec in fields_of(type(value)):
            inner = getattr(value, spec.name)
            if spec.name == "error_code":
                yield inner
            else:
                yield from _errors(inner)
