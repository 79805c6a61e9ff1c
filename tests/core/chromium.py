"""Headless Chromium, driven over WebDriver (JSON over HTTP) through chromedriver."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--window-size=1300,1000",
)
PATIENCE_S = 60.0
KEYS = {
    "Tab": "\ue004",
    "Enter": "\ue007",
    "Space": " ",
    "Escape": "\ue00c",
    "Left": "\ue012",
    "Up": "\ue013",
    "Right": "\ue014",
    "Down": "\ue015",
}


def installed() -> bool:
    return bool(shutil.which("chromium") and shutil.which("chromedriver"))


class Browser:
    """A browser window; `js` runs a function body and returns its value."""

    def __init__(self, url: str) -> None:
        self.url = url
        options = {"binary": shutil.which("chromium"), "args": FLAGS}
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        session = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self.url += f"/session/{session['sessionId']}"

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, method=method)
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)["value"]

    def open(self, page: Path | str) -> None:
        """Open a file or an address and wait until the page is complete. On a busy machine the
        driver may answer before the page's scripts have run."""
        url = page if isinstance(page, str) else page.as_uri()
        self._ask("POST", "/url", {"url": url})
        deadline = time.monotonic() + PATIENCE_S
        while self.js("return document.readyState") != "complete":
            assert time.monotonic() < deadline, f"{url} was not loaded within {PATIENCE_S:g} s"
            time.sleep(0.02)

    def js(self, body: str, *arguments: Any) -> Any:
        return self._ask("POST", "/execute/sync", {"script": body, "args": list(arguments)})

    def cdp(self, command: str, **parameters: Any) -> Any:
        return self._ask("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def log(self, kind: str) -> list[dict[str, Any]]:
        """Return the new entries of the log ``browser`` or ``performance`` since the last call."""
        return list(self._ask("POST", "/se/log", {"type": kind}))

    def point(self, x: float, y: float, *, click: bool = False) -> None:
        """Move the pointer to a position in the window."""
        steps: list[dict[str, Any]] = [
            {"type": "pointerMove", "x": round(x), "y": round(y), "duration": 0}
        ]
        if click:
            steps += [{"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}]
        self._act({"type": "pointer", "id": "mouse", "actions": steps})

    def press(self, *keys: str) -> None:
        steps = [{"type": t, "value": KEYS[k]} for k in keys for t in ("keyDown", "keyUp")]
        self._act({"type": "key", "id": "keyboard", "actions": steps})

    def _act(self, source: dict[str, Any]) -> None:
        self._ask("POST", "/actions", {"actions": [source]})

    def pdf(self) -> bytes:
        return base64.b64decode(self.cdp("Page.printToPDF")["data"])

    def media(self, *, scheme: str = "", kind: str = "") -> None:
        """Emulate light or dark, screen or print; without arguments reset both."""
        features = [{"name": "prefers-color-scheme", "value": scheme}] if scheme else []
        self.cdp("Emulation.setEmulatedMedia", media=kind, features=features)


@contextmanager
def start_browser() -> Iterator[Browser]:
    with subprocess.Popen(
        ["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as driver:
        assert driver.stdout
        try:
            line = next(line for line in driver.stdout if "on port" in line and "success" in line)
            match = re.search(r"on port (\d+)", line)
            assert match, line
            browser = Browser(f"http://127.0.0.1:{match[1]}")
            try:
                yield browser
            finally:
                browser._ask("DELETE", "")
        finally:
            driver.terminate()
