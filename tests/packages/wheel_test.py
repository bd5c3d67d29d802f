#!/usr/bin/env python3
"""The wheel in dist/ as somebody without the source has it: pip into a fresh environment, the program, `reprise demo`
with the model that it fetches once, and two short programs for vLLM and SGLang with their import changed.

    wheel_test.py --dist FOLDER
"""
import argparse
import os
import pathlib
import re
import shutil
import sys
import tempfile
import time
import unittest

from support import run

MOST_BYTES = 15_000_000
QUESTION = "What is the capital of France?"
options = None

VLLM = """
from vllm import LLM, SamplingParams

if __name__ == "__main__":
    questions = ["The capital of France is", "The largest planet is"]
    answers = LLM(model="smollm2").generate(questions, SamplingParams(temperature=0.8, top_p=0.95, max_tokens=8, seed=1))
    for answer in answers:
        print(f"{answer.prompt!r}: {answer.outputs[0].text!r}")
"""

SGLANG = """
import sglang as sgl

if __name__ == "__main__":
    engine = sgl.Engine(model_path="smollm2")
    questions = ["The capital of France is", "The largest planet is"]
    answers = engine.generate(questions, {"temperature": 0, "max_new_tokens": 8})
    for question, answer in zip(questions, answers):
        print(f"{question!r}: {answer['text']!r}")
    engine.shutdown()
"""


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.held = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.held.name)
        cls.wheel = max(options.dist.glob("*.whl"), key=lambda p: p.stat().st_mtime)
        run(sys.executable, "-m", "venv", cls.folder / "venv")
        cls.bin = cls.folder / "venv/bin"
        run(cls.bin / "pip", "install", "-q", "--no-index", cls.wheel)
        # No PYTHONPATH, no library path, and a working folder without the source. HOME keeps the model between runs.
        cls.env = {"PATH": f"{cls.bin}:/usr/bin:/bin", "HOME": os.environ["HOME"]}

    @classmethod
    def tearDownClass(cls):
        cls.held.cleanup()

    def asks(self, *command):
        return run(*command, env=self.env, cwd=self.folder).stdout

    def test_1_its_size_and_its_tag(self):
        self.assertLessEqual(self.wheel.stat().st_size, MOST_BYTES)
        glibc = re.search(r"-py3-none-manylinux_2_(\d+)_\w+\.whl$", self.wheel.name)
        self.assertIsNotNone(glibc, self.wheel.name)
        if auditwheel := shutil.which("auditwheel"):
            allowed = re.search(r'"manylinux_2_(\d+)_', run(auditwheel, "show", self.wheel).stdout)
            self.assertIsNotNone(allowed)
            self.assertLessEqual(int(allowed[1]), int(glibc[1]))
            print(f"{self.wheel.name}: {self.wheel.stat().st_size / 1e6:.1f} MB, auditwheel says glibc 2.{allowed[1]}")

    def test_2_the_program(self):
        self.assertRegex(self.asks(self.bin / "reprise", "--version"), r"^reprise \d+\.\d+")

    def test_3_the_demo(self):
        began = time.monotonic()
        self.assertIn("Paris", self.asks(self.bin / "reprise", "demo", QUESTION))
        print(f"reprise demo: {time.monotonic() - began:.1f} s")

    def test_4_programs_for_other_engines(self):
        for name, text, before, after in (("vllm", VLLM, "from vllm import", "from reprise import"),
                                          ("sglang", SGLANG, "import sglang as sgl", "import reprise as sgl")):
            with self.subTest(name):
                self.assertEqual(text.count(before), 1)
                program = self.folder / f"for_{name}.py"
                program.write_text(text.replace(before, after))
                said = self.asks(self.bin / "python", program)
                self.assertRegex(said, r"'The capital of France is': '.+'\n'The largest planet is': '.+'\n$")
                if name == "sglang":  # the most likely tokens
                    self.assertIn("Paris", said)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--dist", required=True, type=lambda text: pathlib.Path(text).resolve())
    options, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
