"""The base of the pipeline's errors."""


class OneLineError(Exception):
    """An error whose text is one line, whatever names it repeats.

    Spark wraps the text in its traces, in which a second line is lost.
    """

    def __init__(self, text: str) -> None:
        super().__init__(" ".join(text.split("\n")).replace("\r", " "))
