"""Help texts and names of commands and of groups."""

from collections.abc import Iterable
from typing import Any

import click

from barnabas.cli.shared_options import split


def in_other_number(word: str, known: Iterable[str]) -> str:
    """Return the known word that is the plural or the singular of `word`, or `word` itself.

    `topic list` is `topics list`, and `configs describe topics` is `configs describe topic`.
    """
    words = list(known)
    if word in words:
        return word
    return next((each for each in words if each in (f"{word}s", word.removesuffix("s"))), word)


def _sharing_a_word(name: str, known: Iterable[str]) -> list[str]:
    """Return the known names that have a word of `name`, as `reset` is one of `reset-offsets`."""
    return [each for each in known if {*each.split("-")} & {*name.split("-")}]


class Choice(click.Choice[str]):
    """A choice between words, which may be given in the plural or in the singular."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return super().convert(in_other_number(value, self.choices), param, ctx)


def _write_examples(context: click.Context, formatter: click.HelpFormatter) -> None:
    from barnabas.cli.examples import EXAMPLES

    if examples := EXAMPLES.get(context.command_path.partition(" ")[2]):
        with formatter.section("Examples"):
            for each in examples:
                formatter.write(f"{'':{formatter.current_indent}}{each}\n")


def _write_folded_options(
    command: click.Command, context: click.Context, formatter: click.HelpFormatter
) -> bool:
    """Write the options with those of a cluster in one line; return False if it has none."""
    own, shared = split(command.get_params(context))
    if not shared:
        return False
    explained = [each for each in own if each is not command.get_help_option(context)]
    records = (each.get_help_record(context) for each in explained)
    rows = [each for each in records if each is not None]
    names = [each.opts[0] for each in shared] + context.help_option_names[:1]
    with formatter.section("Options"):
        if rows:
            formatter.write_dl(rows)
        line = f"{', '.join(names)}: see `{context.find_root().info_name} --help`"
        formatter.write(f"{'':{formatter.current_indent}}{line}\n")
    return True


class Command(click.Command):
    """A command whose help ends with its examples, and has the options of a cluster in a line."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if not _write_folded_options(self, ctx, formatter):
            super().format_options(ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        _write_examples(ctx, formatter)


class Group(click.Group):
    """A group of commands, whose help has the whole first sentence of each; Click cuts it off.

    A command is also found by the plural or the singular of its name.
    """

    command_class = Command
    group_class = type

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        name = in_other_number(args[0], known)
        if name not in known and (near := _sharing_a_word(name, known)):
            ctx.fail(f"No such command '{args[0]}'. Did you mean {' or '.join(near)}?")
        return super().resolve_command(ctx, [name, *args[1:]])

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if _write_folded_options(self, ctx, formatter):
            self.format_commands(ctx, formatter)
        else:
            super().format_options(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [
            (name, command.get_short_help_str(len(command.help or "")))
            for name, command in commands
            if command is not None and not command.hidden
        ]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        _write_examples(ctx, formatter)
