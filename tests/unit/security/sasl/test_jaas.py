"""The grammar of `sasl.jaas.config`."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.security.sasl.jaas import JaasError, LoginModule, parse_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_options_of_a_plain_server():
    module = parse_jaas(
        f"""{PLAIN} required
            username="admin" password='it\\'s "me"' // of this broker
            user_alice="a;b=c/d" /* two
            lines */ 'user_b c'=plain-word_1;"""
    )
    assert (module.name, module.flag) == (PLAIN, "required")
    assert module.options == {
        "username": "admin",
        "password": 'it\'s "me"',
        "user_alice": "a;b=c/d",
        "user_b c": "plain-word_1",
    }


@pytest.mark.parametrize(
    ("quoted", "value"),
    [
        (r'"\\\"\'"', "\\\"'"),
        (r'"\t\n\101\7\1234\400"', "\t\nA\7S4 0"),
        (r"'\q'", "q"),
        ('""', ""),
        ("word/comment\n", "word"),
        ("ümläut€$_", "ümläut€$_"),
        ("v1.2-x", "v1.2-x"),
    ],
)
def test_escapes_are_javas(quoted, value):
    assert parse_jaas(f"M REQUIRED k={quoted};").options == {"k": value}


def test_module_without_options():
    assert parse_jaas("M optional;") == LoginModule("M", "optional", {})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "Login module not specified in JAAS config (line 1, column 1)"),
        ("M", "Login module control flag not specified in JAAS config (line 1, column 2)"),
        ("M\n sometimes;", "Invalid login module control flag in JAAS config (line 2, column 2)"),
        ("M required", "JAAS config entry not terminated by semi-colon (line 1, column 11)"),
        ("M required k", "Value not specified for a key in JAAS config (line 1, column 13)"),
        ("M required k=;", "Value not specified for a key in JAAS config (line 1, column 14)"),
        ("M required k==v;", "Value not specified for a key in JAAS config (line 1, column 14)"),
        ("M required =v;", "JAAS config entry not terminated by semi-colon (line 1, column 12)"),
        ("M required k=v k=w;", "Option specified twice in JAAS config (line 1, column 16)"),
        ('M required k="v;', "A string is not closed in JAAS config (line 1, column 14)"),
        ('M required k="v\n";', "A string is not closed in JAAS config (line 1, column 14)"),
        ('M required k="v\\\n";', "A string is not closed in JAAS config (line 1, column 14)"),
        ("M required k=/* v;", "Text has to be quoted in JAAS config (line 1, column 14)"),
        ("M required k=\x81;", "Text has to be quoted in JAAS config (line 1, column 14)"),
        ("M required k=123;", "Text has to be quoted in JAAS config (line 1, column 14)"),
        ("M required k=-v;", "Text has to be quoted in JAAS config (line 1, column 14)"),
        ("M required k=v!;", "Text has to be quoted in JAAS config (line 1, column 15)"),
        (
            "M required; N required;",
            "JAAS config property contains more than 1 login module (line 1, column 13)",
        ),
    ],
)
def test_error_gives_the_place(text, problem):
    with pytest.raises(JaasError) as error:
        parse_jaas(text)
    assert str(error.value) == problem


@given(st.dictionaries(st.text(min_size=1), st.text(), max_size=5))
def test_quoted_text_comes_back(options):
    def quoted(text):
        escapes = {"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r"}
        return '"' + "".join(escapes.get(each, each) for each in text) + '"'

    lines = " ".join(f"{quoted(key)}={quoted(value)}" for key, value in options.items())
    assert parse_jaas(f"M required {lines};").options == options


@given(st.text(alphabet="Mk=;\"'\\/* \nrequired\x81"))
def test_no_text_raises_another_error(text):
    with suppress(JaasError):
        assert parse_jaas(f"M required {text}").name == "M"


def test_secrets_are_in_no_error_and_no_repr():
    module = parse_jaas('M required password="hunter2";')
    assert "hunter2" not in repr(module)
    for text in ('M required password="hunter2"', 'M hunter2 k="v";', 'M required "a"hunter2;'):
        with pytest.raises(JaasError) as error:
            parse_jaas(text)
        assert "hunter2" not in str(error.value)
