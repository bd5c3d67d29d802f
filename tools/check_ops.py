#!/usr/bin/env python3
"""Checks that passes, the binder, the engine, reports and measurements take facts about ops from the schemas and
compare no names.

In src/passes, src/compile, src/engine, src/see and src/measurement, each reported as "file:line: what is wrong":
  - the name of a node's op, or of an operand, compared with anything written in the code;
  - anything compared with the name of a declared op (ops.add in src/ops and src/nn/fused), except in
    src/measurement/*_cases.cpp: the sizes at which each op is measured are listed by its name.

What to ask instead: a trait or a role of ops/schema.h, or whether the node's op is the one that the registry finds
under a name.

docs/add-an-op.md has every trait and every role that a declaration may have.
"""

import argparse
import pathlib
import re
import sys

ROOMS = ("passes", "compile", "engine", "see", "measurement")
LISTS = re.compile(r"^src/measurement/\w+_cases\.cpp$")
DECLARATIONS = ("ops", "nn")
DECLARED = re.compile(r'\.(?:add\(\s*\{?\s*|decl = )"(\w+)\(')
STRING = r'"(?:[^"\\]|\\.)*"'
# x.name == "y" where x is an op or an operand, either way round, and the functions that look at a part of it.
NAME = r"(?:\bop\w*(?:->|\.)name\b|\boperands\[[^\]]*\]\.name\b|\bschema\w*(?:->|\.)name\b|\bop_name\b)"
COMPARED_NAME = re.compile(rf"{NAME}\s*(?:[=!]=\s*{STRING}|\.(?:starts_with|ends_with|find|compare|contains)\(\s*{STRING})"
                           rf"|{STRING}\s*[=!]=\s*[\w.>\-\[\]]*{NAME}")
COMPARED = re.compile(rf"[=!]=\s*({STRING})|({STRING})\s*[=!]=")
OPERAND = re.compile(r"\bOperandSchema&?\s+(\w+)")
PAGE = "docs/add-an-op.md"
TRAIT = re.compile(r'\{"(\w+)", op_trait::k\w+\}')
ROLES = re.compile(r"enum class OperandRole[^{]*\{(.*?)\n\};", re.S)


def declared_ops(root):
    names = set()
    for folder in DECLARATIONS:
        for path in sorted((root / "src" / folder).rglob("*.cpp")):
            names |= set(DECLARED.findall(path.read_text(encoding="utf-8")))
    return names


def check_line(line, ops):
    """What is wrong with a line of code; None when nothing is."""
    code = re.sub(r"//(?=(?:[^\"]*\"[^\"]*\")*[^\"]*$).*", "", line)
    if COMPARED_NAME.search(code):
        return "the name of an op or operand is compared; ask a trait or a role of ops/schema.h"
    for operand in OPERAND.findall(code):
        if re.search(rf"\b{operand}\.name\s*[=!]=\s*{STRING}", code):
            return "the name of an operand is compared; ask its role (ops/schema.h)"
    for match in COMPARED.finditer(code):
        name = (match.group(1) or match.group(2)).strip('"')
        if name in ops:
            return f'something is compared with the op name "{name}"; ask a trait of ops/schema.h or the registry'
    return None


def check_page(root):
    """Traits and roles that the page for authors of ops lacks: each is in backquotes in the first column of a table."""
    words = TRAIT.findall((root / "src/ops/schema.cpp").read_text(encoding="utf-8"))
    roles = ROLES.search((root / "src/ops/schema.h").read_text(encoding="utf-8"))
    if not words or not roles:
        return ["src/ops/schema.h: no traits or roles are found"]
    words += re.findall(r"^  (\w+),", roles[1], re.M)
    text = (root / PAGE).read_text(encoding="utf-8")
    there = {word for row in re.findall(r"^\|([^|]*)\|", text, re.M) for word in re.findall(r"`(\w+)`", row)}
    return [f"{PAGE}: no table has `{word}` of src/ops/schema.h" for word in words if word not in there]


def check(root):
    ops = declared_ops(root)
    errors = check_page(root)
    if not ops:
        errors.append("src/ops: no declarations of ops are found")
    for room in ROOMS:
        for path in sorted((root / "src" / room).rglob("*")):
            if path.suffix not in (".h", ".cpp"):
                continue
            name = path.relative_to(root).as_posix()
            compared = set() if LISTS.match(name) else ops
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                if what := check_line(line, compared):
                    errors.append(f"{name}:{number}: {what}")
    return errors


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    root = parser.parse_args().root
    errors = check(root)
    print("\n".join(errors) if errors else f"{len(declared_ops(root))} ops, known by their traits")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
