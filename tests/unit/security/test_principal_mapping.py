"""The cases of Kafka's SslPrincipalMapperTest, and those of linear time."""

import re
import sys
import time
from types import ModuleType

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from barnabas.config.key import ConfigError
from barnabas.security.principal_mapping import parse_rules


@pytest.mark.parametrize(
    "rules",
    [
        "default",
        "DEFAULT/L",
        "DEFAULT/U",
        "RULE:CN=(.*?),OU=ServiceUsers.*/$1",
        "rule:^CN=(.*?),OU=ServiceUsers.*$/$1/L/U",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/L",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/U",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/LU",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/LU",
        "RULE:(unclosed/$1/",
    ],
)
def test_invalid_rules_are_refused(rules: str) -> None:
    with pytest.raises(ConfigError, match="Invalid"):
        parse_rules(rules)


MANY = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, "
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, "
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U, "
    "DEFAULT"
)


@pytest.mark.parametrize(
    ("rules", "name", "mapped"),
    [
        (MANY, "CN=Duke,OU=ServiceUsers,O=Org,C=US", "duke"),
        (MANY, "CN=duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        (MANY, "cn=duke,ou=sme,o=mycp,l=fulton,st=md,c=us", "DUKE"),
        (MANY, "OU=JavaSoft,O=Sun Microsystems", "OU=JavaSoft,O=Sun Microsystems"),
        ("RULE:^CN=(.*?)/$1/", "CN=duke", "duke"),
        ("RULE:^CN=(.*)$/$1/", "CN=duke", "duke"),
        ("RULE:^CN=(.*)$/$1/, DEFAULT", "OU=x,CN=duke", "OU=x,CN=duke"),
        ("RULE:(.*)/x/", "abc", "xx"),
        (r"RULE:^CN=((\\, *|\w)+)(,.*|$)/$1/,DEFAULT", r"CN=Tkac\, Adam,OU=ITZ", r"Tkac\, Adam"),
        ("RULE:^cn=(.+),ou=(.+)$/$1@$3/", "cn=a,ou=b", "a@$3"),
        ("RULE:^cn=(.+)$/$11x/", "cn=a", "a1x"),
        (r"RULE:^cn=(.+)$/\$1\/x/", "cn=a", "$1/x"),
        ("RULE:a/b/", "c", None),
        ("RULE:x(y)?z/$1!/", "xz", "!"),
        ("RULE:a.*/b/, RULE:c.*/d/", "cc", "d"),
        ("", "CN=a", None),
    ],
)
def test_names_are_mapped_as_in_kafka(rules: str, name: str, mapped: str | None) -> None:
    assert parse_rules(rules)(name) == mapped


def test_pattern_that_java_backtracks_over_takes_linear_time() -> None:
    mapper = parse_rules("RULE:^(a+)+$/x/, DEFAULT")
    name = "a" * 20_000 + "b"
    began = time.perf_counter()
    assert mapper(name) == name
    assert time.perf_counter() - began < 1


def test_pattern_unknown_to_re2_is_named() -> None:
    with pytest.raises(ConfigError, match=r"RE2 does not know this pattern: invalid perl operator"):
        parse_rules("RULE:(?=x)/a/")


def test_rule_that_takes_the_rest_of_the_name_needs_no_re2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    assert parse_rules("RULE:^CN=(.*)$/$1/, DEFAULT")("CN=duke") == "duke"
    with pytest.raises(ConfigError, match=r"needs the package google-re2 for .*barnabas\[re2\]"):
        parse_rules("RULE:^CN=(.*?),OU=.*$/$1/")


@given(
    st.sampled_from(["^CN=(.*)$", "CN=(.*)", "^(.*)$", "(.*)", "CN=a, b-c(.*)$"]),
    st.text("CN=a, b-c\n\r\u2028\u00e9") | st.text("CN=a, b-c\n").map("CN=a, b-c".__add__),
)
def test_python_matches_such_a_rule_as_re2_does(pattern: str, name: str) -> None:
    def spans(engine: ModuleType) -> list[tuple[tuple[int, int], ...]] | None:
        compiled = engine.compile(pattern)
        if compiled.fullmatch(name) is None:
            return None
        return [(found.span(), found.span(1)) for found in compiled.finditer(name)]

    assert spans(re) == spans(re2)
