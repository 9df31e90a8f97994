"""Lineage: places in headers, and how often each input record is in the output."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.pipeline.jobs.lineage import InputPlace, Lineage, parse_places

PLACES = st.builds(
    InputPlace,
    st.from_regex(r"[a-z./@-]{1,9}", fullmatch=True),
    st.integers(0, 9),
    st.integers(0, 2**63 - 1),
)


@given(st.lists(PLACES))
def test_places_of_a_header_are_read_as_they_were_written(places):
    assert parse_places(",".join(map(str, places)).encode()) == places


@pytest.mark.parametrize(
    "value", [b"a", b"a/1", b"a@1", b"a/b@1", b"a/1@-1", b"a/1@1,", "ü".encode()]
)
def test_a_header_that_is_no_place_is_refused(value):
    with pytest.raises(ValueError, match=r"is not TOPIC|codec can't decode"):
        parse_places(value)


ALL = {("in", 0): range(100)}


def test_missing_and_repeated_records_are_told_as_ranges():
    lineage = Lineage()
    for offset in (0, 7, 9, 9):
        lineage.wrote("out", [InputPlace("in", 0, offset)])
    for offset in (0, 1, 2, 4, 5, 7, 9):  # 3, 6 and 8 are markers
        lineage.read(InputPlace("in", 0, offset))
    assert list(map(str, lineage.missing(ALL))) == ["in/0@1..5"]
    assert [each.records for each in lineage.missing(ALL)] == [4]
    assert list(map(str, lineage.missing({("in", 0): range(5, 9)}))) == ["in/0@5"]
    assert list(map(str, lineage.repeated())) == ["in/0@9"]
    assert (lineage.inputs, lineage.outputs, lineage.foreign({})) == (7, 4, [])
    assert lineage.seen(("in", 0)) == range(10)
    assert lineage.seen(("in", 1)) == range(0)


def test_a_place_that_is_not_in_the_input_is_foreign():
    lineage = Lineage()
    lineage.read(InputPlace("in", 0, 0))
    lineage.wrote(
        "out", [InputPlace("in", 0, 1), InputPlace("other", 0, 0), InputPlace("in", 0, 0)]
    )
    assert list(map(str, lineage.foreign({}))) == ["in/0@1", "other/0@0"]
    assert list(map(str, lineage.foreign({("in", 0): 2}))) == ["other/0@0"]
    assert lineage.missing(ALL) == []


def test_of_equal_records_one_is_enough():
    lineage = Lineage()
    for offset, key in enumerate(["a", "b", "a", "b", "c"]):
        lineage.read(InputPlace("in", 0, offset), key)
    lineage.wrote("out", [InputPlace("in", 0, 2)])
    assert list(map(str, lineage.missing(ALL))) == ["in/0@1", "in/0@3..4"]
    assert lineage.dropped(ALL) == 1


def test_a_record_in_two_topics_came_once_into_each():
    lineage = Lineage()
    for offset in range(3):
        lineage.read(InputPlace("in", 0, offset))
    for topic, offsets in {"a": (0, 1), "b": (1, 2, 2)}.items():
        for offset in offsets:
            lineage.wrote(topic, [InputPlace("in", 0, offset)])
    assert list(map(str, lineage.repeated())) == ["in/0@2"]
    assert (lineage.missing(ALL), lineage.foreign({})) == ([], [])
    assert lineage.seen(("in", 0)) == range(3)
