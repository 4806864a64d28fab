"""The real binary between the tests and its built-in engine, on loopback ports of its own."""

from __future__ import annotations

import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import unittest
import urllib.request
from typing import Any

import capture_proxy

PYTHON = pathlib.Path(__file__).resolve().parent.parent
EXAMPLES = PYTHON / "examples"
DOCUMENTS = PYTHON.parent / "export" / "format" / "testdata" / "rollouts"
BINARY = os.environ["CAPTURE_PROXY_BINARY"]

# The engine plays this many tool calls and then answers.
STEPS = 2


def clean_environment(**more: str) -> dict[str, str]:
    """The environment without what would set flags of the binary or defaults of the package."""
    return {name: value for name, value in os.environ.items() if not name.startswith("CAPTURE_PROXY_")} | more


class Process:
    """A program that serves until it is told to stop; what it prints first tells its URL."""

    def __init__(self, url: str, *args: str) -> None:
        self._errors = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            [BINARY, *args], stdout=subprocess.PIPE, stderr=self._errors, text=True, env=clean_environment()
        )
        assert self._process.stdout
        for line in self._process.stdout:
            if found := re.search(url, line):
                self.url = found[1]
                return
        self._errors.seek(0)
        raise AssertionError(f"{args} ended with {self._process.wait()}: {self._errors.read()}")

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.communicate()
        self._errors.close()


class ProxyTest(unittest.TestCase):
    """A test with an engine and a proxy, shared by the tests of its class."""

    flags: tuple[str, ...] = ()
    key: str | None = None

    @classmethod
    def setUpClass(cls) -> None:
        data = tempfile.TemporaryDirectory()
        cls.addClassCleanup(data.cleanup)
        cls.engine = Process(r"(http://\S+)", "fake-engine", "--steps", str(STEPS))
        cls.addClassCleanup(cls.engine.stop)
        cls.proxy = Process(
            r"listening at\s+(http://\S+)", "serve", "--listen", "127.0.0.1:0", "--upstream", cls.engine.url, "--data", data.name,
            "--log-level", "error", "--drain-timeout", "1s", *cls.flags,
        )  # fmt: skip
        cls.addClassCleanup(cls.proxy.stop)
        cls.client = capture_proxy.Client(cls.proxy.url, cls.key or "")

    def session(self, **create: Any) -> capture_proxy.Session:
        return capture_proxy.Session(client=self.client, **create)

    def play(self, session: capture_proxy.Session) -> int:
        """Plays the engine's task over the wire and returns the number of calls."""
        messages: list[Any] = [{"role": "user", "content": "Do the steps."}]
        shell = {"type": "function", "function": {"name": "shell", "parameters": {"type": "object", "properties": {}}}}
        for n in range(1, STEPS + 3):
            answer = self.post(session, {"model": "policy", "messages": messages, "tools": [shell]})
            message = answer["choices"][0]["message"]
            messages.append(message)
            if not message.get("tool_calls"):
                return n
            messages += [{"role": "tool", "tool_call_id": call["id"], "content": "done"} for call in message["tool_calls"]]
        raise AssertionError("the engine plays more steps than it was asked to")

    def post(self, session: capture_proxy.Session, body: Any) -> Any:
        request = urllib.request.Request(
            session.openai_base_url + "/chat/completions", json.dumps(body).encode(),
            {"Content-Type": "application/json", "Authorization": "Bearer " + session.key},
        )  # fmt: skip
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request) as answer:
            return json.load(answer)
