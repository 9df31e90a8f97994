"""The generated documents say what the code does."""

from unittest.mock import Mock

import pytest

from barnabas.broker.routes import client_routes, inter_broker_routes
from docs.differences import MISSING
from docs.generate import (
    BETWEEN_BROKERS,
    GONE,
    GROUPS,
    TARGET,
    TRANSACTIONS,
    document,
    group_states,
    served,
    transaction_states,
)

KAFKA_4_3 = {
    *range(4),
    *range(8, 52),
    55,
    57,
    60,
    61,
    64,
    65,
    66,
    68,
    69,
    71,
    72,
    *range(74, 82),
} | {*range(83, 93)}
"""Keys of the APIs that a broker of Kafka 4.3 answers clients and other brokers."""


def test_the_document_is_what_the_code_generates():
    assert TARGET.read_text() == document(), "run `python -m docs.generate`"


def test_what_is_between_brokers_is_marked_so_and_what_kafka_no_longer_has_too():
    rows = {
        int(cells[1]): cells[3:6]
        for line in document().splitlines()
        if len(cells := [cell.strip() for cell in line.split("|")]) == 7 and cells[1].isdigit()
    }
    assert {row.api.key for row in inter_broker_routes(Mock())} - {
        row.api.key for row in client_routes(Mock())
    } == BETWEEN_BROKERS
    assert {key for key, (_, _, who) in rows.items() if who == "brokers"} == BETWEEN_BROKERS
    assert {key for key, (_, of_kafka, _) in rows.items() if "none" in of_kafka} == set(GONE)
    assert rows[4][:2] == ["5-7", "none (3.9: 0-7)"]
    assert rows[24][2].startswith("clients: 0-3")


def test_the_drawings_of_states_are_those_of_the_code():
    assert GROUPS.read_text() == group_states(), "run `python -m docs.generate`"
    assert TRANSACTIONS.read_text() == transaction_states(), "run `python -m docs.generate`"


def test_an_api_of_kafka_is_served_or_missing_with_a_reason():
    keys = [api.key for api, _ in served()]
    missing = [key for reason in MISSING for key in reason.apis]
    assert len({*keys, *missing}) == len(keys) + len(missing)
    assert {*keys, *missing} - BETWEEN_BROKERS == KAFKA_4_3


@pytest.mark.parametrize("row", served(), ids=lambda row: row[0].name)
def test_a_handler_serves_no_version_that_its_messages_lack(row):
    api, versions = row
    assert set(versions) <= set(api.versions)
