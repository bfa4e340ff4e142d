"""The cookies of one caller: those that a server sets come back to it.

Strategy: the standard library knows the rules. It is loaded when the first cookie comes: most servers set none.
"""

from __future__ import annotations

from email.message import Message
from http.cookiejar import CookieJar
from typing import TYPE_CHECKING, Any, cast
from urllib.request import Request

from .response import Headers

if TYPE_CHECKING:
    from http.client import HTTPResponse


class Cookies:
    def __init__(self) -> None:
        self._jar = CookieJar()

    def learn(self, url: str, headers: Headers) -> None:
        self._jar.extract_cookies(cast("HTTPResponse", _Reply(headers)), Request(url))

    def header(self, url: str) -> Headers:
        """The header that goes with a request."""
        asked = Request(url)
        self._jar.add_cookie_header(asked)
        said = asked.get_header("Cookie")
        return [("cookie", said)] if said else []


class _Reply:
    def __init__(self, headers: Headers) -> None:
        self._message = Message()
        for name, value in headers:
            self._message[name] = value

    def info(self) -> Any:
        return self._message
