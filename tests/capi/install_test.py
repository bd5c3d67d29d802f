#!/usr/bin/env python3
"""The library as it is installed: its examples are built outside the source by CMake and by pkg-config, and run, with
libreprise.so and with libreprise.a inside.

    install_test.py --build FOLDER --cmake FILE --cc FILE --cxx FILE --model FOLDER [--without-archive]
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
        self.assertEqual("libreprise.a" in names, not options.without_archive)
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

    def needs_the_archive(self):
        if options.without_archive:
            self.skipTest("this build makes no libreprise.a")

    def answer_of(self, program, env=None):
        """What a program says with a model; it may not have the library from elsewhere."""
        self.assertNotIn("libreprise", run("ldd", program))
        return run(program, "Hello", *self.model, env=env)

    def test_the_archive_has_its_functions_alone(self):
        self.needs_the_archive()
        header = (self.prefix / "include/reprise.h").read_text()
        declared = sorted(set(re.findall(r"^REPRISE_API [^;]*?\b(reprise_\w+)\(", header, re.M)))
        self.assertGreater(len(declared), 25)
        symbols = [line.split() for line in run("nm", self.libraries / "libreprise.a").splitlines()]
        # A capital letter, or u, v and w of weak and unique ones: what another object can see. Undefined ones have no
        # address.
        seen = sorted(words[2] for words in symbols if len(words) == 3 and (words[1].isupper() or words[1] in "uvw"))
        self.assertEqual(seen, declared)
        self.assertNotIn("GROUP", run("readelf", "--wide", "--sections", self.libraries / "libreprise.a"))
        # What is inside is not looked for outside.
        undefined = {words[1] for words in symbols if len(words) == 2 and words[0] in "Uw"}
        self.assertFalse([name for name in undefined if re.search("3fmt|8nlohmann|5boost", name)])

    def test_examples_with_the_library_inside(self):
        self.needs_the_archive()
        build = self.folder / "with it inside"
        run(options.cmake, "-S", self.examples, "-B", build, f"-DCMAKE_PREFIX_PATH={self.prefix}",
            "-DREPRISE_TARGET=Reprise::static", f"-DCMAKE_C_COMPILER={options.cc}", f"-DCMAKE_CXX_COMPILER={options.cxx}")
        run(options.cmake, "--build", build)
        shared = self.folder / "shared"
        run(options.cc, "-std=c99", f"-I{self.prefix}/include", self.examples / "embed.c", f"-L{self.libraries}",
            "-lreprise", f"-Wl,-rpath,{self.libraries}", "-o", shared)
        c = self.answer_of(build / "embed")
        self.assertEqual(c, run(shared, "Hello", *self.model))
        self.assertEqual(c[:20], self.answer_of(build / "embed_cpp")[:20])
        # What fails inside, by exceptions among others, is an error of the interface there too.
        for setting, why in (("threads=x", "threads"), ("json-model-override-args={", "json_model_override_args")):
            wrong = subprocess.run([build / "embed", "Hello", *self.model, setting], capture_output=True, text=True)
            self.assertEqual(wrong.returncode, 1)
            self.assertIn(why, wrong.stderr)

    def static_flags(self):
        env = {**os.environ, "PKG_CONFIG_PATH": str(self.libraries / "pkgconfig")}
        flags = run("pkg-config", "--static", "--cflags", "--libs", "reprise", env=env)
        self.assertIn("-lreprise", flags)
        return flags.replace("-lreprise", "-l:libreprise.a").strip()

    def test_the_archive_by_pkg_config(self):
        self.needs_the_archive()
        program = self.folder / "archive by pkg-config"
        run("sh", "-c", f"'{options.cc}' -std=c99 '{self.examples}/embed.c' -o '{program}' {self.static_flags()}")
        self.assertGreater(len(self.answer_of(program)), 20)

    def test_a_program_with_symbols_of_the_same_names(self):
        """A program that has a function of its own for each one of fmt, the JSON library and Boost that is inside."""
        self.needs_the_archive()
        names = sorted({words[2] for words in map(str.split, run("nm", self.libraries / "libreprise.a").splitlines())
                        if len(words) == 3 and words[1] == "t" and re.match(r"_Z\w*(3fmt|8nlohmann|5boost)", words[2])
                        and "." not in words[2]})
        self.assertGreater(len(names), 200)
        self.assertTrue(any(name.startswith("_ZN3fmt2v97vformat") for name in names))
        source = self.folder / "names.c"
        # Calling one of them ends the program.
        source.write_text("#include <stdlib.h>\n" + "".join(
            f'void own_{i}(void) __asm__("{name}");\nvoid own_{i}(void) {{ abort(); }}\n' for i, name in enumerate(names)))
        program = self.folder / "same names"
        run("sh", "-c", f"'{options.cc}' '{source}' '{self.examples}/embed.c' -o '{program}' {self.static_flags()}")
        own = run("nm", program)
        self.assertRegex(own, r" T _ZN3fmt2v97vformat")
        plain = self.folder / "plain"
        run("sh", "-c", f"'{options.cc}' '{self.examples}/embed.c' -o '{plain}' {self.static_flags()}")
        self.assertEqual(self.answer_of(program), self.answer_of(plain))

    def test_a_program_with_fmt_of_its_own(self):
        """The headers of fmt inside a program, as a namesake with other contents: its own functions are called."""
        self.needs_the_archive()
        source = self.folder / "host.cpp"
        source.write_text("""#include <reprise.h>
#include <cstdio>
#include <string>
#include <string_view>
namespace fmt { inline namespace v9 {  // another version under the same name
template <typename Char> struct basic_string_view { const Char* data; unsigned long size; };
struct basic_format_args_of_host { int n; };
__attribute__((noinline)) std::string vformat(basic_string_view<char> s, basic_format_args_of_host a) {
  return "host " + std::string(s.data, s.size) + std::to_string(a.n);
}
}}
int main(int argc, char** argv) {
  reprise_settings* s = reprise_settings_new();
  reprise_error* error = nullptr;
  const reprise_code code = reprise_settings_set(s, "threads", "-1", &error);
  std::printf("%s|%d|%s\\n", fmt::vformat({"x", 1}, {7}).c_str(), (int)code, reprise_error_message(error));
  reprise_error_free(error);
  reprise_settings_free(s);
}
""")
        program = self.folder / "host"
        run("sh", "-c", f"'{options.cxx}' -std=c++17 '{source}' -o '{program}' {self.static_flags()}")
        self.assertEqual(run(program), "host x7|1|`threads`: -1 is out of range; allowed: 0 to 1024\n")

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
    parser.add_argument("--without-archive", action="store_true")
    options, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
