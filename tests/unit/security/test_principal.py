import pytest

from barnabas.security.principal import ANONYMOUS, Principal


def test_text_of_a_principal_parses_to_the_same_principal():
    for principal in (ANONYMOUS, Principal("User", "CN=a,O=b:c"), Principal("User", "")):
        assert Principal.parse(str(principal)) == principal


def test_text_without_a_type_is_refused_with_kafkas_words():
    with pytest.raises(ValueError, match="expected a string in format principalType:principalName"):
        Principal.parse("alice")
