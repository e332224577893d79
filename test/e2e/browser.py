"""A headless Chromium, driven over a pipe by its DevTools protocol: no package besides Python's own library.

https://chromedevtools.github.io/devtools-protocol/; with --remote-debugging-pipe the browser reads JSON messages from file
descriptor 3 and writes to 4, each ended by a zero byte.
"""
import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile

PROGRAM = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"))), None)
SECONDS = 120                            # a page of these tests takes two; a hang must end


class Browser:
    """`with Browser() as browser: browser.open(path)`. Collects the page's errors in `errors`, its requests to the network or to
    other files in `requests`, and the dialogs that it opened in `dialogs`."""

    def __init__(self, width=1280, height=900):
        self.size, self.errors, self.requests, self.dialogs, self.buffer = (width, height), [], [], [], b""
        self.results, self.count = {}, 0

    def __enter__(self):
        self.profile = tempfile.TemporaryDirectory(prefix="tcc-browser-", ignore_cleanup_errors=True)
        commands, self.to = os.pipe()
        self.answers, answers = os.pipe()
        ours = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (commands, answers)]  # out of the way of 3 and 4

        def prepare():
            os.dup2(ours[0], 3)
            os.dup2(ours[1], 4)

        words = [PROGRAM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                 "--disable-background-networking", "--remote-debugging-pipe", f"--user-data-dir={self.profile.name}", "about:blank"]
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        preexec_fn=prepare, pass_fds=(3, 4))
        for fd in (commands, answers, *ours):
            os.close(fd)
        self.session = None
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")
        self.resize(*self.size)
        return self

    def __exit__(self, *exception):
        self.process.kill()
        self.process.wait()
        os.close(self.to)
        os.close(self.answers)
        self.profile.cleanup()

    def receive(self):
        while b"\0" not in self.buffer:
            if not select.select([self.answers], [], [], SECONDS)[0]:
                raise TimeoutError("the browser does not answer")
            read = os.read(self.answers, 1 << 16)
            if not read:
                raise EOFError(f"the browser ended with status {self.process.wait()}")
            self.buffer += read
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def event(self, message):
        method, values = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(values["exceptionDetails"].get("exception", {}).get("description") or values["exceptionDetails"]["text"])
        elif method == "Log.entryAdded" and values["entry"]["level"] == "error":
            self.errors.append(values["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(values["request"]["url"])
        elif method == "Page.javascriptDialogOpening":
            self.dialogs.append(values["message"])
            self.send("Page.handleJavaScriptDialog", accept=True)

    def send(self, method, **values):
        self.count += 1
        number, message = self.count, {"id": self.count, "method": method, "params": values}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.to, data):]
        while number not in self.results:     # the handler of an event may send commands, and so receive this answer
            answer = self.receive()
            if "id" in answer:
                self.results[answer["id"]] = answer
            else:
                self.event(answer)
        answer = self.results.pop(number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def open(self, path):
        self.errors, self.requests, self.dialogs = [], [], []
        self.send("Page.navigate", url=path.as_uri())
        self.run("new Promise(done => document.readyState === 'complete' ? done() : addEventListener('load', () => done()))")
        self.frames()

    def run(self, script):
        """The value of an expression, waited for if it is a promise."""
        answer = self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True, userGesture=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{script}: {answer['exceptionDetails'].get('exception', {}).get('description')}")
        return answer["result"].get("value")

    def frames(self):
        """Waits until the page is drawn."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done())))")

    def resize(self, width, height):
        self.size = (width, height)
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def scheme(self, name, media=""):
        self.send("Emulation.setEmulatedMedia", media=media, features=[{"name": "prefers-color-scheme", "value": name}])
        self.frames()

    def mouse(self, kind, x, y, **values):
        self.send("Input.dispatchMouseEvent", type=f"mouse{kind}", x=x, y=y, **values)

    def move(self, x, y):
        self.mouse("Moved", x, y)
        self.frames()

    def click(self, x, y):
        self.mouse("Moved", x, y)
        for kind in ("Pressed", "Released"):
            self.mouse(kind, x, y, button="left", clickCount=1)
        self.frames()

    def click_on(self, script):
        """Scrolls an element into view and clicks in its middle."""
        x, y = self.run(f"(() => {{ const e = {script}; e.scrollIntoView({{block: 'center'}}); const b = e.getBoundingClientRect(); "
                        "return [b.x + b.width / 2, b.y + b.height / 2]; })()")
        self.click(x, y)

    def drag(self, x, y, to_x, to_y):
        self.mouse("Moved", x, y)
        self.mouse("Pressed", x, y, button="left", buttons=1, clickCount=1)
        for part in (0.3, 0.7, 1):
            self.mouse("Moved", x + part * (to_x - x), y + part * (to_y - y), button="left", buttons=1)
        self.mouse("Released", to_x, to_y, button="left", clickCount=1)
        self.frames()

    def wheel(self, x, y, delta, shift=False):
        self.send("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=delta, modifiers=8 if shift else 0)
        self.frames()

    def key(self, key, code=None, modifiers=0):
        text = key if len(key) == 1 else None
        extra = {"text": text} if text else {}
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, code=code or key, modifiers=modifiers, **extra)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key, code=code or key, modifiers=modifiers)
        self.frames()

    def write(self, text):
        self.send("Input.insertText", text=text)
        self.frames()

    def pdf(self):
        return base64.b64decode(self.send("Page.printToPDF", printBackground=True)["data"])

    def picture(self, path, full=False, clip=None):
        values = {"clip": clip | {"scale": 1}} if clip else {}
        path.write_bytes(base64.b64decode(self.send("Page.captureScreenshot", format="png", captureBeyondViewport=full, **values)["data"]))
