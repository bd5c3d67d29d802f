#!/usr/bin/env python3
"""Checks the pages that name tests, docs/scoreboard.md and docs/ascend-coverage.md, and the pages of figures.

The scoreboard has every feature of the graph-mode specification (F01 to F68) once, in order. A feature is a section
`### F01 Its name`: some words on what there is, then its tests, one a line: "- `folder/file SUITE.NAME`", which is
tests/folder/file.cpp and a TEST, TEST_F, TEST_P or TYPED_TEST in it; `tools/checks_test.py CLASS.NAME` names a Python
one. A feature without a test says `measured: ` and the page that has the figure, or its words start with `Missing: `
and say what is there in its place.

The coverage page lists its keys ("- **G**: what it shows") and its rules, each with its tests in lines of the same form
below it. The cells of its tables ("| model | eager | ...") hold keys, or `no N`, a reason that is listed as
"- **no N**: why".

Every table of docs/benchmarks.md and docs/benchmarks-history.md stands in a section that names its machine and its
commit (`Machine: M.` and "Commit: `hash`", or a column `commit` in the table) and has a fenced block with the command;
a table whose first column is `machine` or `letter` has none.
"""

import argparse
import pathlib
import re
import sys

PAGE = "docs/scoreboard.md"
COVERAGE = "docs/ascend-coverage.md"
FIGURES = ("docs/benchmarks.md", "docs/benchmarks-history.md")
IDS = range(1, 69)
FEATURE = re.compile(r"^### (F\d\d)\b *(.*)$")
KEY = re.compile(r"^- \*\*(no \d+|\w+)\*\*: (.*)$")
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
    lines = page.read_text(encoding="utf-8").split("\n")
    errors, keys, used, header = [], set(), set(), None
    # Items of lists first: the tables may stand in front of the keys.
    for number, line in enumerate(lines, 1):
        at = f"{COVERAGE}:{number}"
        errors += errors_of_names(root, at, line)
        if not line.startswith("- "):
            continue
        rest = lines[number:]
        end = next((i for i, other in enumerate(rest) if not other.startswith("  ")), len(rest))
        key = KEY.match(line)
        name = key[1] if key else line[2:]
        if key and name in keys:
            errors.append(f"{at}: the key {name} is there twice")
        if key:
            keys.add(name)
        if not TEST_NAME.search("\n".join([line, *rest[:end]])) and not name.startswith("no "):
            errors.append(f"{at}: {f'the key {name}' if key else name} names no test")
    for number, line in enumerate(lines, 1):
        at = f"{COVERAGE}:{number}"
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
        else:
            for name, cell in zip(header[1:], cells[1:]):
                named = [key.strip() for key in cell.split(",")]
                used.update(named)
                if any(key not in keys for key in named):
                    errors.append(f"{at}: {name} of {cells[0]}: \"{cell}\" is neither keys nor `no N` with a reason")
    return errors or [f"{COVERAGE}: the key {key} is used nowhere" for key in sorted(keys - used)]


def check_figures(root, page):
    """Returns the errors of one page of figures."""
    if not (root / page).is_file():
        return [f"{page}: is missing"]
    errors, section, facts, fenced, commits = [], None, set(), False, None
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
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if not cells:
            commits = None
        elif commits is None:
            commits = cells.index("commit") if "commit" in cells else -1
        elif commits >= 0 and not set(line) <= set("|-"):
            if commits >= len(cells) or not re.fullmatch(r"`[0-9a-f]{7,40}`", cells[commits]):
                errors.append(f"{page}:{number}: a row without its commit")
        if re.match(r"\| (machine|letter) \|", line):
            facts = {"machine", "command", "commit"}
        given = facts | ({"commit"} if cells and commits >= 0 else set())
        if cells and (lacks := sorted({"machine", "command", "commit"} - given)):
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
    errors, features = [], []  # features: line number, id, name, lines of the section
    for number, line in enumerate(page.read_text(encoding="utf-8").split("\n"), 1):
        errors += errors_of_names(root, f"{PAGE}:{number}", line)
        feature = FEATURE.match(line)
        if feature:
            features.append((number, feature[1], feature[2], []))
        elif line.startswith("#"):
            features.append((number, "", "", []))
        elif features:
            features[-1][3].append(line)
    features = [f for f in features if f[1]]
    for number, name, title, lines in features:
        at, text = f"{PAGE}:{number}", "\n".join(lines)
        words = " ".join(line.strip() for line in lines if not re.match(r"- `|- measured: ", line)).strip()
        missing = words.startswith("Missing: ") and len(words) > len("Missing: ")
        if not title:
            errors.append(f"{at}: {name} has no name")
        if not words:
            errors.append(f"{at}: {name} does not say what is there")
        pages = MEASURED.findall(text)
        for target in pages:
            if not (page.parent / target).is_file():
                errors.append(f"{at}: there is no docs/{target}")
        if not TEST_NAME.search(text) and not pages and not missing:
            errors.append(f"{at}: {name} names no test")
    seen = [f[1] for f in features]
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
