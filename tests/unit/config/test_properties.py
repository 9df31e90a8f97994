"""server.properties files and container environments."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.config.properties import from_environment, parse_properties, property_line


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("a=1\nb = 2\r\nc:3\rd 4\n", {"a": "1", "b": "2", "c": "3", "d": "4"}),
        ("# a=1\n  ! b=2\n\n \t\nc=3", {"c": "3"}),
        ("a=1,\\\n   2,\\\n\t3", {"a": "1,2,3"}),
        ("a=C:\\\\kafka\\\\", {"a": "C:\\kafka\\"}),
        ("a=\\u00e9\\t\\z", {"a": "\u00e9\tz"}),
        ("a\\ b\\=c=d=e", {"a b=c": "d=e"}),
        ("a\nb=\nc=  x  ", {"a": "", "b": "", "c": "x  "}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\\", {"a": "1"}),
        ("a=1\\\n# no comment", {"a": "1# no comment"}),
    ],
)
def test_files_are_read_as_java_reads_them(text, properties):
    assert parse_properties(text) == properties


@given(st.text())
def test_every_text_is_a_properties_file(text):
    parse_properties(text)


ascii_or_not = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]))


@given(ascii_or_not, ascii_or_not)
def test_written_line_is_read_back(name, value):
    line = property_line(name, value)
    assert line.isascii()
    assert parse_properties(f"{line}\n") == {name: value}


def test_variables_of_both_images_become_keys():
    assert from_environment(
        {
            "KAFKA_LOG_DIRS": "/data",
            "KAFKA_CFG_NODE_ID": "3",
            "KAFKA_A___B__C_D": "x",
            "KAFKA_HEAP_OPTS": "-Xmx1G",
            "PATH": "/bin",
        }
    ) == {"log.dirs": "/data", "node.id": "3", "a-b_c.d": "x"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("required \\\n   username=a \\\n\tpassword=b;\n", "required username=a password=b;"),
        ("C:\\\\data\\u0041", "C:\\dataA"),
        ("  a\\ ", "a "),
        ("#!=:", "#!=:"),
        ("=a", "=a"),
        ("", ""),
        ("a\\", "a"),
        # Kafka's images take the second line for another key.
        ("-----BEGIN X-----\nabc=\n-----END X-----\n", "-----BEGIN X-----\nabc=\n-----END X-----"),
    ],
)
def test_value_of_a_variable_is_read_as_the_line_of_a_file(text, value):
    assert from_environment({"KAFKA_SASL_JAAS_CONFIG": text}) == {"sasl.jaas.config": value}


def test_variables_of_a_service_of_kubernetes_are_no_keys():
    service = {
        "KAFKA_SERVICE_HOST": "10.0.0.1",
        "KAFKA_SERVICE_PORT": "9092",
        "KAFKA_SERVICE_PORT_CLIENT": "9092",
        "KAFKA_PORT": "tcp://10.0.0.1:9092",
        "KAFKA_PORT_9092_TCP": "tcp://10.0.0.1:9092",
        "KAFKA_PORT_9092_TCP_ADDR": "10.0.0.1",
        "KAFKA_UI_PORT_8080_TCP_PROTO": "tcp",
        "KAFKA_UI_PORT": "tcp://10.0.0.2:8080",
    }
    assert from_environment(service | {"KAFKA_PORT_X": "1"}) == {"port.x": "1"}
    assert from_environment({"KAFKA_PORT": "9092"}) == {"port": "9092"}
