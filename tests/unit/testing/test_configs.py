"""Values of configuration keys as Kafka's texts."""

import pytest

from barnabas.testing.configs import texts


def test_values_become_the_texts_of_kafka() -> None:
    given = {"a": True, "b": False, "c": 7, "d": 0.25, "e": "text"}
    assert texts(given) == {"a": "true", "b": "false", "c": "7", "d": "0.25", "e": "text"}
    assert texts(None) == {}


@pytest.mark.parametrize("value", [None, [1], b"1"])
def test_other_values_are_errors_that_name_the_key(value: object) -> None:
    with pytest.raises(TypeError, match=r"k: .* is not a text, a number or a boolean"):
        texts({"k": value})  # type: ignore[dict-item]
