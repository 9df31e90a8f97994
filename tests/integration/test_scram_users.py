"""SCRAM users through librdkafka's admin client."""

import asyncio
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import ScramCredentialInfo as Info
from confluent_kafka.admin import ScramMechanism as RdMechanism
from confluent_kafka.admin import UserScramCredentialDeletion as Deletion
from confluent_kafka.admin import UserScramCredentialUpsertion as Upsertion

from barnabas.broker.app import Broker
from barnabas.broker.security.scram_users import ScramUsers
from barnabas.security.sasl.credentials import ScramMechanism
from tests.support.data_path import running

PASSWORD = b"open sesame"


def users_of(broker: Broker) -> ScramUsers:
    assert broker._core is not None
    return broker._core.scram_users


async def test_librdkafka_sets_describes_and_deletes_users(tmp_path: Path) -> None:
    async with running(tmp_path) as broker:
        await asyncio.to_thread(_use_librdkafka, broker.bootstrap_servers)
        assert set(users_of(broker).names) == {"bob"}
        found = users_of(broker).find("bob", ScramMechanism.SHA_512)
        assert found is not None
        assert found.matches(PASSWORD)
        assert not found.matches(PASSWORD + b"x")
    async with running(tmp_path) as broker:
        assert set(users_of(broker).names) == {"bob"}


def _use_librdkafka(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    alice = Upsertion("alice", Info(RdMechanism.SCRAM_SHA_256, 4096), PASSWORD)
    bob = Upsertion("bob", Info(RdMechanism.SCRAM_SHA_512, 8192), PASSWORD)
    for done in admin.alter_user_scram_credentials([alice, bob]).values():
        done.result(5)
    described = admin.describe_user_scram_credentials().result(5)
    found = {
        name: [(each.mechanism, each.iterations) for each in user.scram_credential_infos]
        for name, user in described.items()
    }
    assert found == {
        "alice": [(RdMechanism.SCRAM_SHA_256, 4096)],
        "bob": [(RdMechanism.SCRAM_SHA_512, 8192)],
    }
    gone = admin.alter_user_scram_credentials([Deletion("alice", RdMechanism.SCRAM_SHA_256)])
    gone["alice"].result(5)
