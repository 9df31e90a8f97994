"""`barnabas schema`: the JSON Schema of what a command prints with --json."""

import json

import click
from click.shell_completion import CompletionItem

from barnabas.cli.help import Command, in_other_number


def _words(context: click.Context, _parameter: click.Parameter, begin: str) -> list[CompletionItem]:
    from barnabas.cli.json_answers import ANSWERS

    before = list(context.params.get("command") or ())
    names = [name.split(" ") for name in ANSWERS]
    size = len(before)
    words = dict.fromkeys(each[size] for each in names if each[:size] == before and each[size:])
    return [CompletionItem(word) for word in words if word.startswith(begin)]


@click.command(cls=Command)
@click.argument("command", nargs=-1, shell_complete=_words)
def schema(command: tuple[str, ...]) -> None:
    """Print the JSON Schema of what COMMAND prints with --json; without COMMAND, the commands.

    The schema of a command that prints one object a line is that of a line.
    """
    from barnabas.cli.json_answers import ANSWERS, schema_of

    known = {word for each in ANSWERS for word in each.split(" ")}
    name = " ".join(in_other_number(word, known) for word in command)
    if not name:
        for each in ANSWERS:
            click.echo(each)
    elif name in ANSWERS:
        click.echo(json.dumps(schema_of(name), indent=2))
    else:
        text = f"no command {name!r} prints JSON; `barnabas schema` lists those that do"
        raise click.UsageError(text)
