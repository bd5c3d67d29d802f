#!/usr/bin/env python3
"""The library as it is installed: its examples are built outside the source by CMake and by pkg-config, and run.

    install_test.py --build FOLDER --cmake FILE --cc FILE --cxx FILE --model FOLDER
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

options = None


def run(*command, env=None):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=250, env=env)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}: status {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-3000:]}")
    return done.stdout


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.held = tempfile.TemporaryDirectory()
        folder = pathlib.Path(cls.held.name)
        for component in ("lib", "dev"):
            run(options.cmake, "--install", options.build, "--component", component, "--prefix", folder / "first place")
        # Nothing in it names where it was put.
        (folder / "first place").rename(folder / "a place")
        cls.prefix = folder / "a place"
        cls.folder = folder
        cls.model = [f"model-path={options.model}", "load-format=dummy", "device=cpu", "plan-cache=off", "threads=1"]
        cls.examples = next(cls.prefix.rglob("embed.cpp")).parent
        cls.libraries = next(cls.prefix.rglob("libreprise.so")).parent

    @classmethod
    def tearDownClass(cls):
        cls.held.cleanup()

    def test_what_is_there(self):
        names = {str(p.relative_to(self.libraries)) for p in self.libraries.rglob("*") if p.is_file()}
        self.assertLessEqual({"libreprise.so", "libreprise.so.0", "pkgconfig/reprise.pc",
                              "cmake/Reprise/RepriseConfig.cmake", "cmake/Reprise/RepriseConfigVersion.cmake"}, names)
        headers = sorted(str(p.relative_to(self.prefix / "include")) for p in (self.prefix / "include").rglob("*.h*"))
        self.assertEqual(headers, ["reprise.h", "reprise.hpp", "reprise/extension.h"])

    def test_examples_by_cmake(self):
        build = self.folder / "by cmake"
        run(options.cmake, "-S", self.examples, "-B", build, f"-DCMAKE_PREFIX_PATH={self.prefix}",
            f"-DCMAKE_C_COMPILER={options.cc}", f"-DCMAKE_CXX_COMPILER={options.cxx}")
        run(options.cmake, "--build", build)
        c = run(build / "embed", "Hello", *self.model)
        cpp = run(build / "embed_cpp", "Hello", *self.model)
        self.assertGreater(len(c), 20)
        self.assertTrue(cpp.rstrip().endswith("tokens, length") or cpp.rstrip().endswith("tokens, stop"), cpp)
        # The one asks for 128 tokens, the other for 48 of them.
        self.assertEqual(c[:20], cpp[:20])
        lines = sorted(run(build / "queue", *self.model).splitlines())
        self.assertEqual(lines[0], "request 1: 40 tokens, complete")
        # The engine goes on while the program reads: the answer is cut somewhere between its tenth and its last token.
        cancelled = re.fullmatch(r"request 2: (\d+) tokens, cancelled", lines[1])
        self.assertTrue(cancelled, lines[1])
        self.assertGreaterEqual(int(cancelled[1]), 10)
        self.assertLess(int(cancelled[1]), 4000)
        wrong = subprocess.run([build / "embed", "Hello", "threads=x"], capture_output=True, text=True)
        self.assertEqual(wrong.returncode, 1)
        self.assertIn('threads: `threads`: "x" is not a whole number; allowed: 0 to 1024', wrong.stderr)

    def test_an_example_by_pkg_config(self):
        env = {**os.environ, "PKG_CONFIG_PATH": str(self.libraries / "pkgconfig")}
        flags = run("pkg-config", "--cflags", "--libs", "reprise", env=env)
        program = self.folder / "by pkg-config"
        # A shell takes the flags apart, as a makefile's does.
        run("sh", "-c", f"'{options.cc}' -std=c99 -pedantic '{self.examples}/embed.c' -o '{program}' {flags}")
        out = run(program, "Hello", *self.model, env={**os.environ, "LD_LIBRARY_PATH": str(self.libraries)})
        self.assertGreater(len(out), 20)

    def test_another_version_is_refused(self):
        (self.folder / "other").mkdir()
        (self.folder / "other/CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.25)\nproject(other LANGUAGES CXX)\nfind_package(Reprise 9 REQUIRED)\n")
        done = subprocess.run([options.cmake, "-S", self.folder / "other", "-B", self.folder / "other build",
                               f"-DCMAKE_PREFIX_PATH={self.prefix}"], capture_output=True, text=True)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("9", done.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("build", "cmake", "cc", "cxx", "model"):
        parser.add_argument(f"--{name}", required=True)
    options, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
