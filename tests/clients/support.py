"""What the clients' tests share: a running `reprise serve`, its counters, and clients run as commands.

Each test file runs in the virtual environment of its own client (see run.py) and needs nothing else but Python.
"""

import contextlib
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(os.environ.get("REPRISE_BINARY", ROOT / "build/release/bin/reprise"))
MODEL = "smollm2"
# Programs of the environment that the test runs in.
PROGRAMS = pathlib.Path(sys.executable).parent


class Server:
    """`reprise serve` on a free port, ready to answer unless `wait` is False."""

    key = "none"

    def __init__(self, *flags, port=0, wait=True, model=MODEL):
        self._log = tempfile.TemporaryFile("w+")
        # The answers that tests expect are those of fp32; auto would depend on the processor.
        if "--dtype" not in flags:
            flags = ("--dtype", "float32", *flags)
        # One thread: two that wait for each other crawl when the machine does other things as well.
        self._process = subprocess.Popen(
            [str(BINARY), "serve", "--model-path", str(model), "--port", str(port), "--threads", "1", *flags],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self._log,
        )
        self.port = port
        if not wait:
            return
        try:
            self.port = self._wait_for_port()
        except BaseException:
            self.stop()
            raise

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def said(self):
        self._log.seek(0)
        return self._log.read()

    def _wait_for_port(self):
        if not soon(lambda: "; Ctrl-C ends" in self.said() or self._process.poll() is not None, 120):
            raise RuntimeError(f"the server did not start:\n{self.said()}")
        found = re.search(r"at http://127\.0\.0\.1:(\d+) ", self.said())
        if not found:
            raise RuntimeError(f"the server ended with status {self._process.poll()}:\n{self.said()}")
        return int(found[1])

    def stop(self):
        """Ends it politely; its exit status."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(600)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._log.close()
        return self._process.returncode

    def counter(self, name, **labels):
        """The sum of a metric over all series that have these labels."""
        request = urllib.request.Request(self.url + "/metrics", headers={"Authorization": f"Bearer {self.key}"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            text = answer.read().decode()
        total, seen = 0.0, False
        for line in text.splitlines():
            if not line.startswith(name + "{") and not line.startswith(name + " "):
                continue
            seen = True
            if all(f'{key}="{value}"' in line for key, value in labels.items()):
                total += float(line.rsplit(" ", 1)[1])
        if not seen:
            raise AssertionError(f"/metrics has no {name}")
        return total

    def totals(self):
        """What it has done so far: prompt tokens, generated tokens, and requests that ended by themselves."""
        return {
            "prompt": int(self.counter("vllm:prompt_tokens_total")),
            "generated": int(self.counter("vllm:generation_tokens_total")),
            "stop": int(self.counter("vllm:request_success_total", finished_reason="stop")),
            "length": int(self.counter("vllm:request_success_total", finished_reason="length")),
            "abort": int(self.counter("vllm:request_success_total", finished_reason="abort")),
        }


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def soon(what, seconds=30):
    """Asks until it is true, or the time is over."""
    end = time.monotonic() + seconds
    while True:
        if what():
            return True
        if time.monotonic() > end:
            return False
        time.sleep(0.05)


def since(before, after):
    return {name: after[name] - before[name] for name in after}


class WithServer(unittest.TestCase):
    """A server for all tests of a class."""

    flags = ()
    model = MODEL

    @classmethod
    def setUpClass(cls):
        cls.server = Server(*cls.flags, model=cls.model)

    @classmethod
    def tearDownClass(cls):
        status = cls.server.stop()
        if status != 0:
            raise AssertionError(f"the server ended with status {status}")

    @contextlib.contextmanager
    def counted(self):
        """Gives a dict that afterwards holds what the server did meanwhile."""
        done = {}
        before = self.server.totals()
        yield done
        # A request is counted a moment after its last byte.
        self.assertTrue(soon(lambda: self.server.counter("vllm:num_requests_running") == 0))
        done.update(since(before, self.server.totals()))

    def run_client(self, *command, timeout=900, env=None):
        """Runs a program to its end and gives what it printed. REPRISE_SHOW prints the command and its output."""
        command = [str(c) for c in command]
        # No client may look for anything beyond this machine.
        quiet = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "NO_COLOR": "1",
                 "OPENAI_API_KEY": "none", "COLUMNS": "160", "TERM": "dumb"}
        with tempfile.TemporaryDirectory() as folder:  # for what it leaves behind
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                timeout=timeout, env={**os.environ, **quiet, **(env or {})}, check=False, cwd=folder,
            )
        if os.environ.get("REPRISE_SHOW"):
            print("$", *command, "\n" + done.stdout, flush=True)
        self.assertEqual(done.returncode, 0, " ".join(command) + "\n" + done.stdout[-8000:])
        return done.stdout


VISION = ROOT / "tests/data/vision/qwen3_vl"


def asked_of_images(number):
    """A conversation of one turn with images: its parts, each a text or the bytes and kind of an image, and what
    transformers answers (tools/golden/make_vision_answers.py)."""
    want = json.loads((VISION / "answers.json").read_text())[number]
    parts = []
    for part in want["messages"][0]["content"]:
        file = part.get("file")
        parts.append(part["text"] if not file else ((ROOT / "tests/data/images" / file).read_bytes(), pathlib.Path(file).suffix[1:]))
    return parts, want


def tokenizer_folder(folder):
    """The tokenizer of the served model as a folder that transformers can read; written by `reprise quantize`."""
    out = pathlib.Path(folder) / "tokenizer"
    done = subprocess.run(
        [BINARY, "quantize", "--model-path", MODEL, "--output", out],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(done.stdout)
    return out


def read_json(path):
    return json.loads(pathlib.Path(path).read_text())
