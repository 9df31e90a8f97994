"""The favourite topics of a browser, which its cookie keeps."""

import hashlib
import re
from collections.abc import Sequence
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from barnabas.console.console import Console, Page, parameter
from barnabas.console.reads import topic_named
from barnabas.console.render import url

MOST: Final = 50
_MOST_BYTES: Final = 3800
"""Browsers keep 4,096 bytes with the name of a cookie."""
_YEAR_S: Final = 365 * 24 * 3600
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")


def favourites(console: Console, request: Request) -> list[str]:
    """Return the names in the cookie of a request, of topics that may be gone."""
    text = request.cookies.get(_cookie(console), "")[:_MOST_BYTES]
    return [each for each in text.split("|") if _NAME.fullmatch(each)][:MOST]


async def change(console: Console, request: Request) -> Response:
    """Make a topic a favourite, or one no longer, and show it."""
    name = parameter(request, "name")
    kept = favourites(console, request)
    if name in kept:
        kept.remove(name)
    else:
        kept = await _added(console, kept, name)
    response = RedirectResponse(url("/topic", name=name), 303)
    response.set_cookie(
        _cookie(console), "|".join(kept), max_age=_YEAR_S, httponly=True, samesite="strict"
    )
    return response


async def _added(console: Console, kept: Sequence[str], name: str) -> list[str]:
    await topic_named(console, name)
    made = [*kept, name]
    if not _NAME.fullmatch(name):
        raise HTTPException(400, "A topic with this name cannot be a favourite.")
    if len(made) > MOST or len("|".join(made)) > _MOST_BYTES:
        raise HTTPException(
            400, f"There are too many favourites: at most {MOST}, or fewer if long."
        )
    return made


def _cookie(console: Console) -> str:
    # Consoles at other ports of this host get the cookie too.
    return f"favourites-{hashlib.sha256(console.settings.bootstrap.encode()).hexdigest()[:12]}"


PAGES: Final = (Page("/favourite", change, methods=("POST",), is_local=True),)
