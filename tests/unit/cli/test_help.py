"""The help of every group on a terminal of 80 columns."""

import re
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from barnabas.cli.main import GROUPS, cli
from barnabas.cli.shared_options import ClusterOption
from tests.support.command_tree import COMMANDS


def groups(command: click.Command, *path: str) -> Iterator[tuple[str, ...]]:
    if isinstance(command, click.Group):
        yield path
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from groups(child, *path, name)


@pytest.mark.parametrize("path", list(groups(cli)), ids=" ".join)
def test_no_text_of_a_command_is_cut_off(path: tuple[str, ...]) -> None:
    done = CliRunner().invoke(cli, [*path, "--help"], terminal_width=80)
    first = next(iter(GROUPS)) if not path else "Commands"
    head, _, commands = done.output.partition(f"\n{first}:\n")
    assert (done.exit_code, commands != "") == (0, True), head
    assert "..." not in commands
    assert max(map(len, done.output.splitlines())) <= 80


def test_help_has_every_command_in_one_line_under_a_heading() -> None:
    done = CliRunner().invoke(cli, ["--help"], terminal_width=80)
    sections = [each.splitlines() for each in done.output.split("\n\n")]
    found = {lines[0]: [line.split()[0] for line in lines[1:]] for lines in sections}
    for title, commands in GROUPS.items():
        assert found[f"{title}:"] == list(commands)
    assert {words.split()[0] for words in COMMANDS} == {each for g in GROUPS.values() for each in g}
    asks = found["Options of the commands that ask a cluster:"]
    assert {"-b,", "--command-config", "--timeout", "-J,"} <= set(asks)


SHARED = ("--bootstrap-server", "--command-config", "--timeout", "--json")


@pytest.mark.parametrize("words", COMMANDS)
def test_options_of_a_cluster_are_one_line_of_the_help(words: str) -> None:
    done = CliRunner().invoke(
        cli, [*words.split(), "--help"], terminal_width=80, prog_name="barnabas"
    )
    section = done.output.rpartition("\nOptions:\n")[2]
    lines = section.partition("\n\n")[0].splitlines()
    rows = [re.split("[ /]+", line.strip()) for line in lines if line.startswith("  -")]
    words_of_rows = {word.strip(",") for row in rows for word in row[:2] if row[-1] != "--help`"}
    explained = {word for word in words_of_rows if word.startswith("-")}
    options = [each for each in COMMANDS[words][0].params if isinstance(each, click.Option)]
    shared = [each for each in options if isinstance(each, ClusterOption)]
    folded = ["-b,", "--command-config,", "--timeout,", "-J,", "-h:", "see", "`barnabas", "--help`"]
    if len(shared) == len(SHARED):
        assert rows[-1] == folded
        assert explained.isdisjoint({"-b", "-J", "-h", *SHARED})
        options = [each for each in options if each not in shared]
    else:
        assert folded not in rows
        assert "--help" in explained
    assert explained >= {each.opts[0] for each in options}


@pytest.mark.parametrize("name", cli.list_commands(click.Context(cli)))
def test_command_is_found_by_its_plural_and_its_singular(name: str) -> None:
    other = name.removesuffix("s") if name.endswith("s") else f"{name}s"
    done = CliRunner().invoke(cli, [other, "--help"], prog_name="barnabas")
    assert done.output.startswith(f"Usage: barnabas {name} ")


@pytest.mark.parametrize("words", ["topic list", "topics lists", "topic lists"])
def test_words_of_a_command_may_have_another_number(words: str) -> None:
    done = CliRunner().invoke(cli, [*words.split(), "--help"], prog_name="barnabas")
    assert done.output.startswith("Usage: barnabas topics list ")
    expected = CliRunner().invoke(cli, ["schema", "topics", "list"])
    assert expected.exit_code == 0
    assert CliRunner().invoke(cli, ["schema", *words.split()]).output == expected.output


def test_command_that_shares_a_word_is_proposed() -> None:
    done = CliRunner().invoke(cli, ["groups", "reset", "readers"], prog_name="barnabas")
    assert (done.exit_code, done.output.splitlines()[-1]) == (
        2,
        "Error: No such command 'reset'. Did you mean reset-offsets?",
    )
    done = CliRunner().invoke(cli, ["topics", "fly"], prog_name="barnabas")
    assert "Did you mean" not in done.output
