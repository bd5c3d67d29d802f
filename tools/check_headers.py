#!/usr/bin/env python3
"""Checks that every header compiles alone, quicker than by compiling each: parsing the libraries is most of that.

A header is parsed behind a precompiled one of the standard headers below, fmt and the JSON library. That hides a missing
include of these, so the names that come from them are looked for in the text: one that none of the includes provides,
directly or through headers of the repository, is an error. A header with a name of the standard library that the table
does not know is parsed in full. Headers and flags are those of CMake's target all_verify_interface_header_sets.

  tools/check_headers.py BUILD_FOLDER
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

CONTAINERS = {"array", "deque", "list", "map", "set", "string", "unordered_map", "unordered_set", "vector"}
MOVES = CONTAINERS | {"functional", "memory", "optional", "tuple", "utility", "variant", "mutex", "thread"}
TRAITS = MOVES | {"type_traits", "span", "atomic", "bit", "chrono"}
# Names behind std::, and which headers provide them. What libstdc++ includes on the way counts where all do.
PROVIDERS = {
    "array bitset deque list map optional set span thread tuple unordered_map unordered_set vector": None,  # of that name
    "string to_string": {"string"},
    "string_view": {"string", "string_view"},
    "multimap": {"map"},
    "unordered_multimap": {"unordered_map"},
    "nullopt nullopt_t": {"optional"},
    "variant monostate holds_alternative get_if visit": {"variant"},
    "get": {"array", "tuple", "utility", "variant", "map"},
    "unique_ptr shared_ptr weak_ptr make_unique make_shared enable_shared_from_this": {"memory"},
    "function": {"functional"},
    "less": {"functional", "map", "set"},
    "initializer_list": CONTAINERS | {"initializer_list"},
    "move forward pair swap exchange": MOVES,
    "min max clamp": {"algorithm"},
    "numeric_limits": {"limits"},
    "bit_cast countl_zero endian": {"bit"},
    "atomic atomic_ref memory_order_relaxed memory_order_acquire memory_order_release": {"atomic"},
    "mutex lock_guard unique_lock": {"mutex", "condition_variable"},
    "condition_variable": {"condition_variable"},
    "chrono": {"chrono", "condition_variable", "mutex", "thread"},
    "conditional conditional_t integral_constant is_same_v is_trivially_copyable_v is_standard_layout_v decay_t": TRAITS,
    "memcpy memset memcmp memmove": {"cstring"},
    "tm time_t": {"ctime", "chrono"},
    "log exp sqrt abs fabs isnan": {"cmath"},
    "size_t ptrdiff_t": TRAITS | {"cstddef", "cstdint", "cstring"},
}
NAMES = {name: headers or {name} for names, headers in PROVIDERS.items() for name in names.split()}
# Names that stand alone.
PLAIN = [
    (re.compile(r"(?<![\w:])u?int(?:8|16|32|64|ptr|max)_t\b"), {"cstdint", "stdint.h"}),
    (re.compile(r"(?<![\w:])(?:mem(?:cpy|set|cmp|move)|str(?:len|cmp|error))\b"), {"cstring"}),
    (re.compile(r"(?<![\w:])(?:NAN|INFINITY|M_PI)\b"), {"cmath"}),
    (re.compile(r"(?<![\w:])(?:FILE|stderr|stdout|f?printf)\b"), {"cstdio"}),
    (re.compile(r"(?<![\w:])(?:getenv|setenv)\b(?=\s*\()"), {"cstdlib"}),
    (re.compile(r"(?<![\w:])(?:errno|E[A-Z]{3,8})\b(?!\w)(?=\s*[;)=!])"), {"cerrno"}),
    (re.compile(r"(?<![\w:])(?:u?int|long|char|short)_(?:max|min)\b|\b[UCIL]+(?:NT|ONG|HAR)_(?:MAX|MIN)\b"), {"climits"}),
    (re.compile(r"(?<![\w:])assert\s*\("), {"cassert"}),
    (re.compile(r"\bfmt::"), {"fmt/format.h", "fmt/core.h", "fmt/ranges.h", "fmt/chrono.h"}),
    (re.compile(r"\bnlohmann::"), {"nlohmann/json.hpp", "nlohmann/json_fwd.hpp"}),
]
STANDARD = sorted(set().union(*NAMES.values()) | {"cstdint", "cstdio", "climits", "cerrno", "cassert", "cstdlib"})
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)
NO_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"', re.S)


class Includes:
    """What a header includes of others, through those of the repository."""

    def __init__(self, roots):
        self.roots, self.known = roots, {}

    def own(self, name):
        return next((root / name for root in self.roots if (root / name).is_file()), None)

    def of(self, header):
        others, seen, left = set(), set(), [header]
        while left:
            path = left.pop()
            if path in seen:
                continue
            seen.add(path)
            if path not in self.known:
                self.known[path] = [name for _, name in INCLUDE.findall(path.read_text(encoding="utf-8"))]
            for name in self.known[path]:
                mine = self.own(name)
                if mine:
                    left.append(mine)
                else:
                    others.add(name)
        return others


def missing(text, others):
    """(errors, whether the table knows all names) of a header's text that includes these."""
    errors, known = [], True
    code = NO_CODE.sub(lambda m: "\n" * m.group().count("\n"), text)
    for number, line in enumerate(code.splitlines(), 1):
        if INCLUDE.match(line):
            continue
        for name in re.findall(r"\bstd::(\w+)", line):
            if name not in NAMES:
                known = False
            elif not NAMES[name] & others:
                errors.append(f"{number}: std::{name} and no <{sorted(NAMES[name])[0]}>")
        for pattern, headers in PLAIN:
            found = pattern.search(line)
            if found and not headers & others:
                errors.append(f"{number}: {found.group()} and no <{sorted(headers)[0]}>")
    return errors, known


