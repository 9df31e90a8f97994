"""Log lines and levels."""

import io
import json
import logging

import pytest

from barnabas.broker.observability.logging import (
    CONSOLE,
    JSON,
    ROOT,
    LoggerLevels,
    configure,
    get_logger,
)
from barnabas.config.key import ConfigError


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def logs_to():
    root = logging.getLogger()
    level, handlers = root.level, []

    def attach(stream, form=None, **always):
        handlers.append(configure(stream, form=form, always=always))
        return stream

    yield attach
    for handler in handlers:
        root.removeHandler(handler)
    root.setLevel(level)


def test_line_is_one_json_object_unless_on_a_terminal(logs_to):
    stream = logs_to(io.StringIO())
    logging.getLogger("barnabas.example").warning("took %d ms", 7, extra={"topic": "orders"})

    line = json.loads(stream.getvalue())

    assert line["event"] == "took 7 ms"
    assert line["level"] == "warning"
    assert line["logger"] == "barnabas.example"
    assert line["topic"] == "orders"
    assert line["timestamp"].endswith("Z")


@pytest.mark.parametrize("kind", [io.StringIO, Terminal])
def test_form_of_lines_is_the_one_asked_for_and_a_file_gets_no_colors(logs_to, kind):
    console, written = logs_to(kind(), CONSOLE), logs_to(kind(), JSON)
    get_logger("barnabas.example.forms").info("topic created", topic="orders")
    assert json.loads(written.getvalue())["topic"] == "orders"
    assert "topic created" in console.getvalue()
    assert ("\x1b[" in console.getvalue()) == (kind is Terminal)
    assert not console.getvalue().startswith("{")


def test_values_of_a_line_override_those_of_every_line(logs_to):
    stream = logs_to(io.StringIO(), broker=2)
    logger = get_logger("barnabas.example.always")
    logger.info("topic created")
    logger.info("broker gone", broker=3)
    assert [json.loads(line)["broker"] for line in stream.getvalue().splitlines()] == [2, 3]


def test_event_with_values_is_a_line_of_its_logger(logs_to, caplog):
    stream = logs_to(io.StringIO())
    logger = get_logger("barnabas.example.events")
    logger.info("topic created", topic="orders", partitions=3)
    logger.debug("not loud enough")
    try:
        raise ValueError("broken")
    except ValueError:
        logger.error("failed", exc_info=True)

    created, failed = map(json.loads, stream.getvalue().splitlines())

    assert created["event"] == "topic created"
    assert (created["topic"], created["partitions"]) == ("orders", 3)
    assert (created["logger"], created["level"]) == ("barnabas.example.events", "info")
    assert "ValueError: broken" in failed["exception"]
    assert caplog.messages[0] == "topic created topic='orders' partitions=3"
    assert caplog.records[0].funcName == "test_event_with_values_is_a_line_of_its_logger"


def test_terminal_gets_no_control_characters_of_clients(logs_to):
    stream = logs_to(Terminal())
    logging.getLogger("barnabas.example").info(
        "client %s", "evil\x1b[2J", extra={"client_id": "two\nlines\u2028"}
    )

    text = stream.getvalue()

    assert "evil\\x1b[2J" in text
    assert "two\\nlines\\u2028" in text
    assert text.count("\n") == 1


def test_traceback_keeps_its_lines_and_loses_its_control_characters(logs_to):
    stream = logs_to(Terminal())
    try:
        raise ValueError("\x1b[31mred")
    except ValueError:
        logging.getLogger("barnabas.example").exception("failed")

    assert "\n" in stream.getvalue().strip()
    assert "\\x1b[31mred" in stream.getvalue()


def test_levels_change_at_run_time_and_can_be_inherited_again(logs_to):
    stream, levels = logs_to(io.StringIO()), LoggerLevels()
    logger = logging.getLogger("barnabas.example.levels")

    levels.change("barnabas.example.levels", "DEBUG")
    logger.debug("seen")
    assert levels.levels()["barnabas.example.levels"] == "DEBUG"
    levels.change("barnabas.example.levels", None)
    logger.debug("unseen")
    assert levels.levels()["barnabas.example.levels"] == "INFO"
    assert levels.levels()[ROOT] == "INFO"

    assert "seen" in stream.getvalue()
    assert "unseen" not in stream.getvalue()


def test_unknown_level_is_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match="loud is no log level"):
        configure(io.StringIO(), level="loud")


@pytest.mark.parametrize(
    ("name", "level", "message"),
    [
        ("no.such.logger", "INFO", "does not exist"),
        (ROOT, "LOUD", "Valid log levels are FATAL, ERROR, WARN, INFO, DEBUG, TRACE"),
    ],
)
def test_impossible_changes_are_refused(name, level, message):
    with pytest.raises(ConfigError, match=message):
        LoggerLevels().check([(name, level)])
