#!/usr/bin/env python3
"""Checks the tracked files for things that do not belong in this repository.

In C++: #if 0, if (false), commented-out code, registration by static objects, headers without #pragma once, using
namespace in a header. In every text file: tabs, spaces at the end of a line, lines over 120 characters (C++, CMake and
shell), paths that exist on one machine only. In src, apps and sim: functions of more than 80 lines, but for those that
are nothing but a table.

A comment may show code as an example: the line before it in the same comment ends with a colon.

Without file names, docs/scoreboard.md is checked as well (check_scoreboard.py).
"""

import argparse
import pathlib
import re
import subprocess
import sys

import check_scoreboard

MAX_COLUMNS = 120
MAX_FUNCTION = 80  # lines, signature and last brace included
FUNCTIONS_IN = ("src/", "apps/", "sim/")
CPP = {".h", ".cpp", ".cc", ".cu", ".inc"}
TEXT = CPP | {".py", ".sh", ".cmake", ".txt", ".json", ".md", ".yml", ".yaml", ".toml"}
TEXT_NAMES = {"dev", "run", ".clang-format", ".clang-tidy", ".gitignore"}
LENGTH_LIMIT = CPP | {".cmake", ".sh"}
DATA = ("tests/data/", "tests/fuzz/corpus/", "third_party/")

DEAD_CODE = re.compile(r"^\s*#\s*if\s+(0|false)\b|\bif\s*(constexpr\s*)?\(\s*(false|0)\s*\)")
MACHINE_PATH = re.compile(r"(?<![\w.}/-])/(?:work|root|home/\w+)/")
STATIC_REGISTRATION = re.compile(
    r"^\s*REGISTER_\w+\s*\("
    r"|__attribute__\s*\(\(\s*constructor"
    r"|^\s*(\[\[maybe_unused\]\]\s*)?((static|const|inline)\s+)+(bool|int|auto)\s+\w+\s*=.*[Rr]egist(er|rar)\w*\s*\("
    r"|^\s*((static|const|inline)\s+)*\w*(Registrar|Registerer|AutoRegister)(<[^>]*>)?\s+\w+\s*[({=]"
)
CODE_LINE = [
    re.compile(p)
    for p in (
        r"^(return|break|continue);$",
        r"^return\s+[^\s;]+;$",
        r"^return\s+.*[()=<>+*\[\]].*;$",
        r"^[\w:.<>*&\[\]()\->, ]+\s*(=|\+=|-=|\*=|/=|\|=|<<|>>)\s*[^=].*;$",
        r"^[\w:.\->\[\]<>]+\(.*\);$",
        r"^(const|static|auto|int|unsigned|float|double|bool|char|void|size_t|u?int\d+_t|std::\w+)\b[\w\s:<>,*&()\[\]]*;$",
        r"^(if|for|while|switch)\s*\(.*\)\s*(\{|[^.]*;)?$",
        r"^\}?\s*else(\s*\{|\s+if\s*\(.*)$",
        r"^#\s*(include|define|if|ifdef|ifndef|endif|else|pragma)\b(?!.*[.]$)",
        r"^.*\)\s*(const|noexcept|override)?\s*\{$",
        r"^(class|struct|namespace|enum|union)\b[^.]*[{;]$",
        r"^[\w:]+\s*(\+\+|--);$",
    )
]


def looks_like_code(comment):
    return any(p.match(comment) for p in CODE_LINE)


def commented_out_code(lines):
    """Yields the numbers of lines that hold nothing but commented-out code."""
    previous, example = "", False
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text.startswith("//"):
            previous, example = "", False
            continue
        comment = text.lstrip("/").strip()
        if looks_like_code(comment):
            example = example or previous.endswith(":")
            if not example:
                yield number
        elif text.lstrip("/").startswith("  "):  # an example is indented, and not every line of it looks like code
            example = example or previous.endswith(":")
        elif not re.fullmatch(r"[{}();]*", comment):  # a brace or an empty line says nothing
            example = False
        previous = comment or previous


