"""What the tests of packages share: a small model, and `reprise serve` with it as a process."""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def run(*command, fails=False, **more):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=600, **more)
    if (done.returncode != 0) != fails:
        raise AssertionError(f"{command}: status {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done


def make_model(folder):
    run(sys.executable, ROOT / "tests/capi/make_model.py", folder)
    return folder


def ask(url, body=None, key=None):
    """(status, text) of a request."""
    headers = {"content-type": "application/json"}
    if key:
        headers["authorization"] = f"Bearer {key}"
    request = urllib.request.Request(url, json.dumps(body).encode() if body is not None else None, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode()


class Server:
    """A server that goes with the test; `command` starts it, and its words on standard error name the address."""

    def __init__(self, *command, env=None, **more):
        self.log = tempfile.NamedTemporaryFile("r+", suffix=".log")
        self.process = subprocess.Popen([str(c) for c in command], stderr=self.log, env=env, start_new_session=True, **more)

    def said(self):
        return pathlib.Path(self.log.name).read_text()

    def wait_for(self, pattern, seconds=60):
        end = time.monotonic() + seconds
        while not (found := re.search(pattern, self.said())):
            if self.process.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"no {pattern!r} in:\n{self.said()[-3000:]}")
            time.sleep(0.02)
        return found

    def url(self):
        return self.wait_for(r"at (http://127\.0\.0\.1:\d+) ")[1]

    def end(self):
        """Its exit status after SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.log.close()
