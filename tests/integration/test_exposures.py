"""Dangers that a configuration allows are told once at the start, and in a metric."""

import re
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.support.command_line import Served
from tests.support.ports import free_port

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";'
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
OPEN = "listeners=PLAINTEXT://0.0.0.0:0", "advertised.listeners=PLAINTEXT://localhost:0"
CLEAR = (
    "listeners=USERS://0.0.0.0:0",
    "advertised.listeners=USERS://localhost:0",
    "listener.security.protocol.map=USERS:SASL_PLAINTEXT",
    "inter.broker.listener.name=USERS",
    "sasl.enabled.mechanisms=PLAIN",
    f"listener.name.users.plain.sasl.jaas.config={JAAS}",
)
LOCAL = ("listeners=PLAINTEXT://127.0.0.1:0",)


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        (OPEN, {("anonymous", "PLAINTEXT"): "Listener PLAINTEXT lets anonymous clients in. Map"}),
        (CLEAR, {("clear_passwords", "USERS"): "Listener USERS receives passwords or tokens in"}),
        (
            (*LOCAL, f"authorizer.class.name={AUTHORIZER}"),
            {("no_super_users", ""): "authorizer.class.name is set without super.users: "},
        ),
        (
            (*OPEN, f"authorizer.class.name={AUTHORIZER}"),
            {
                ("anonymous", "PLAINTEXT"): "Listener PLAINTEXT lets anonymous clients in. Map",
                ("no_super_users", ""): "authorizer.class.name is set without super.users: ",
            },
        ),
        (LOCAL, {}),
    ],
)
def test_dangers_are_told(
    keys: tuple[str, ...], told: dict[tuple[str, str], str], tmp_path: Path
) -> None:
    metrics = f"127.0.0.1:{free_port()}"
    sets = [word for key in keys for word in ("--set", key)]
    served = Served("-d", str(tmp_path), "--metrics", metrics, *sets)
    try:
        with urlopen(f"http://{metrics}/metrics", timeout=5) as answer:
            page = answer.read().decode()
    finally:
        _, _, errors = served.stop()
    found = re.findall(r"^barnabas_server_exposures\{(.*)\} (\S+)$", page, re.MULTILINE)
    shown = {
        (re.findall(r'"(.*?)"', labels)[0], re.findall(r'"(.*?)"', labels)[1])
        for labels, _ in found
    }
    assert shown == told.keys()
    assert {value for _, value in found} <= {"1", "1.0"}
    warnings = [line for line in errors.splitlines() if '"level": "warning"' in line]
    assert len(warnings) == len(told)
    for text in told.values():
        (line,) = (line for line in warnings if text in line)
        assert re.search("Map|Set", line), "the remedy"


def test_secure_brokers_have_nothing_to_tell(tmp_path: Path) -> None:
    served = Served(
        *("--secure", "-d", str(tmp_path), "-l", "0.0.0.0:0"),
        *("--set", "advertised.listeners=PLAINTEXT://localhost:0"),
    )
    _, _, errors = served.stop()
    assert '"level": "warning"' not in errors
