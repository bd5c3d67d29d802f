#!/usr/bin/env python3
"""Checks docs/scoreboard.md: every feature once, in order, with a test that exists.

A row of its tables is `| F01 | feature | what there is | tests |`. Tests stand in backquotes as `folder/file SUITE.NAME`,
which is tests/folder/file.cpp and a TEST, TEST_F, TEST_P or TYPED_TEST in it; `tools/checks_test.py CLASS.NAME` names a
Python one. A feature without a test says `measured: ` and the page that has the figure.
"""

import argparse
import pathlib
import re
import sys

PAGE = "docs/scoreboard.md"
IDS = [*range(1, 18), *range(20, 46), 49, *range(51, 55), *range(57, 65), 66, 67, 68]
ROW = re.compile(r"^\|\s*(F\d\d)\s*\|(.*)\|\s*$")
TEST_NAME = re.compile(r"`([\w./]+) (\w+)\.(\w+)`")
MEASURED = re.compile(r"measured: \[[^\]]+\]\(([\w./-]+?)(?:#[\w-]*)?\)")


def tests_of(path):
    """The names SUITE.NAME in one test file."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        names, suite = set(), ""
        for indent, kind, name in re.findall(r"^( *)(class|def) (\w+)", text, re.M):
            if kind == "class":
                suite = name
            elif indent and name.startswith("test_"):
                names.add(f"{suite}.{name}")
        return names
    found = re.findall(r"^(?:TEST|TEST_F|TEST_P|TYPED_TEST|TYPED_TEST_P)\(\s*(\w+)\s*,\s*(\w+)\s*\)", text, re.M)
    return {f"{suite}.{name}" for suite, name in found}


def check(root):
    """Returns the errors of the page."""
    page = root / PAGE
    if not page.is_file():
        return [f"{PAGE}: is missing"]
    errors, seen = [], []
    for number, line in enumerate(page.read_text(encoding="utf-8").split("\n"), 1):
        at = f"{PAGE}:{number}"
        row = ROW.match(line)
        named = TEST_NAME.findall(line)
        for file, suite, name in named:
            path = root / "tests" / (file if file.endswith(".py") else f"{file}.cpp")
            if not path.is_file():
                errors.append(f"{at}: there is no {path.relative_to(root)}")
            elif f"{suite}.{name}" not in tests_of(path):
                errors.append(f"{at}: {path.relative_to(root)} has no test {suite}.{name}")
        if not row:
            continue
        seen.append(row[1])
        if len(row[2].split("|")) != 3:
            errors.append(f"{at}: {row[1]} needs four columns")
        pages = MEASURED.findall(line)
        for target in pages:
            if not (page.parent / target).is_file():
                errors.append(f"{at}: there is no docs/{target}")
        if not named and not pages:
            errors.append(f"{at}: {row[1]} names no test")
    wanted = [f"F{n:02}" for n in IDS]
    errors += [f"{PAGE}: {i} is missing" for i in wanted if i not in seen]
    errors += [f"{PAGE}: {i} is not asked for" for i in seen if i not in wanted]
    errors += [f"{PAGE}: {i} is there twice" for i in sorted(set(seen)) if seen.count(i) > 1]
    return errors


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    errors = check(parser.parse_args().root)
    print("\n".join(errors) if errors else f"{len(IDS)} features")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