def first_code_line(lines):
    for line in lines:
        if line.strip() and not line.strip().startswith("//"):
            return line.strip()
    return ""


NO_FUNCTION = re.compile(
    r"^(namespace|class|struct|enum|union|if|for|while|switch|do|else|try|catch|extern|return|case|default)\b"
    r"|^[}{]|=\s*\{$|\[[^\]]*\]\s*(\([^{]*\))?[^{]*\{$"
)
TABLE = re.compile(r"^\s*(return\s*\{|static const [\w:<>, *]+ \w+(\[\])? = \{)$")


def functions(lines):
    """Yields first line, number of lines and body of each function, in files that clang-format has laid out."""
    code = [line.split("//")[0].rstrip() for line in lines]
    for last, line in enumerate(code):
        if not line.endswith("{"):
            continue
        first = last
        while first and code[first - 1].strip() and not re.search(r"[;{}:]$|^\s*#", code[first - 1]):
            first -= 1
        head = " ".join(part.strip() for part in code[first : last + 1])
        if "(" not in head or NO_FUNCTION.search(head):
            continue
        closing = code[first][: len(code[first]) - len(code[first].lstrip())] + "}"
        end = next((i for i in range(last + 1, len(code)) if code[i].rstrip(";") == closing), None)
        if end is not None:
            yield first, end - first + 1, code[last + 1 : end]


def long_functions(lines):
    for first, count, body in functions(lines):
        if count > MAX_FUNCTION and not (body and TABLE.match(body[0])):
            yield first + 1, f"a function of {count} lines; at most {MAX_FUNCTION}"


def check_cpp(name, lines):
    if name.startswith(FUNCTIONS_IN):
        yield from long_functions(lines)
    for number in commented_out_code(lines):
        yield number, "commented-out code (an example in a comment follows a line that ends with a colon)"
    for number, line in enumerate(lines, 1):
        code = line.split("//")[0]
        if DEAD_CODE.search(code):
            yield number, "code that is switched off"
        if STATIC_REGISTRATION.search(code):
            yield number, "registration by a static object; write a function and call it from a list"
        if name.endswith(".h") and re.match(r"\s*using\s+namespace\b", code):
            yield number, "using namespace in a header"
    if name.endswith(".h") and first_code_line(lines) != "#pragma once":
        yield 1, "the first line after the comment must be #pragma once"


def check_text(suffix, lines):
    for number, line in enumerate(lines, 1):
        if "\t" in line:
            yield number, "a tab"
        if line != line.rstrip():
            yield number, "spaces at the end of the line"
        if len(line) > MAX_COLUMNS and suffix in LENGTH_LIMIT:
            yield number, f"{len(line)} characters; at most {MAX_COLUMNS}"


def check_file(root, name):
    """Returns the errors of one file, given by its path from the root."""
    path = root / name
    suffix = path.suffix
    if suffix not in TEXT and path.name not in TEXT_NAMES:
        return []
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return [] if name.startswith(DATA) else [f"{name}:1: not UTF-8"]
    lines = text.split("\n")
    found = [(n, "a path of one machine") for n, line in enumerate(lines, 1) if MACHINE_PATH.search(line)]
    if not name.startswith(DATA):
        found += check_text(suffix, lines)
        if text and not text.endswith("\n"):
            found.append((len(lines), "no newline at the end of the file"))
        if suffix in CPP:
            found += check_cpp(name, lines)
    return [f"{name}:{number}: {what}" for number, what in sorted(found)]


def tracked_files(root):
    out = subprocess.run(["git", "ls-files", "-z"], cwd=root, check=True, capture_output=True, text=True).stdout
    return [name for name in out.split("\0") if name and (root / name).is_file()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("files", nargs="*", help="paths from the root; without any, all tracked files")
    arguments = parser.parse_args()
    errors = []
    names = arguments.files or tracked_files(arguments.root)
    for name in names:
        errors += check_file(arguments.root, name)
    if not arguments.files:
        errors += check_scoreboard.check(arguments.root)
    print("\n".join(errors) if errors else f"{len(names)} files")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
