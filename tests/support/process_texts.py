"""The texts of a process that the system shows to others."""

from collections.abc import Iterator
from pathlib import Path


def texts_of(pid: int) -> Iterator[tuple[str, bytes]]:
    """Yield the arguments, the environment and the name of a process and of its children."""
    for name in ("cmdline", "environ", "comm"):
        yield f"{pid} {name}", Path(f"/proc/{pid}/{name}").read_bytes()
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield from texts_of(int(child))
