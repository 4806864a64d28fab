"""The environment of an agent: what `capture-proxy run` gives its command."""

from __future__ import annotations

from collections.abc import Mapping

# Variables with which agents authenticate in place of the API key: a real credential would be sent instead of the
# session's.
_OTHER_CREDENTIALS = ("ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "GOOGLE_API_KEY")


def child_environment(parent: Mapping[str, str], proxy_url: str, key: str) -> dict[str, str]:
    """Points every dialect at the proxy. The proxy's own variables are left out, above all its admin key."""
    env = {name: value for name, value in parent.items() if not name.startswith("CAPTURE_PROXY_") and name not in _OTHER_CREDENTIALS}
    env |= {
        "OPENAI_BASE_URL": proxy_url + "/v1",
        "OPENAI_API_BASE": proxy_url + "/v1",
        "OPENAI_API_KEY": key,
        "ANTHROPIC_BASE_URL": proxy_url,
        "ANTHROPIC_API_KEY": key,
        "GOOGLE_GEMINI_BASE_URL": proxy_url,
        "GEMINI_API_KEY": key,
        "CAPTURE_PROXY_SESSION": key,
        "CAPTURE_PROXY_URL": proxy_url,
    }
    for name in ("NO_PROXY", "no_proxy"):
        env[name] = _with_loopback(env.get(name, ""))
    return env


def _with_loopback(hosts: str) -> str:
    """Adds the loopback names to a list of hosts that are reached without an HTTP proxy."""
    names = [host for host in (host.strip() for host in hosts.split(",")) if host]
    return ",".join(names + [host for host in ("127.0.0.1", "localhost") if host not in names])
