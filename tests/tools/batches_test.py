"""Tests that share a process (tools/dev/batch_tests.py): none is lost, and one that fails fails the stage."""

import os
import pathlib
import re
import stat
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tools" / "dev"))

import batch_tests  # noqa: E402

# What GoogleTest does with a filter, as far as it matters here: a line for each test, and status 1 when one fails.
PROGRAM = """#!/bin/bash
filter=${1#--gtest_filter=}
status=0
IFS=: read -r -a tests <<<"$filter"
for t in "${tests[@]}"; do
  echo "$t $LETTERS" >>"$RAN"
  case $t in
    *Wrong*) echo "[  FAILED  ] $t"; status=1 ;;
    *Missing*) printf 'a.cpp:1: Skipped\\nnothing to ask\\n\\n[  SKIPPED ] %s (0 ms)\\n' "$t" ;;
  esac
done
exit $status
"""


def test(name, program="/bin/a", **properties):
    return {"name": f"room.{name}", "command": [program, f"--gtest_filter={name}", "--other"],
            "properties": [{"name": key, "value": value} for key, value in properties.items()]}


class Batches(unittest.TestCase):
    def test_every_test_is_in_one_batch_and_in_its_order(self):
        tests = [test(f"S.T{i}") for i in range(23)] + [test(f"S.T{i}", "/bin/b") for i in range(3)]
        made = batch_tests.batches(tests)
        self.assertEqual([len(b) for b in made], [10, 10, 3, 3])
        self.assertEqual([t for b in made for t in b], tests)

    def test_other_properties_are_another_batch_but_for_what_means_skipped(self):
        tests = [test("S.A", TIMEOUT=5.0), test("S.B", TIMEOUT=5.0, SKIP_REGULAR_EXPRESSION=["SKIPPED"]),
                 test("S.C", TIMEOUT=6.0), test("S.D", TIMEOUT=6.0, LABELS=["slow"])]
        self.assertEqual([len(b) for b in batch_tests.batches(tests)], [2, 1, 1])

    def test_others_stay_alone(self):
        script = {"name": "tools.x", "command": ["python3", "x.py"]}
        self.assertEqual(len(batch_tests.batches([script, {**script, "name": "tools.y"}, test("S.A"), script])), 4)

    def test_properties_as_cmake_takes_them(self):
        groups = [{"requirements": [{".type": "processors", "slots": 1}]}]
        text = batch_tests.cmake_of([test("S.A", RESOURCE_GROUPS=groups, LABELS=["a", "b"], DISABLED=False,
                                          ENVIRONMENT=["X=1;2"], SKIP_REGULAR_EXPRESSION=["S"]), test("S.B")])
        self.assertIn("add_test([=[room.S.A and 1 more]=] [=[/bin/a]=] [=[--gtest_filter=S.A:S.B]=] [=[--other]=])", text)
        for words in ("RESOURCE_GROUPS [=[processors:1]=]", "LABELS [=[a;b]=]", "DISABLED [=[FALSE]=]",
                      r"ENVIRONMENT [=[X=1\;2]=]"):
            self.assertIn(words, text)
        self.assertNotIn("SKIP_REGULAR", text)
        self.assertIn("SKIP_REGULAR_EXPRESSION [=[S]=]", batch_tests.cmake_of([test("S.A", SKIP_REGULAR_EXPRESSION=["S"])]))
        self.assertEqual(batch_tests.quoted("a]=]b"), "[==[a]=]b]==]")


class Stage(unittest.TestCase):
    """run_ctest of tools/dev/lib.sh in a folder of its own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "tools").mkdir()
        (self.root / "tools" / "dev").symlink_to(ROOT / "tools" / "dev")
        self.build = self.root / "build" / "release"
        self.build.mkdir(parents=True)
        self.program = self.root / "program"
        self.program.write_text(PROGRAM)
        self.program.chmod(self.program.stat().st_mode | stat.S_IXUSR)

    def run_stage(self, names, *arguments):
        lines = []
        for name in names:
            lines += [f'add_test("room.{name}" "/bin/bash" "{self.program}" "--gtest_filter={name}")',
                      f'set_tests_properties("room.{name}" PROPERTIES ENVIRONMENT "LETTERS=a b" LABELS "room" '
                      r'SKIP_REGULAR_EXPRESSION "\\[  SKIPPED \\]")']
        (self.build / "CTestTestfile.cmake").write_text("\n".join(lines) + "\n")
        ran = self.root / "ran"
        ran.unlink(missing_ok=True)
        script = "set -euo pipefail; source tools/dev/lib.sh; run_ctest release tests test \"$@\""
        done = subprocess.run(["bash", "-c", script, "bash", *arguments], cwd=self.root, capture_output=True, text=True,
                              env={**os.environ, "RAN": str(ran)}, stdin=subprocess.DEVNULL)
        return done.returncode, done.stdout + done.stderr, ran.read_text().splitlines() if ran.exists() else []

    @staticmethod
    def names(count, *others):
        return [f"S.T{i}" for i in range(count)] + list(others)

    def test_many_tests_share_processes_and_all_run(self):
        names = self.names(150, "S.Missing")
        status, output, ran = self.run_stage(names)
        self.assertEqual(status, 0, output)
        self.assertEqual(sorted(ran), sorted(f"{n} a b" for n in names))
        self.assertIn("151 tests in 16 processes", output)
        self.assertIn("1 skipped; the reasons are in the log", output)
        self.assertIn("1 nothing to ask", (self.root / "build/logs/test.log").read_text())

    def test_few_tests_have_a_line_each(self):
        status, output, _ = self.run_stage(self.names(12))
        self.assertEqual(status, 0, output)
        self.assertIn("12 tests in 12 processes", output)

    def test_one_that_fails_fails_the_stage_and_is_named(self):
        status, output, ran = self.run_stage(self.names(120, "S.Wrong", "S.Missing"))
        self.assertNotEqual(status, 0, output)
        self.assertEqual(len(ran), 122)
        self.assertRegex(output, re.escape("[  FAILED  ] S.Wrong"))

    def test_filters_choose_as_of_single_tests(self):
        _, output, ran = self.run_stage(self.names(150), "-R", "T1", "-E", "T14")
        self.assertEqual(sorted(ran), sorted(f"{n} a b" for n in self.names(150) if "T1" in n and "T14" not in n))
        self.assertIn(f"{len(ran)} tests in {len(ran)} processes", output)

    def test_no_test_at_all_fails_the_stage(self):
        status, output, _ = self.run_stage(self.names(3), "-R", "nothing")
        self.assertNotEqual(status, 0, output)

    def test_what_ctest_does_not_understand_fails_the_stage(self):
        status, output, _ = self.run_stage(self.names(3), "-E", "|".join(f"(a{i})" for i in range(12)))
        self.assertNotEqual(status, 0, output)
        self.assertIn("RegularExpression::compile", output)


if __name__ == "__main__":
    unittest.main()
