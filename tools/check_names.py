#!/usr/bin/env python3
"""Checks that names in the unnamed namespaces of one target differ.

A build from nothing compiles several files of a target as one (house_unity in cmake/house.cmake), and how many depends
on where it is built: two files that both define `kBlock` in an unnamed namespace compile alone, and fail together.
Sources that are always compiled alone (house_hot, APART, kernels of an instruction set) are passed over: a target that
names a source in a list of its CMakeLists.txt is read for that.

Functions of one name may stand in two files when their parameters differ.
"""

import argparse
import collections
import pathlib
import re
import sys

OPENS = re.compile(r"^(?:inline )?namespace\s*([\w:]*)\s*\{$")
CLOSES = re.compile(r"^\}\s*// namespace")
TYPE = re.compile(r"^(?:template <.*> )?(?:struct|class|enum class|enum|union) (?:alignas\([^)]*\) )?(\w+)\b[^;()]*[{;]")
ALIAS = re.compile(r"^(?:template <.*> )?using \w+ =|^namespace \w+ = ")  # the same one may stand twice
VALUE = re.compile(
    r"^(?:(?:constexpr|const|static|inline|thread_local|constinit) )*[\w:<>, *&]+?[ *&](\w+)(?:\[[^\]]*\])*\s*(?:=|;|\{)"
)
FUNCTION = re.compile(r"^(?!return\b|using\b|#)[\w:<>, *&\[\]]+?[ *&](\w+)\((.*)$")


def parameters(text):
    """The types of a function's parameters, without their names and values."""
    depth, end = 1, len(text)
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if depth == 0:
            end = i
            break
    out = []
    depth, start = 0, 0
    inside = text[:end]
    for i, c in enumerate(inside + ","):
        depth += (c in "<({[") - (c in ">)}]")
        if c == "," and depth == 0:
            part = inside[start:i].split("=")[0].strip()
            out.append(re.sub(r"(?<=[\s*&])\w+$", "", part).strip() if re.search(r"[\s*&]\w+$", part) else part)
            start = i + 1
    return ", ".join(out)


def definitions(lines):
    """Yields namespace, name, kind and line of what a file defines in unnamed namespaces."""
    stack = []
    for number, line in enumerate(lines, 1):
        opened = OPENS.match(line)
        if opened:
            stack.append(opened.group(1))
            continue
        if CLOSES.match(line):
            if stack:
                stack.pop()
            continue
        if "" not in stack or not line or line[0] in " \t}/#":
            continue
        where = "::".join(part for part in stack[: stack.index("")])
        head, next_line = line, number
        while head.count("(") > head.count(")") and next_line < len(lines):
            head += " " + lines[next_line].strip()
            next_line += 1
        if ALIAS.match(line):
            continue
        for kind, pattern in (("type", TYPE), ("value", VALUE)):
            found = pattern.match(line)
            if found and "(" not in line[: found.end()].replace("alignas(", ""):
                yield where, found.group(1), kind, number
                break
        else:
            found = FUNCTION.match(re.sub(r"^template <.*?> ", "", head))
            if found:
                yield where, found.group(1), f"({parameters(found.group(2))})", number


def apart(cmake):
    """Whether a source's path from its target's folder is compiled alone, by the target's CMakeLists.txt."""
    text = re.sub(r"#.*", "", cmake)
    patterns = []
    for words in re.findall(r"\bAPART\b([^)]*)", text):
        for word in words.split():
            if re.fullmatch(r"[A-Z]+", word):
                break
            patterns.append(word.strip('"').replace("\\\\", "\\"))
    hot = set()
    for words in re.findall(r"\bhouse_hot\(([^)]*)\)", text):
        hot.update(words.split())
    excluded = []
    for words in re.findall(r"\bEXCLUDE\b([^)]*)", text):
        excluded += words.split()
    return lambda name: name in hot or name in excluded or any(re.search(p, name) for p in patterns)


def check_target(root, folder):
    """The errors of one folder with a CMakeLists.txt, and what is below it without one: one target where it is a library
    or tests of the house, else a target for each folder."""
    cmake = (folder / "CMakeLists.txt").read_text(encoding="utf-8")
    if not re.search(r"\bhouse_(library|test|unity)\(", cmake):
        return
    alone = apart(cmake)
    own = {p.parent for p in folder.rglob("CMakeLists.txt")} - {folder}
    defined = collections.defaultdict(list)
    for path in sorted(folder.rglob("*.cpp")):
        if any(other in path.parents for other in own) or alone(str(path.relative_to(folder))):
            continue
        target = "" if re.search(r"\bhouse_(library|test)\(", cmake) else path.parent
        lines = path.read_text(encoding="utf-8").split("\n")
        seen = set()
        for where, name, kind, number in definitions(lines):
            key = (where, name, kind)
            if key not in seen:
                seen.add(key)
                defined[target, key].append(f"{path.relative_to(root)}:{number}")
    for (_, (where, name, _)), places in sorted(defined.items(), key=lambda item: item[1]):
        if len(places) > 1:
            yield f"{places[0]}: {name} is also defined in an unnamed namespace of {where} at {', '.join(places[1:])}"


def check(root):
    errors = []
    folders = sorted(p.parent for top in ("src", "sim", "apps", "tests") for p in (root / top).rglob("CMakeLists.txt"))
    for folder in folders:
        errors += check_target(root, folder)
    return errors, len(folders)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    errors, count = check(parser.parse_args().root)
    print("\n".join(errors) if errors else f"{count} targets")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
