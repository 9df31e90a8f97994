"""The file of a client: its addresses, keys that are misspelt, and references to secrets."""

import pytest

from barnabas.cli.client_file import SERVERS, client_file, require_protocol
from barnabas.client.cluster import Cluster, parse_address
from barnabas.client.security import connect_with
from barnabas.config.key import ConfigError


def test_address_of_librdkafka_is_read() -> None:
    assert client_file({"metadata.broker.list": "a:1", "acks": "all"}) == {
        SERVERS: "a:1",
        "acks": "all",
    }
    assert client_file({SERVERS: "a:1", "metadata.broker.list": "a:1"}) == {SERVERS: "a:1"}
    with pytest.raises(ConfigError, match="name different brokers: keep one of them"):
        client_file({SERVERS: "a:1", "metadata.broker.list": "b:1"})


@pytest.mark.parametrize(
    "name",
    [
        *("boostrap.servers", "bootstrap_servers", "bootstrap-servers", "bootstrap.server"),
        *("metadata.brokers.list", "BOOTSTRAP_SERVERS"),
    ],
)
def test_misspelt_address_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} has no effect: did you mean"):
        client_file({name: "a:1"})


@pytest.mark.parametrize(
    "name",
    [
        *("brokers", "broker.list", "kafka.brokers", "bootstrap.controllers", "bootstrap"),
        *("spring.kafka.bootstrap-servers", "kafka_bootstrap_servers", "KAFKA_BROKERS"),
    ],
)
def test_address_under_another_name_is_refused_unless_there_is_one(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} has no effect: give the addresses of brokers"):
        client_file({name: "a:1", "security.protocol": "SSL"})
    assert client_file({name: "a:1", SERVERS: "b:1"})[SERVERS] == "b:1"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("security.protcol", "security.protocol"),
        ("sasl.mechanim", "sasl.mechanism"),
        ("ssl.truststore.locaton", "ssl.truststore.location"),
        ("security_protocol", "security.protocol"),
        ("request.timeout", "request.timeout.ms"),
    ],
)
def test_misspelt_key_is_refused_with_the_key_that_is_meant(name: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} has no effect: did you mean {meant}?"):
        client_file({name: "x"})


@pytest.mark.parametrize("text", ["PLAINTEXT://a:1", "a:1", "EXTERNAL://a:1", "http://a:1"])
def test_protocol_before_an_address_is_no_part_of_it(text: str) -> None:
    assert parse_address(text) == ("a", 1)
    assert parse_address(text.replace("a:1", "[::1]:1")) == ("::1", 1)


@pytest.mark.parametrize(
    "text", ["PLAINTEXT://", "://a:1", "a b://c:1", "PLAINTEXT://a:b", "<ip>:1"]
)
def test_address_without_a_host_or_port_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a valid address: give HOST:PORT"):
        parse_address(text)


def test_empty_addresses_in_a_list_are_left_out() -> None:
    Cluster("a:1,,b:1, ")
    with pytest.raises(ValueError, match="not a valid address"):
        Cluster(" , ")


def test_address_must_not_ask_for_another_protocol() -> None:
    require_protocol("PLAINTEXT://a:1, b:1,EXTERNAL://c:1", {})
    require_protocol("SASL_SSL://a:1", {"security.protocol": "sasl_ssl"})
    with pytest.raises(ConfigError, match="SSL://b:1 asks for SSL, and security"):
        require_protocol("a:1,SSL://b:1", {})


@pytest.mark.parametrize(
    ("keys", "name"),
    [
        ({"sasl.mechanism": "PLAIN", "sasl.password": "${env:PW}"}, "sasl.password"),
        ({"sasl.jaas.config": 'x required password="${PW}";'}, "sasl.jaas.config"),
        ({"ssl.key.password": "${file:/a:b}"}, "ssl.key.password"),
        ({"ssl.ca.location": "${env:CA}"}, "ssl.ca.location"),
    ],
)
def test_client_takes_no_reference_for_a_value(keys: dict[str, str], name: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name} has a (reference|variable)"):
        connect_with({"security.protocol": "SASL_SSL", **keys})
