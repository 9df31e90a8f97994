"""The JSON answers of the command line, held against the schemas that it prints."""

import json
from collections.abc import Iterator
from functools import cache
from itertools import accumulate
from typing import Any

from jsonschema import Draft202012Validator

from barnabas.cli.json_answers import ANSWERS
from tests.support.command_line import run_here


def holds(servers: str, *words: str, code: int = 0, stdin: bytes = b"", **more: str) -> Any:
    """Run a command with --json, hold its output against `barnabas schema`, and return its answer.

    A command that prints several objects, one a line, has a list of them as its answer. `more` are
    variables of the environment.
    """
    done = run_here(*words, "--json", servers=servers, stdin=stdin, **more)
    assert done.returncode == code, done
    beginnings = accumulate(words, "{} {}".format)
    name = max((each for each in beginnings if each in ANSWERS), key=len)
    return held(name, done.stdout.decode())


def held(name: str, output: str) -> Any:
    """Hold the output of a command against its schema, and return its answer."""
    answers = list(_documents(output))
    assert answers, output
    for each in answers:
        _validator(name).validate(each)
    return answers[0] if len(answers) == 1 else answers


@cache
def _validator(name: str) -> Draft202012Validator:
    done = run_here("schema", *name.split())
    assert (done.returncode, done.stderr) == (0, b""), done
    schema = json.loads(done.stdout)
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def _documents(text: str) -> Iterator[Any]:
    decoder = json.JSONDecoder()
    while text := text.lstrip():
        document, end = decoder.raw_decode(text)
        yield document
        text = text[end:]
