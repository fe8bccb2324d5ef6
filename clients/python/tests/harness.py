"""A server behind a proxy with faults, in a process of its own."""

import json
import os
import subprocess
from typing import Any

import httpx


class Harness:
    """HOLDFAST_HARNESS is the program of internal/conformance/harness, and HOLDFAST_COMMAND holdfast itself."""

    def __init__(self) -> None:
        harness, command = os.environ.get("HOLDFAST_HARNESS"), os.environ.get("HOLDFAST_COMMAND")
        if not harness or not command:
            raise RuntimeError("run .ci/clients, which builds a server and sets HOLDFAST_HARNESS to it")
        self._process = subprocess.Popen([harness, command], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout
        at = json.loads(self._process.stdout.readline())
        self.url, self.direct, self.token, self._control = at["url"], at["direct"], at["token"], at["control"]

    def do(self, **what: Any) -> Any:
        """Tells the server or the proxy something."""
        resp = httpx.post(self._control, json=what, timeout=120)
        if not resp.is_success:
            raise RuntimeError(resp.text)
        return resp.json()

    def stop(self) -> None:
        """Ends both."""
        self._process.communicate()
