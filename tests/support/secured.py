"""A broker that a Spark job reaches over TLS with SCRAM, and the job's options and rights."""

import asyncio
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from barnabas.client.cluster import Cluster
from barnabas.client.security import connect_with
from barnabas.protocol.messages import create_delegation_token
from barnabas.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from barnabas.security.sasl.jaas import SCRAM_LOGIN_MODULE
from barnabas.testing import Broker, allow
from tests.support.certificates import Authority
from tests.support.topics import Topics

USER, PASSWORD = "spark-user", "squirrel-in-the-attic"
RULES = [
    allow(USER, "Read", "Topic:input"),
    allow(USER, "Write", "Topic:output"),
    allow(USER, "DescribeConfigs", "Topic:output"),
    *(allow(USER, each, "TransactionalId:copy.*") for each in ("Write", "TwoPhaseCommit")),
    *(
        allow(USER, each, "Topic:copy.decisions")
        for each in ("Create", "Read", "Write", "DescribeConfigs")
    ),
]
"""The rights of docs/PIPELINE.md for a sink `copy` from `input` to `output`."""


class Secured(NamedTuple):
    topics: Topics
    """The topics, with all rights."""
    options: dict[str, str]
    """Options of USER in Kafka's names; the private key is in a text."""

    def by_token(self) -> dict[str, str]:
        """Return the options of a job that logs in by a delegation token of USER (KIP-48)."""
        token = asyncio.run(self._token())
        hmac = b64encode(token.hmac).decode()
        account = f'username="{token.token_id}" password="{hmac}" tokenauth="true"'
        return self.options | {
            "kafka.sasl.jaas.config": f"{SCRAM_LOGIN_MODULE} required {account};"
        }

    async def _token(self) -> create_delegation_token.CreateDelegationTokenResponse:
        keys = {name.removeprefix("kafka."): text for name, text in self.options.items()}
        servers = keys.pop("bootstrap.servers")
        new = CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1)
        async with Cluster(servers, connect=connect_with(keys)) as cluster:
            token = await cluster.ask(create_delegation_token.API, new)
        assert token.error_code == 0
        return token


@contextmanager
def secured_broker() -> Iterator[Secured]:
    configs = {
        "transaction.two.phase.commit.enable": "true",
        "delegation.token.secret.key": "a secret of all brokers",
    }
    with Broker(configs, users={USER: PASSWORD}, rules=RULES) as broker:
        settings = broker.settings(USER)
        # The broker does not ask for a certificate: it is here because its key is a secret.
        own = Authority().issue(USER, hosts=())
        module = f'{SCRAM_LOGIN_MODULE} required username="{USER}" password="{PASSWORD}";'
        options = {
            "kafka.bootstrap.servers": settings.bootstrap_servers,
            "kafka.security.protocol": settings.protocol,
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": settings.ca_file,
            "kafka.ssl.keystore.type": "PEM",
            "kafka.ssl.keystore.key": own.key_pem(),
            "kafka.ssl.keystore.certificate.chain": own.chain_pem,
            "kafka.sasl.mechanism": settings.mechanism,
            "kafka.sasl.jaas.config": module,
        }
        admin = broker.settings().librdkafka()
        yield Secured(Topics(admin.pop("bootstrap.servers"), admin), options)
