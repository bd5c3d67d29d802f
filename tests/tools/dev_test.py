"""./dev answers wrong usage with status 2, its checks fail when they should, and its skeletons compile."""

import concurrent.futures
import contextlib
import importlib.util
import io
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# What a user has set for git or for this repository does not reach the repositories made here, nor does what a build of
# continuous integration leaves out (lines of the sanitizers' reports).
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith(("GIT_", "REPRISE_")) and k != "CI"}
ENVIRONMENT |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}


def git(root, *arguments):
    subprocess.run(["git", *arguments], cwd=root, env=ENVIRONMENT, check=True)


def run_dev(root, *arguments):
    # By name: temporary folders may be mounted so that nothing there is executed.
    done = subprocess.run(["bash", "dev", *arguments], cwd=root, env=ENVIRONMENT, capture_output=True, text=True,
                          stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout + done.stderr


class Repository(unittest.TestCase):
    """A repository in a temporary folder with the front door and one C++ file."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name in ("dev", "LICENSE", ".clang-format"):
            shutil.copy2(ROOT / name, self.root / name)
        shutil.copytree(ROOT / "tools" / "dev", self.root / "tools" / "dev")
        shutil.copytree(ROOT / "tests" / "clients", self.root / "tests" / "clients")
        for name in ("packages.txt", "spelling_ignore.txt", "test_modes.txt"):
            shutil.copy2(ROOT / "tools" / name, self.root / "tools" / name)
        self.write("src/a.h", "#pragma once\n\nint answer();  // the answer\n")
        git(self.root, "init", "-q")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def dev(self, *arguments):
        git(self.root, "add", "-A")
        return run_dev(self.root, *arguments)


class Dev(Repository):
    def check_fails(self, name, words):
        status, output = self.dev("check", name)
        self.assertEqual(status, 1, output)
        self.assertIn(f"failed  {name}", output)
        self.assertIn(words, output)
        self.assertEqual(output.splitlines()[-1], f"./dev: failed: {name}", output)

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

    def test_the_last_line_names_every_check_that_failed(self):
        self.write("LICENSE", "none\n")
        self.write("src/b.cpp", "int   f( ) {return 1;}\n")
        status, output = self.dev("check", "licence", "spelling", "format")
        self.assertEqual(status, 1, output)
        self.assertEqual(output.splitlines()[-1], "./dev: failed: licence format", output)

    def test_files_that_are_deleted_or_empty_do_not_matter(self):
        self.write("src/z.cpp", "int f();\n")
        self.write("zzz.md", "")
        git(self.root, "add", "-A")
        (self.root / "src/z.cpp").unlink()
        status, output = run_dev(self.root, "check", "format", "spelling")
        self.assertEqual(status, 0, output)

    def test_output_has_no_colours_outside_a_terminal(self):
        self.assertNotIn("\033", self.dev("check", "licence")[1])

    def test_wrong_usage(self):
        for arguments, words in (
            (["nonsense"], "usage: ./dev VERB"),
            (["build", "nonsense"], "there are: release"),
            (["check", "nonsense"], "there are: layers"),
            (["fuzz", "all"], "SECONDS"),
            (["fuzz", "nonsense", "1"], 'no fuzz target "nonsense"'),
            (["soak"], "soak N [FILTER]"),
            (["soak", "0"], "at least N requests in each mode"),
            (["soak", "1", "a", "b"], "soak N [FILTER]"),
            (["golden"], "--accept"),
            (["bisect"], "bisect TEST"),
            (["bisect", "--"], "exit status decides"),
            (["bisect", "a", "b"], "one test"),
            (["test", "a", "b"], "one filter"),
            (["sanitize", "thread", "a", "b"], "sanitize thread takes one filter"),
            (["arm64"], "arm64 build [TARGET]"),
            (["arm64", "libraries", "a"], "no library \"a\""),
            (["test", "clients", "nonsense"], 'no client "nonsense"; there are: '),
        ):
            with self.subTest(arguments=arguments):
                (self.root / "tests" / "fuzz").mkdir(parents=True, exist_ok=True)
                status, output = self.dev(*arguments)
                self.assertEqual(status, 2, output)
                self.assertIn(words, output)

    def bisect_with(self, script):
        """./dev bisect over a command that reads the limit."""
        self.write("command.sh", "#!/bin/sh\nlimit=$REPRISE_PASS_BISECT_LIMIT\n" + script)
        return self.dev("bisect", "--", "sh", "command.sh")

    def test_bisect_finds_the_first_bad_change(self):
        for first in (1, 2, 3, 64, 100):
            with self.subTest(first=first):
                status, output = self.bisect_with(
                    f"""echo "pass-bisect-limit $limit: in graph \\"g\\" the last change is pass guilty at %7 (add)" >&2
                    if [ -n "$REPRISE_DUMP_DIR" ]; then
                      mkdir -p "$REPRISE_DUMP_DIR/000/decode"
                      echo "%7 = add, $limit" > "$REPRISE_DUMP_DIR/000/decode/03-guilty.after.txt"
                    fi
                    [ "$limit" -ge 0 ] && [ "$limit" -lt {first} ]
                    """
                )
                self.assertEqual(status, 0, output)
                self.assertIn(f"number {first} (", output)
                self.assertIn('in graph "g" the last change is pass guilty at %7 (add)', output)
                self.assertIn(f"-%7 = add, {first - 1}", output)
                self.assertIn(f"+%7 = add, {first}", output)
                self.assertIn(f"--pass-bisect-limit {first}; without the pass: --disable-pass guilty", output)

    def test_bisect_says_when_there_is_nothing_to_find(self):
        for script, words in (
            ("true", "nothing to search"),
            ("false", "without any change of an optional pass"),
            ('[ "$limit" -ge 0 ]', "no change of a pass does it"),
        ):
            with self.subTest(script=script):
                status, output = self.bisect_with(script + "\n")
                self.assertEqual(status, 1, output)
                self.assertIn(words, output)
        flaky = 'echo x >> runs; [ "$limit" -ge 0 ] && [ "$limit" -lt 2 ] && [ "$(wc -l < runs)" -lt 5 ]\n'
        status, output = self.bisect_with(flaky)
        self.assertEqual(status, 1, output)
        self.assertIn("not the same every time", output)

    def test_help_names_every_verb(self):
        status, output = self.dev("help")
        self.assertEqual(status, 0)
        text = (self.root / "dev").read_text()
        verbs = [line.split("()")[0][3:] for line in text.splitlines() if line.startswith("do_")]
        self.assertGreater(len(verbs), 8)
        for verb in verbs:
            self.assertIn(f"\n  {verb} ", output)


class AbsentClients(Repository):
    """Clients that do not install are forgiven in continuous integration, and named at its end."""

    def runner(self):
        spec = importlib.util.spec_from_file_location("clients_run", self.root / "tests/clients/run.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    def test_those_that_do_not_install_are_listed(self):
        run, output = self.runner(), io.StringIO()
        absent = self.root / "build/logs/clients-absent.txt"
        run.environment = lambda name: (None, f"no index has {name}")
        with contextlib.redirect_stdout(output):
            self.assertEqual(run.main(["--allow-absent", "openai", "otlp"]), 0)
            self.assertEqual(absent.read_text(), "openai: no index has openai\notlp: no index has otlp\n")
            self.assertEqual(run.main(["openai"]), 1)
            self.assertEqual(absent.read_text(), "openai: no index has openai\n")
            run.run = lambda name: True
            self.assertEqual(run.main(["--allow-absent", "openai"]), 0)
        self.assertFalse(absent.exists())
        self.assertIn("absent  otlp: it does not install here: no index has otlp", output.getvalue())

    def test_the_end_of_continuous_integration_names_them(self):
        shutil.copytree(ROOT / ".ci", self.root / ".ci")
        self.write("dev", "#!/usr/bin/env bash\n")
        (self.root / "dev").chmod(0o755)
        if not os.access(self.root / "dev", os.X_OK):
            self.skipTest("nothing in temporary folders is executed here")

        def end():
            done = subprocess.run(["bash", ".ci/run"], cwd=self.root, env=ENVIRONMENT, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stdout

        self.assertNotIn("NOT TESTED", end())
        self.write("build/logs/clients-absent.txt", "openai: no index\n")
        self.assertTrue(end().endswith("\n== NOT TESTED: 1 client suites, which could not be installed here\n"
                                       "openai: no index\n"))


class ThreadSanitizer(Repository):
    """`./dev sanitize thread` over programs that share a number, with the presets and the flags of this repository."""

    CMAKE = """
cmake_minimum_required(VERSION 3.25)
project(shared LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 20)
include(cmake/house.cmake)
find_package(Threads REQUIRED)
enable_testing()
foreach(folder {programs})
  add_executable(${{folder}}_tests shared.cpp)
  target_link_libraries(${{folder}}_tests PRIVATE Threads::Threads)
  add_test(NAME ${{folder}}.Shared COMMAND ${{folder}}_tests)
endforeach()
"""
    PROGRAM = """#include <atomic>
#include <thread>
int main() {{
  {number} shared = 0;
  std::thread other([&] {{ ++shared; }});
  ++shared;
  other.join();
  return shared == 2 ? 0 : 1;
}}
"""

    def sanitize(self, number):
        shutil.copytree(ROOT / "cmake", self.root / "cmake")
        shutil.copy2(ROOT / "CMakePresets.json", self.root / "CMakePresets.json")
        programs = re.search(r"^threaded_programs=\((.*)\)$", (self.root / "dev").read_text(), re.M)[1]
        self.write("CMakeLists.txt", self.CMAKE.format(programs=programs))
        self.write("shared.cpp", self.PROGRAM.format(number=number))
        status, output = self.dev("sanitize", "thread")
        for program in programs.split():
            with self.subTest(program=program):
                self.assertRegex(output, rf"{program}\.Shared|100% tests passed")
        return status, output

    def test_a_race_fails_the_stage(self):
        status, output = self.sanitize("int")
        self.assertNotEqual(status, 0, output)
        self.assertIn("WARNING: ThreadSanitizer: data race", output)
        self.assertRegex(output, r"SUMMARY: ThreadSanitizer: data race \S*shared.cpp:[56]")
        self.assertIn("0% tests passed", output)

    def test_no_race_no_failure(self):
        status, output = self.sanitize("std::atomic<int>")
        self.assertEqual(status, 0, output)
        self.assertIn("100% tests passed, 0 tests failed", output)


class SanitizedParts(Repository):
    """`./dev sanitize PART`: each part is built and tested without the others, and all rooms are in one of them."""

    CMAKE = """
cmake_minimum_required(VERSION 3.25)
project(rooms LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
include(cmake/house.cmake)
enable_testing()
file(GLOB rooms RELATIVE ${CMAKE_SOURCE_DIR} tests/*/CMakeLists.txt)
foreach(room ${rooms})
  get_filename_component(room ${room} DIRECTORY)
  add_subdirectory(${room})
endforeach()
"""
    ROOM = """
add_executable({room}_tests ../shared.cpp)
add_test(NAME {room}.Shared COMMAND {room}_tests)
"""
    PROGRAM = """#include <vector>
int main(int argc, char**) {{
  std::vector<int> numbers(3, 0);
  return numbers.data()[argc + {beyond}];
}}
"""
    # What runs no code of ours under a sanitizer: Python's, the packages', the scripts', and the fuzz targets.
    NO_ROOMS = {"fuzz", "packages", "python", "tools"}

    def parts(self):
        text = (ROOT / "dev").read_text()
        return {name: rooms.split() for name, rooms in re.findall(r"^sanitize_(\w+)=\(([\w\s]+)\)$", text, re.M)}

    def sanitize(self, part, beyond):
        shutil.copytree(ROOT / "cmake", self.root / "cmake")
        shutil.copy2(ROOT / "CMakePresets.json", self.root / "CMakePresets.json")
        self.write("CMakeLists.txt", self.CMAKE)
        for rooms in self.parts().values():
            for room in rooms:
                self.write(f"tests/{room}/CMakeLists.txt", self.ROOM.format(room=room))
        self.write("tests/shared.cpp", self.PROGRAM.format(beyond=beyond))
        return self.dev("sanitize", part)

    def test_each_room_is_in_one_part(self):
        rooms = [room for rooms in self.parts().values() for room in rooms]
        folders = {path.parent.name for path in (ROOT / "tests").glob("*/CMakeLists.txt")}
        self.assertEqual(sorted(rooms), sorted(folders - self.NO_ROOMS))

    def test_a_part_runs_its_own_tests_alone(self):
        parts = self.parts()
        for part in ("servers", "programs"):
            status, output = self.sanitize(part, 0)
            self.assertEqual(status, 0, output)
            self.assertIn(f"0 tests failed out of {len(parts[part])}", output)
            built = {path.name for path in (self.root / "build/debug/bin").iterdir()}
            self.assertEqual(built, {f"{room}_tests" for room in parts[part]})
            shutil.rmtree(self.root / "build")
            shutil.rmtree(self.root / "cmake")

    def test_a_read_beyond_the_end_fails_the_stage(self):
        status, output = self.sanitize("servers", 2)
        self.assertNotEqual(status, 0, output)
        self.assertIn("AddressSanitizer: heap-buffer-overflow", output)


class NewThings(unittest.TestCase):
    """new-op, new-model and new-backend in a copy of this repository; what they write configures and compiles."""

    # What reads the lists that are headers.
    READERS = ("src/models/registry.cpp", "src/nn/functional.cpp", "src/backends/cpu/register_vector.cpp")

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.folder.name) / "copy"
        names = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
        for name in names.splitlines():
            if name.startswith(("tests/data/", "tests/fuzz/corpus/")) or not (ROOT / name).is_file():
                continue
            (cls.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, cls.root / name)
        git(cls.root, "init", "-q")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def dev(self, *arguments):
        return run_dev(self.root, *arguments)

    def text(self, name):
        return (self.root / name).read_text()

    def test_what_is_wrong_changes_nothing(self):
        before = {p: p.read_bytes() for p in self.root.rglob("src/**/*") if p.is_file()}
        for arguments, status, words in (
            (["new-op"], 2, "takes one name"),
            (["new-op", "a", "b"], 2, "takes one name"),
            (["new-op", "RmsNorm"], 2, "small letters"),
            (["new-model", "../x"], 2, "small letters"),
            (["new-op", "silu"], 1, "there already"),
            (["new-model", "llama"], 1, "there already"),
            (["new-backend", "cpu"], 1, "there already"),
        ):
            with self.subTest(arguments=arguments):
                code, output = self.dev(*arguments)
                self.assertEqual(code, status, output)
                self.assertIn(words, output)
        self.assertEqual(before, {p: p.read_bytes() for p in self.root.rglob("src/**/*") if p.is_file()})

    def test_skeletons_compile(self):
        for kind, name in (("op", "soft_cap"), ("model", "pascal"), ("backend", "abacus_two")):
            code, output = self.dev(f"new-{kind}", name)
            self.assertEqual(code, 0, output)
            self.assertIn("next, with docs/", output)
            for page in re.findall(r"docs/[a-z-]+\.md", output):
                self.assertTrue((ROOT / page).is_file(), page)
        new = [
            "src/backends/cpu/kernels/soft_cap.cpp",
            "tests/backends/soft_cap_test.cpp",
            "src/models/pascal.cpp",
            "src/backends/abacus_two/abacus_two_device.cpp",
        ]
        wired = {
            "src/ops/core.cpp": 'ops.add("soft_cap(Tensor x) -> Tensor"',
            "src/nn/functional.h": 'inline Tensor soft_cap(Tensor x) { return call_op("soft_cap", {x}); }',
            "src/ops/args/elements.cpp": 'op_row("soft_cap", &UnaryArgs::out',
            "src/models/list.h": "  X(pascal, kPascal)\n",
            "src/device/device.cpp": "DeviceKind::AbacusTwo",
            "src/backends/all.cpp": "make_abacus_two_device(",
            "src/settings/model_rows.cpp": '"abacus_two", "null"}',
        }
        for name, words in wired.items():
            self.assertIn(words, self.text(name), name)
        self.assertIn("  X(soft_cap) ", self.text("src/backends/cpu/kernels/table.h"))
        self.assertIn('"PascalForCausalLM"', self.text("src/models/pascal.cpp"))
        self.assertNotIn("Qwen", self.text("src/models/pascal.cpp"))
        self.assertIn("all{abacus_two_subject()", self.text("tests/device/conformance.cpp"))
        header = self.text("src/backends/abacus_two/abacus_two_device.h")
        self.assertNotRegex(header, r"[Nn]ull(?!ptr)")

        git(self.root, "add", "-A")
        for check in ("layers", "patterns", "format"):
            code, output = self.dev("check", check)
            self.assertEqual(code, 0, output)
        configured = subprocess.run(
            ["cmake", "--preset", "release", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"],
            cwd=self.root, env=ENVIRONMENT, capture_output=True, text=True,
        )
        self.assertEqual(configured.returncode, 0, configured.stderr)
        commands = {}
        for entry in json.loads((self.root / "build/release/compile_commands.json").read_text()):
            commands.setdefault(str(pathlib.Path(entry["file"]).relative_to(self.root.resolve())), entry)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            compiled = [n for n in [*new, *wired, *self.READERS] if n.endswith(".cpp")]
            for name, errors in pool.map(lambda n: (n, self.errors_of(commands[n])), compiled):
                self.assertEqual(errors, "", name)

    @staticmethod
    def errors_of(entry):
        words = [w for w in shlex.split(entry["command"]) if not w.endswith("ccache")]
        words[words.index("-o") : words.index("-o") + 2] = ["-fsyntax-only"]
        done = subprocess.run(words, cwd=entry["directory"], capture_output=True, text=True)
        return done.stderr if done.returncode else ""


if __name__ == "__main__":
    unittest.main()
