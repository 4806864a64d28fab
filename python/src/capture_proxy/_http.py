"""JSON over HTTP to one proxy."""

from __future__ import annotations

import http.client
import ipaddress
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from .errors import CaptureProxyError, ProxyUnreachableError, api_error


class Transport:
    """Makes the calls. Safe for use by several threads."""

    def __init__(self, url: str, admin_key: str | None, timeout: float) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is no URL of a proxy: write it as http://127.0.0.1:8100")
        self.url = url.rstrip("/")
        self.timeout = timeout
        self._key = admin_key
        handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
        if _is_loopback(parts.hostname):
            handlers.append(urllib.request.ProxyHandler({}))  # http_proxy and its like are for other machines
        self._opener = urllib.request.build_opener(*handlers)

    def call(
        self, method: str, path: str, query: Mapping[str, Any] | None = None, body: Mapping[str, Any] | None = None, timeout: float | None = None
    ) -> Any:
        """Makes one call and returns the answer's JSON."""
        text = self.read(method, path, query, body, timeout)
        try:
            return json.loads(text)
        except ValueError as error:
            raise CaptureProxyError(f"the answer to {method} {path} is not what a control API says: {error}") from error

    def read(
        self, method: str, path: str, query: Mapping[str, Any] | None = None, body: Mapping[str, Any] | None = None, timeout: float | None = None
    ) -> bytes:
        """Makes one call and returns the body of a good answer."""
        address = self.url + path
        if query:
            address += "?" + urllib.parse.urlencode(query)
        request = urllib.request.Request(address, method=method)
        if body is not None:
            request.data = json.dumps(body, allow_nan=False).encode()
            request.add_header("Content-Type", "application/json")
        if self._key:
            request.add_header("Authorization", "Bearer " + self._key)
        try:
            with self._opener.open(request, timeout=self.timeout if timeout is None else timeout) as answer:
                content: bytes = answer.read()
                return content
        except urllib.error.HTTPError as error:
            with error:
                raise _problem(error) from None
        except urllib.error.URLError as error:
            raise ProxyUnreachableError(f"the proxy at {self.url} cannot be reached: {error.reason}") from error
        except (OSError, http.client.HTTPException) as error:
            raise ProxyUnreachableError(f"the answer of the proxy at {self.url} broke off: {error or type(error).__name__}") from error


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A control API never redirects; whoever does would be sent the admin key."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


def _is_loopback(host: str) -> bool:
    if host.rstrip(".").lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _problem(answer: urllib.error.HTTPError) -> Exception:
    """Reads an answer that is none."""
    try:
        error = json.loads(answer.read())["error"]
        return api_error(answer.code, str(error["message"]), error.get("type"), error.get("param"))
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError, AttributeError):
        return api_error(answer.code, f"the answer is {answer.code} {answer.reason}: is this a capture-proxy?")
