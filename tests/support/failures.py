"""The failures of all rounds of a loop, each with the name of its round."""

from collections.abc import Iterator
from contextlib import contextmanager


class Failures:
    """Let a loop go on after a failure, and raise all of them at its end.

    Thousands of rounds that take a millisecond are one test, not a test id each.
    """

    def __init__(self) -> None:
        self._found: dict[str, Exception] = {}

    def __enter__(self) -> "Failures":
        return self

    def __exit__(self, *error: object) -> None:
        if self._found and error[0] is None:
            raise ExceptionGroup(f"failed: {', '.join(self._found)}", [*self._found.values()])

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Keep the failure of a round."""
        try:
            yield
        except Exception as error:
            error.add_note(f"in {name}")
            self._found[name] = error
