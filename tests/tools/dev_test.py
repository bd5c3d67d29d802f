"""./dev answers wrong usage with status 2, and each check that it runs through other tools fails when it should."""

import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Dev(unittest.TestCase):
    """A repository in a temporary folder with the front door and one C++ file."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name in ("dev", "LICENSE", ".clang-format"):
            shutil.copy2(ROOT / name, self.root / name)
        shutil.copytree(ROOT / "tools" / "dev", self.root / "tools" / "dev")
        for name in ("packages.txt", "spelling_ignore.txt", "test_modes.txt"):
            shutil.copy2(ROOT / "tools" / name, self.root / "tools" / name)
        self.write("src/a.h", "#pragma once\n\nint answer();  // the answer\n")
        subprocess.run(["git", "init", "-q"], cwd=self.root, check=True)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def dev(self, *arguments):
        subprocess.run(["git", "add", "-A"], cwd=self.root, check=True)
        done = subprocess.run(["./dev", *arguments], cwd=self.root, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def check_fails(self, name, words):
        status, output = self.dev("check", name)
        self.assertEqual(status, 1, output)
        self.assertIn(f"failed  {name}", output)
        self.assertIn(words, output)

    def test_clean_tree(self):
        status, output = self.dev("check", "format", "spelling", "licence")
        self.assertEqual(status, 0, output)
        self.assertEqual(output.count("ok "), 3, output)

    def test_format(self):
        self.write("src/b.cpp", "int   f( ) {return 1;}\n")
        self.check_fails("format", "src/b.cpp:1")

    def test_spelling(self):
        self.write("docs/a.md", "We recie" + "ve it.\n")
        self.check_fails("spelling", "docs/a.md:1: reciev" + "e ==> receive")

    def test_licence(self):
        self.write("LICENSE", "none\n")
        self.check_fails("licence", "LICENSE")

    def test_output_has_no_colours_outside_a_terminal(self):
        self.assertNotIn("\033", self.dev("check", "licence")[1])

    def test_wrong_usage(self):
        for arguments, words in (
            (["nonsense"], "usage: ./dev VERB"),
            (["build", "nonsense"], "there are: release"),
            (["check", "nonsense"], "there are: layers"),
            (["fuzz", "all"], "SECONDS"),
            (["fuzz", "nonsense", "1"], 'no fuzz target "nonsense"'),
            (["golden"], "--accept"),
            (["test", "a", "b"], "one filter"),
        ):
            with self.subTest(arguments=arguments):
                (self.root / "tests" / "fuzz").mkdir(parents=True, exist_ok=True)
                status, output = self.dev(*arguments)
                self.assertEqual(status, 2, output)
                self.assertIn(words, output)

    def test_help_names_every_verb(self):
        status, output = self.dev("help")
        self.assertEqual(status, 0)
        text = (self.root / "dev").read_text()
        verbs = [line.split("()")[0][3:] for line in text.splitlines() if line.startswith("do_")]
        self.assertGreater(len(verbs), 8)
        for verb in verbs:
            self.assertIn(f"\n  {verb} ", output)


if __name__ == "__main__":
    unittest.main()
