"""Listeners, their advertised addresses, and common mistakes with them."""

import pytest

from barnabas.config.key import ConfigError
from barnabas.config.listeners import (
    Address,
    Listener,
    parse_connection_overrides,
    parse_host_port,
    resolve_listeners,
)

MAP = ("PLAINTEXT:PLAINTEXT", "INSIDE:PLAINTEXT", "OUTSIDE:PLAINTEXT")


def test_listener_advertises_itself_unless_configured_otherwise():
    assert resolve_listeners(["PLAINTEXT://localhost:9092"], None, MAP) == (
        Listener("PLAINTEXT", "PLAINTEXT", Address("localhost", 9092), Address("localhost", 9092)),
    )


def test_several_listeners_have_their_own_advertised_addresses():
    inside, outside = resolve_listeners(
        ["INSIDE://broker:29092", "OUTSIDE://0.0.0.0:9092"],
        ["outside://localhost:19092", "inside://broker:29092"],
        MAP,
    )
    assert inside.advertised == Address("broker", 29092)
    assert outside.address == Address("0.0.0.0", 9092)
    assert outside.advertised == Address("localhost", 19092)


def test_a_listener_may_stay_unadvertised():
    inside, outside = resolve_listeners(
        ["INSIDE://:1", "OUTSIDE://:2"], ["OUTSIDE://example.org:2"], MAP
    )
    assert inside.advertised is None
    assert outside.advertised == Address("example.org", 2)


def test_ipv6_hosts_lose_their_brackets_and_get_them_back():
    (listener,) = resolve_listeners(["PLAINTEXT://[fe80::1%eth0]:9092"], None, MAP)
    assert listener.address == Address("fe80::1%eth0", 9092)
    assert str(listener.address) == "[fe80::1%eth0]:9092"


def test_free_ports_and_one_port_of_both_families_are_no_conflict():
    resolve_listeners(["INSIDE://:0", "OUTSIDE://:0"], None, MAP)
    resolve_listeners(["INSIDE://127.0.0.1:9092", "OUTSIDE://[::1]:9092"], None, MAP)


@pytest.mark.parametrize(
    ("listeners", "advertised", "message"),
    [
        (["9092"], None, "NAME://host:port"),
        (["PLAINTEXT://:70000"], None, "70000 is not a port"),
        (["PLAINTEXT://::1:9092"], None, "NAME://host:port"),
        (["INSIDE://:1", "inside://:2"], None, "different name"),
        (["INSIDE://:1", "OUTSIDE://:1"], None, "different port"),
        (["INSIDE://:1"], ["OUTSIDE://host:1"], "subset"),
        (["INSIDE://0.0.0.0:1"], None, "nonroutable meta-address 0.0.0.0"),
        (["INSIDE://[::]:1"], None, "nonroutable meta-address ::"),
        (["PLAINTEXT://a b:1"], None, "a b is no host: write its name or its address"),
        (["PLAINTEXT://h/p:1"], None, "h/p is no host"),
        (["PLAINTEXT://*:1"], None, r"\* is no host"),
        (["ELSEWHERE://:1"], None, "No security protocol defined for listener ELSEWHERE"),
    ],
)
def test_mistakes_are_named_in_the_error(listeners, advertised, message):
    with pytest.raises(ConfigError, match=message):
        resolve_listeners(listeners, advertised, MAP)


@pytest.mark.parametrize(
    "host",
    ["${HOST_IP}", "<your ip>", "_{HOSTNAME_COMMAND}", "$HOST", "{{ ip }}", "%HOST%", "${A:-b}"],
)
def test_host_that_is_a_template_is_refused(host):
    for text in (f"PLAINTEXT://{host}:9092", f"{host}://:9092", f"PLAINTEXT://a:{host}"):
        with pytest.raises(ConfigError, match="template: write the name or the address"):
            resolve_listeners(["PLAINTEXT://:9092"], [text], MAP)
    with pytest.raises(ConfigError, match="It is HOST:PORT"):
        parse_host_port("metrics.listener", f"{host}:9404")


def test_listener_map_may_name_a_listener_twice_and_end_with_a_comma():
    (listener,) = resolve_listeners(["A://:1"], None, ["A:SSL", "A:PLAINTEXT", ""])
    assert listener.protocol == "PLAINTEXT"


def test_addresses_of_our_own_keys_are_bare():
    assert parse_host_port("metrics.listener", "127.0.0.1:9464") == Address("127.0.0.1", 9464)
    assert parse_host_port("metrics.listener", "[::1]:0") == Address("::1", 0)
    assert parse_host_port("metrics.listener", ":9464") == Address("", 9464)
    for wrong in ("9464", "localhost:65536"):
        with pytest.raises(ConfigError, match=f"Invalid value {wrong} for .*It is HOST:PORT"):
            parse_host_port("metrics.listener", wrong)


def test_connection_limits_of_single_hosts():
    limits = parse_connection_overrides("k", "localhost:3, ::1:5")
    assert limits == {"localhost": 3, "::1": 5}


def test_connection_limit_of_thousands_of_digits_is_refused():
    with pytest.raises(ConfigError):
        parse_connection_overrides("k", "a:" + "1" * 5000)
