"""Help texts of commands and of groups."""

import click


def _write_examples(context: click.Context, formatter: click.HelpFormatter) -> None:
    from barnabas.cli.examples import EXAMPLES

    if examples := EXAMPLES.get(context.command_path.partition(" ")[2]):
        with formatter.section("Examples"):
            for each in examples:
                formatter.write(f"{'':{formatter.current_indent}}{each}\n")


class Command(click.Command):
    """A command whose help ends with its examples."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        _write_examples(ctx, formatter)


class Group(click.Group):
    """A group of commands, whose help has the whole first sentence of each; Click cuts it off."""

    command_class = Command
    group_class = type

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
