#!/usr/bin/env python3
"""Checks the pages that name tests, docs/scoreboard.md and docs/ascend-coverage.md, and the pages of figures.

The scoreboard has every feature of the graph-mode specification (F01 to F68) once, in order.

A row of its tables is `| F01 | feature | what there is | tests |`. Tests stand in backquotes as `folder/file SUITE.NAME`,
which is tests/folder/file.cpp and a TEST, TEST_F, TEST_P or TYPED_TEST in it; `tools/checks_test.py CLASS.NAME` names a
Python one. A feature without a test says `measured: ` and the page that has the figure, or its third column starts with
`missing: ` and says what is there in its place.

The coverage page's tables either name tests in the same way, or ("| model | eager | ...") have cells that hold keys of
its first table or `no: ` and the reason.

Every table of docs/benchmarks.md and docs/benchmarks-history.md stands in a section that names its machine and its
commit (`Machine: M.` and "Commit: `hash`") and has a fenced block with the command; a table of machines has none.
"""

import argparse
import pathlib
import re
import sys

PAGE = "docs/scoreboard.md"
COVERAGE = "docs/ascend-coverage.md"
FIGURES = ("docs/benchmarks.md", "docs/benchmarks-history.md")
IDS = range(1, 69)
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


def errors_of_names(root, at, line):
    """Tests named in the line that do not exist."""
    errors = []
    for file, suite, name in TEST_NAME.findall(line):
        path = root / "tests" / (file if file.endswith(".py") else f"{file}.cpp")
        if not path.is_file():
            errors.append(f"{at}: there is no {path.relative_to(root)}")
        elif f"{suite}.{name}" not in tests_of(path):
            errors.append(f"{at}: {path.relative_to(root)} has no test {suite}.{name}")
    return errors


def check_coverage(root):
    """Returns the errors of the coverage page."""
    page = root / COVERAGE
    if not page.is_file():
        return [f"{COVERAGE}: is missing"]
    errors, keys, used, header = [], set(), set(), None
    for number, line in enumerate(page.read_text(encoding="utf-8").split("\n"), 1):
        at = f"{COVERAGE}:{number}"
        errors += errors_of_names(root, at, line)
        if not line.startswith("|"):
            header = None
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if header is None:
            header = cells
        elif set(line) <= set("|-"):
            continue
        elif len(cells) != len(header):
            errors.append(f"{at}: {len(cells)} columns, the table has {len(header)}")
        elif header[0] == "key":
            if cells[0] in keys:
                errors.append(f"{at}: the key {cells[0]} is there twice")
            keys.add(cells[0])
            if not TEST_NAME.search(cells[1]):
                errors.append(f"{at}: the key {cells[0]} names no test")
        elif "eager" in header:
            for name, cell in zip(header[1:], cells[1:]):
                if cell.startswith("no: "):
                    continue
                named = [key.strip() for key in cell.split(",")]
                used.update(named)
                unknown = [key for key in named if key not in keys]
                if unknown:
                    errors.append(f"{at}: {name} of {cells[0]}: \"{cell}\" is neither keys nor `no: ` and a reason")
        elif not TEST_NAME.search(line):
            errors.append(f"{at}: {cells[0]} names no test")
    return errors or [f"{COVERAGE}: the key {key} is used nowhere" for key in sorted(keys - used)]


def check_figures(root, page):
    """Returns the errors of one page of figures."""
    if not (root / page).is_file():
        return [f"{page}: is missing"]
    errors, section, facts, fenced = [], None, set(), False
    for number, line in enumerate((root / page).read_text(encoding="utf-8").split("\n"), 1):
        if line.startswith("```"):
            fenced = not fenced
        elif fenced:
            facts |= {"command"} if line.strip() else set()
        elif re.match(r"#{1,3} ", line):
            section, facts = line.lstrip("# "), set()
        elif re.search(r"Machine: \w|Any machine", line):
            facts.add("machine")
        facts |= {"commit"} if re.search(r"Commit: `[0-9a-f]{7,40}`", line) else set()
        if line.startswith("| machine |"):
            facts = {"machine", "command", "commit"}
        if line.startswith("|") and (lacks := sorted({"machine", "command", "commit"} - facts)):
            errors.append(f"{page}:{number}: \"{section}\" has figures without {' and '.join(lacks)}")
            facts = {"machine", "command", "commit"}
    return errors


def check(root):
    """Returns the errors of all pages."""
    return check_scoreboard(root) + check_coverage(root) + [e for page in FIGURES for e in check_figures(root, page)]


def check_scoreboard(root):
    """Returns the errors of the scoreboard."""
    page = root / PAGE
    if not page.is_file():
        return [f"{PAGE}: is missing"]
    errors, seen = [], []
    for number, line in enumerate(page.read_text(encoding="utf-8").split("\n"), 1):
        at = f"{PAGE}:{number}"
        row = ROW.match(line)
        named = TEST_NAME.findall(line)
        errors += errors_of_names(root, at, line)
        if not row:
            continue
        seen.append(row[1])
        cells = [cell.strip() for cell in row[2].split("|")]
        if len(cells) != 3:
            errors.append(f"{at}: {row[1]} needs four columns")
        here = cells[1] if len(cells) > 1 else ""
        missing = here.startswith("missing: ") and len(here) > len("missing: ")
        if not here:
            errors.append(f"{at}: {row[1]} does not say what is there")
        pages = MEASURED.findall(line)
        for target in pages:
            if not (page.parent / target).is_file():
                errors.append(f"{at}: there is no docs/{target}")
        if not named and not pages and not missing:
            errors.append(f"{at}: {row[1]} names no test")
    wanted = [f"F{n:02}" for n in IDS]
    errors += [f"{PAGE}: {i} is missing" for i in wanted if i not in seen]
    errors += [f"{PAGE}: {i} is not asked for" for i in seen if i not in wanted]
    errors += [f"{PAGE}: {i} is there twice" for i in sorted(set(seen)) if seen.count(i) > 1]
    if not errors and seen != wanted:
        errors.append(f"{PAGE}: {next(i for i, w in zip(seen, wanted) if i != w)} is out of order")
    return errors


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    errors = check(parser.parse_args().root)
    print("\n".join(errors) if errors else f"{len(IDS)} features")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
