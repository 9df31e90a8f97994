"""The base of the pipeline's errors, and the kinds of bad records."""

from typing import Literal

from barnabas.registry.errors import Unreadable

BadKind = Literal[Unreadable, "null", "not_utf8", "not_json"]
"""Why a key or a value is bad.

`null`: a value that is null, `not_utf8`: bytes that are no text, `not_json`: text that is no JSON;
`misfit`: JSON, Avro or Protobuf that does not fit its schema.
"""


class OneLineError(Exception):
    """An error whose text is one line, whatever names it repeats.

    Spark wraps the text in its traces, in which a second line is lost.
    """

    def __init__(self, text: str) -> None:
        super().__init__(" ".join(text.split("\n")).replace("\r", " "))