def commands(build):
    """[(header, flags)] of the target that compiles every header."""
    said = subprocess.run(["ninja", "-C", build, "-t", "commands", "all_verify_interface_header_sets"], check=True,
                          capture_output=True, text=True).stdout
    out = []
    for line in said.splitlines():
        words = shlex.split(line)
        if "-c" not in words or "verify_interface_header_sets" not in line or words[-1].rsplit(".", 1)[-1] != "cxx":
            continue
        source = pathlib.Path(build, words[words.index("-c") + 1])
        header = INCLUDE.search(source.read_text(encoding="utf-8")).group(2)
        flags, skip = [], False
        for word in words[1:]:
            if skip or word in ("-MD", "-c", str(source)) or word == words[-1]:
                skip = False
            elif word in ("-o", "-MT", "-MF", "-x"):
                skip = True
            elif not word.startswith("-O"):
                flags.append(word)
        while flags and not flags[0].startswith("-"):
            flags.pop(0)
        compiler = compiler_of(words)
        if "clang" in compiler:
            flags.append("-Wno-unknown-warning-option")
        # What a library defines for its users changes nothing of the headers in front.
        out.append((pathlib.Path(header), tuple(f for f in flags if not f.startswith("-DUTF8PROC")), compiler))
    return out


def compiler_of(words):
    """clang where it is: its precompiled headers take a tenth of the time of others. Else the build's own."""
    return shutil.which("clang++") or next(w for w in words if re.search(r"(\+\+|clang)[-\d.]*$", w))


def precompiled(folder, number, compiler, flags):
    """Flags that put the libraries in front, or None where they do not compile."""
    header = pathlib.Path(folder) / f"libraries{number}.h"
    text = "".join(f"#include <{name}>\n" for name in [*STANDARD, "fmt/format.h", "nlohmann/json.hpp"])
    header.write_text(text, encoding="utf-8")
    clang = "clang" in pathlib.Path(compiler).name
    target = f"{header}.{'pch' if clang else 'gch'}"
    more = ["-fpch-instantiate-templates"] if clang else []
    done = subprocess.run([compiler, *flags, *more, "-x", "c++-header", header, "-o", target], capture_output=True, text=True)
    return None if done.returncode else ["-include-pch", target] if clang else ["-include", str(header)]


def parse(compiler, flags, header, libraries, folder):
    """What the compiler says of the header alone, or behind the libraries; empty when it is well."""
    source = pathlib.Path(folder) / (str(header).strip("/").replace("/", "_") + ".cpp")
    source.write_text(f'#include "{header}"\n', encoding="utf-8")
    done = subprocess.run([compiler, *flags, *(libraries or []), "-fsyntax-only", "-x", "c++", source],
                          capture_output=True, text=True)
    return done.stderr if done.returncode else ""


def check(found, roots, jobs):
    """Errors of the headers [(path, flags, compiler)], and how many were parsed in full."""
    includes, errors, full = Includes(roots), [], 0
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        kinds = list(dict.fromkeys((compiler, flags) for _, flags, compiler in found))
        made = dict(zip(kinds, pool.map(lambda k: precompiled(folder, kinds.index(k), *k), kinds)))
        waits = []
        for header, flags, compiler in found:
            path = header if header.is_absolute() else includes.own(header)
            lacking, known = missing(path.read_text(encoding="utf-8"), includes.of(path))
            errors += [f"{path}:{e}" for e in lacking]
            libraries = made[compiler, flags] if known else None
            full += libraries is None
            waits.append((path, pool.submit(parse, compiler, flags, path, libraries, folder)))
        errors += [f"{path} does not compile alone:\n{said.result()}" for path, said in waits if said.result()]
    return errors, full


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--jobs", type=int, default=int(os.environ.get("REPRISE_JOBS", os.cpu_count() or 2)))
    args = parser.parse_args()
    root = pathlib.Path(__file__).resolve().parent.parent
    found = commands(args.build)
    if not found:
        sys.exit(f"{args.build} names no headers")
    errors, full = check(found, [root / "src", root / "apps", root / "sim"], args.jobs)
    print("\n".join(errors) if errors else f"{len(found)} headers compile alone; {full} were parsed in full")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
