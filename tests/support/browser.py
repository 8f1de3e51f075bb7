"""Chromium for tests, without a driver: DevTools' protocol over two pipes.

  with Browser() as browser:
      browser.open("http://127.0.0.1:9401/", 1600, 1000)
      browser.wait("document.title !== ''")
"""
import base64
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
DEADLINE_S = 60


def program():
    """The browser's path; None: there is none here."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


class Browser:
    """One window. What its console says, and what a policy refused, is in `said`."""

    def __init__(self):
        self.said, self._number, self._session, self._bytes = [], 0, None, b""
        self._profile = tempfile.mkdtemp()
        to_read, self._out = os.pipe()
        self._in, to_write = os.pipe()

        def pipes():  # DevTools reads descriptor 3 and writes 4
            high = [os.dup2(fd, fd + 64) for fd in (to_read, to_write)]
            for fd, place in zip(high, (3, 4)):
                os.dup2(fd, place)
                os.set_inheritable(place, True)

        self.process = subprocess.Popen(
            [program(), "--headless=new", "--remote-debugging-pipe", "--no-sandbox",
             "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
             f"--user-data-dir={self._profile}", "about:blank"],
            close_fds=False, preexec_fn=pipes, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target,
                                  flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait(DEADLINE_S)
        os.close(self._in)
        os.close(self._out)
        shutil.rmtree(self._profile, ignore_errors=True)

    def _next(self, deadline):
        while b"\0" not in self._bytes:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._in], [], [], left)[0]:
                raise TimeoutError("the browser does not answer")
            part = os.read(self._in, 1 << 20)
            if not part:
                raise EOFError("the browser has ended")
            self._bytes += part
        message, _, self._bytes = self._bytes.partition(b"\0")
        return json.loads(message)

    def call(self, method, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + DEADLINE_S
        while True:
            answer = self._next(deadline)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self._hear(answer)

    def _hear(self, event):
        parameters = event.get("params", {})
        if event.get("method") == "Log.entryAdded":
            self.said.append(parameters["entry"]["text"])
        elif event.get("method") == "Runtime.consoleAPICalled":
            self.said.append(str([each.get("value") for each in parameters["args"]]))
        elif event.get("method") == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.said.append(details.get("exception", {}).get("description", details["text"]))

    def value(self, script):
        """What an expression is; a promise is awaited."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True,
                           awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{script}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait(self, script):
        """Until the expression is true; its value. One that throws is not true yet."""
        deadline = time.monotonic() + DEADLINE_S
        tried = f"(() => {{ try {{ return ({script}); }} catch (error) {{ return null; }} }})()"
        while not (found := self.value(tried)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{script} was not true in time; console: {self.said}")
            time.sleep(0.02)
        return found

    def open(self, url, width, height, dark=False, mobile=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=mobile)
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.leave()
        self.call("Page.navigate", url=url)

    def leave(self):
        """So that no page asks its server for more."""
        self.call("Page.navigate", url="about:blank")

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def drag(self, x, y, to_x):
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, button="left", buttons=1, clickCount=1)
        self.mouse("mouseMoved", (x + to_x) / 2, y, button="left", buttons=1)
        self.mouse("mouseMoved", to_x, y, button="left", buttons=1)
        self.mouse("mouseReleased", to_x, y, button="left", clickCount=1)

    def picture(self, path, height=None):
        """A PNG of the window, or of the page down to `height`."""
        more = {}
        if height:
            width = self.value("innerWidth")
            more = {"captureBeyondViewport": True,
                    "clip": {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}}
        shot = self.call("Page.captureScreenshot", format="png", **more)
        pathlib.Path(path).write_bytes(base64.b64decode(shot["data"]))
