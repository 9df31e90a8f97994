"""Archives of the classes that a JVM has loaded (JEP 350): the next one starts at less CPU.

`python -m tests.support.class_archive` makes those of Kafka and Spark, if they are not there yet. A
JVM uses an archive whose classpath its own begins with; without one it starts as ever.
"""

from collections.abc import Callable
from pathlib import Path


def options(archive: Path) -> tuple[str, ...]:
    """Return the options of a JVM that uses an archive; none if it is not there."""
    if not archive.exists():
        return ()
    # A JVM that cannot use it says nothing.
    return (f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off", "-Xlog:class+path=off")


def make(archive: Path, run: Callable[[str], None]) -> None:
    """Make an archive; `run` runs a JVM to its end with an option."""
    if not archive.exists():
        archive.parent.mkdir(exist_ok=True)
        partial = archive.with_suffix(".partial")
        partial.unlink(missing_ok=True)
        run(f"-XX:ArchiveClassesAtExit={partial}")
        partial.rename(archive)


def main() -> None:
    # They use archives themselves.
    from tests.support import spark
    from tests.support.kafka import node

    make(node.archive(), node.load_classes)
    make(spark.archive(), spark.load_classes)


if __name__ == "__main__":
    main()
