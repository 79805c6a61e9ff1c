"""Who may look: whoever has this start's token, at an address that is this server's.

A page of somebody else's, open in the same browser, can send requests to 127.0.0.1, and a name of
theirs can be made to mean it (DNS rebinding). The first has no token: the cookie is not sent along
(SameSite=Strict); the second says its own name in the Host header.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass
class Gate:
    """The token, made anew at every start, and the names that the server goes by.

    Args:
        host, port: where it listens.
    """

    host: str
    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))

    @property
    def cookie(self) -> str:
        """A browser keeps one for all ports of a machine under the same name."""
        return f"dualml-{self.port}"

    @property
    def local(self) -> bool:
        """Whether it can be reached from this machine alone."""
        return self.host == "localhost" or is_loopback(self.host)

    def url(self) -> str:
        """What is opened in a browser."""
        host = self.host
        if is_address(host) and ipaddress.ip_address(host).is_unspecified:
            host = socket.gethostname()
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/?token={self.token}"

    def knows(self, header: str | None) -> bool:
        """Whether a Host header names this server. Beyond loopback every number will do: only a
        name can be made to mean another machine."""
        try:
            parts = urlsplit(f"//{header or ''}")
            name, port = (parts.hostname or "").rstrip("."), parts.port or 80
        except ValueError:
            return False
        if port != self.port or parts.netloc != header or "@" in parts.netloc:
            return False
        if self.local:
            return name in LOOPBACK or (name == self.host and self.local)
        own = {self.host.lower(), socket.gethostname().lower(), *LOOPBACK}
        return name in own or is_address(name)

    def lets_in(self, asked: str, cookies: str | None) -> bool:
        """Whether the token stands in the address or in the cookie."""
        return self.right(asked) or self.right(self.kept(cookies, self.cookie))

    def right(self, token: str) -> bool:
        """In a time that does not depend on how much of it is right."""
        return hmac.compare_digest(token.encode(), self.token.encode())

    @staticmethod
    def kept(cookies: str | None, name: str) -> str:
        """A cookie's value; nothing where there is none."""
        try:
            jar = SimpleCookie(cookies or "")
        except CookieError:
            return ""
        return jar[name].value if name in jar else ""


def is_address(host: str) -> bool:
    """Whether it is a number, not a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    return is_address(host) and ipaddress.ip_address(host).is_loopback
