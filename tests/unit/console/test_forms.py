"""The tokens of forms: for one change, once, not for long, and of one process."""

import pytest
from starlette.exceptions import HTTPException

from barnabas.console import forms
from barnabas.console.forms import VALID_S, Tokens


def test_token_is_old_after_some_minutes() -> None:
    now = 1000.0
    made = Tokens(lambda: now)
    issued, token = made.issue("/path", "facts")
    now += VALID_S + 1
    with pytest.raises(HTTPException, match="too old"):
        made.take("/path", "facts", issued, token)


def test_token_of_another_process_is_refused() -> None:
    issued, token = Tokens().issue("/path", "facts")
    with pytest.raises(HTTPException, match="no valid token"):
        Tokens().take("/path", "facts", issued, token)


def test_token_counts_once_however_many_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms, "_MOST_USED", 3)
    now = 1000.0
    made = Tokens(lambda: now)
    issued = [made.issue("/path", "facts") for _ in range(4)]
    for each in issued[:3]:
        made.take("/path", "facts", *each)
    with pytest.raises(HTTPException, match="confirmed already"):
        made.take("/path", "facts", *issued[0])
    # Forgetting a token that still counts would let it count again.
    with pytest.raises(HTTPException, match="too many"):
        made.take("/path", "facts", *issued[3])
    now += VALID_S
    made.take("/path", "facts", *made.issue("/path", "facts"))


def test_text_that_is_no_token_is_refused() -> None:
    made = Tokens()
    for issued, token in (("", ""), ("soon", "é"), ("1", "\N{SNOWMAN}")):
        with pytest.raises(HTTPException, match="no valid token"):
            made.take("/path", "facts", issued, token)
