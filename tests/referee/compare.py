"""The comparison of two transcripts."""

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from tests.referee.differences import WANTED
from tests.referee.normalise import differences, normalised
from tests.referee.releases import CHANGES, referee
from tests.referee.scenario import Exchange


def unwanted(
    title: str, version: int, theirs: Sequence[Exchange], ours: Sequence[Exchange]
) -> Iterator[str]:
    """Yield the differences between Kafka's answers and ours that are not wanted in a scenario, and
    the wanted ones that do not show."""
    assert [(e.api.name, e.version) for e in ours] == [(e.api.name, e.version) for e in theirs]
    wanted = [
        each
        for each in WANTED
        if any(fnmatchcase(title, pattern) for pattern in each.scenarios)
        and (not each.versions or version in each.versions)
    ]
    since = [
        each
        for each in CHANGES
        if each.since > referee() and any(fnmatchcase(title, name) for name in each.scenarios)
    ]
    shown = set()
    answers = zip(normalised(theirs), normalised(ours), strict=True)
    for number, (exchange, (kafkas, barnabases)) in enumerate(zip(theirs, answers, strict=True), 1):
        for path, expected, answered in differences(kafkas, barnabases, exchange.api.name):
            reasons = [w for w in wanted if fnmatchcase(path, w.path)]
            shown.update(reasons)
            if not reasons and not any(fnmatchcase(path, each.path) for each in since):
                yield f"answer {number}, {path}: Kafka has {expected!r}, not {answered!r}"
    for each in wanted:
        if each not in shown:
            yield f"a wanted difference no longer shows: {each.path}, {each.why}"
