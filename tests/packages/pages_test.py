#!/usr/bin/env python3
"""What the program makes of its table of settings for packages: manual pages, completions, the file of settings.

    pages_test.py --reprise FILE
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from support import ROOT, run

options = None


def without(test, program):
    """Skips the test where the program is missing; with CI=true it fails instead."""
    if not shutil.which(program):
        if os.environ.get("CI"):
            raise AssertionError(f"there is no {program}")
        test.skipTest(f"there is no {program}")


class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.held = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.held.name)
        run(sys.executable, ROOT / "tools/package_files.py", options.reprise, cls.folder)
        cls.table = json.loads(run(options.reprise, "help", "settings", "--json").stdout)

    @classmethod
    def tearDownClass(cls):
        cls.held.cleanup()

    def test_manual_pages_are_clean(self):
        without(self, "man")
        pages = sorted((self.folder / "share/man").rglob("*.[17]"))
        names = {p.name for p in pages}
        for name in ("reprise.1", "reprise-serve.1", "reprise-bench-one-batch.1", "reprise-help.1", "reprise-settings.7"):
            self.assertIn(name, names)
        self.assertGreater(len(pages), 25)
        env = {**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "100"}
        for page in pages:
            done = run("man", "-l", "--warnings", page, env=env, stdin=subprocess.DEVNULL)
            self.assertEqual(done.stderr, "", page.name)
            # The name line is what whatis(1) finds.
            name = page.stem.replace("-", "\\-")
            self.assertRegex(page.read_text(), rf"\.SH NAME\n{re.escape(name)} \\- \S")
            self.assertIn("SEE ALSO", done.stdout)

    def test_the_page_of_settings_has_all_of_them(self):
        without(self, "man")
        env = {**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "1000"}
        text = run("man", "-l", self.folder / "share/man/man7/reprise-settings.7", env=env).stdout
        text = re.sub(".\x08", "", text)  # overstruck letters
        words = run(options.reprise, "help", "settings").stdout
        markdown = run(options.reprise, "help", "settings", "--markdown").stdout
        for row in self.table:
            flag = f"--{row['name']}"
            for form in (text, words, markdown):
                self.assertTrue(re.search(rf"{re.escape(flag)}(?![-\w])", form), f"{flag} in {form[:60]!r}...")

    def test_the_file_of_settings(self):
        text = (self.folder / "etc/reprise/server.json").read_text()
        self.assertLessEqual(max(map(len, text.splitlines())), 120)
        # Another reader of JSON: without its comments the file is JSON, and so it is with every default.
        plain = re.sub(r"^ *//.*$", "", text, flags=re.M)
        self.assertEqual(json.loads(plain), {"log-format": "text"})
        with_defaults = re.sub(r'^( *)// ("[a-z0-9-]+": (?!\.\.\.).*,)$', r"\1\2", text, flags=re.M)
        values = json.loads(re.sub(r'^ *//.*$|^ *"include".*$', "", with_defaults, flags=re.M))
        self.assertGreater(len(values), 60)
        of_files = {"Model", "Engine", "Graphs", "Speculative decoding", "Server"}
        left_out = {"config", "check", "enable-metrics", "log-requests", "verbose"}
        rows = {row["name"]: row for row in self.table}
        for name, row in rows.items():
            if row["group"] in of_files and name not in left_out:
                self.assertRegex(text, rf'"{name}": ')
        for name, value in values.items():
            default = rows[name]["default"]
            if default is not None:
                self.assertEqual(str(value).lower() if isinstance(value, bool) else str(value), default)
        # The program takes all of its own defaults at once.
        file = self.folder / "server.json"
        values.update({"model-path": "nowhere", "load-format": "dummy"})
        # A text that may be empty is not given at all.
        file.write_text(json.dumps(values))
        done = run(options.reprise, "serve", "--check", "--config", file)
        self.assertIn("valid", done.stderr)

    def test_what_is_no_page_is_an_error(self):
        for words, instead in ((["nothing", "--man"], "allowed: "), (["settings", "--man", "--json"], "one of them"),
                               (["bench", "nothing", "--man"], "one-batch")):
            done = subprocess.run([options.reprise, "help", *words], capture_output=True, text=True)
            self.assertEqual(done.returncode, 2, words)
            self.assertIn(instead, done.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--reprise", required=True)
    options, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
