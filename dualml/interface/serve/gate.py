"""Access control: requests need the token of this start, and a Host header of this server.

Another site's page, open in the same browser, can send requests to 127.0.0.1, and a domain name of
that site can be made to resolve to it (DNS rebinding). The former has no token, because the cookie
is not sent along (SameSite=Strict); the latter sends its own name in the Host header.
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
    """Access control of one server: its token, new at every start, and its host names.

    Args:
        host, port: the address that the server listens on.
    """

    host: str
    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))

    @property
    def cookie(self) -> str:
        """Name of the cookie; it has the port, because browsers share cookies among ports."""
        return f"dualml-{self.port}"

    @property
    def is_local(self) -> bool:
        """Whether the server can be reached from this machine only."""
        return self.host == "localhost" or is_loopback(self.host)

    def url(self) -> str:
        """Return the URL to open in a browser, with the token; the host name of this machine stands
        for an address that means all of its addresses."""
        host = self.host
        if is_ip_address(host) and ipaddress.ip_address(host).is_unspecified:
            host = socket.gethostname()
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/?token={self.token}"

    def accepts_host(self, header: str | None) -> bool:
        """Return whether a Host header names this server.

        Beyond loopback every IP address is accepted: only a name can be made to mean another
        machine.
        """
        try:
            parts = urlsplit(f"//{header or ''}")
            name, port = (parts.hostname or "").rstrip("."), parts.port or 80
        except ValueError:
            return False
        if port != self.port or parts.netloc != header or "@" in parts.netloc:
            return False
        if self.is_local:
            return name in LOOPBACK or (name == self.host and self.is_local)
        own = {self.host.lower(), socket.gethostname().lower(), *LOOPBACK}
        return name in own or is_ip_address(name)

    def is_authorized(self, asked: str, cookies: str | None) -> bool:
        """Return whether the token is ``asked``, the one in the URL, or in the Cookie header
        ``cookies``."""
        return self.is_token(asked) or self.is_token(self.cookie_value(cookies, self.cookie))

    def is_token(self, token: str) -> bool:
        """Return whether a token is correct, compared in constant time."""
        return hmac.compare_digest(token.encode(), self.token.encode())

    @staticmethod
    def cookie_value(cookies: str | None, name: str) -> str:
        """Return the value of a cookie in a Cookie header, or an empty string if it is not
        there."""
        try:
            jar = SimpleCookie(cookies or "")
        except CookieError:
            return ""
        return jar[name].value if name in jar else ""


def is_ip_address(host: str) -> bool:
    """Return whether a host is an IP address, not a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Return whether a host is a loopback IP address; False for any name, also ``localhost``."""
    return is_ip_address(host) and ipaddress.ip_address(host).is_loopback
