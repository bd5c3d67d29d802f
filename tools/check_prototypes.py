#!/usr/bin/env python3
"""Compares what the Ascend backend calls with what the simulator has, argument by argument.

Both were written from the vendor's documents by different hands and share no header, so neither compiler nor linker
would notice that one of them has two arguments the other way round. Read are

  src/backends/ascend/operators.h   Operator<types...> name{"aclnnX"}
  src/backends/ascend/library.h     REQUIRED(name, result, (types)) and OPTIONAL(...)
  src/backends/ascend/acl.h         values of ACL_... constants
  src/backends/ascend/collectives.h  OPTIONAL(...) as well
  sim/ascend/ops/acl_op.h           ACLNN_OPERATOR and ACLNN_BOUNDED_OPERATOR(name, arguments), and plain prototypes
  sim/ascend/runtime/acl_rt.h       prototypes and enumerations
  sim/ascend/runtime/hccl.h         the same

Kinds are compared: enumerations travel as int32_t, parameters' names and const values do not matter, const behind a
pointer does.
"""

import argparse
import pathlib
import re
import sys

OPERATORS = "src/backends/ascend/operators.h"
LIBRARY = "src/backends/ascend/library.h"
COLLECTIVES = "src/backends/ascend/collectives.h"
CONSTANTS = "src/backends/ascend/acl.h"
SIM_OPERATORS = "sim/ascend/ops/acl_op.h"
SIM_RUNTIME = "sim/ascend/runtime/acl_rt.h"
SIM_COLLECTIVES = "sim/ascend/runtime/hccl.h"

# Under another name on one of the sides.
SAME = {"CannVersion": "aclCANNPackageVersion", "aclDataType": "int32_t", "aclFormat": "int32_t", "AclType": "int32_t"}

PROTOTYPE = re.compile(r"(?:^|[\s{}])((?:const\s+)?\w+\s*\**)\s*\b((?:acl|ascendSim|Hccl)\w+)\s*\(([^()]*)\)\s*$")


def without_comments(text):
    return re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.S)


def split_arguments(text):
    """At commas outside of brackets; nothing for "" and "void"."""
    out, depth, current = [], 0, ""
    for c in text:
        depth += (c in "(<[{") - (c in ")>]}")
        if c == "," and depth == 0:
            out.append(current)
            current = ""
        else:
            current += c
    out.append(current)
    out = [" ".join(a.split()) for a in out]
    return [] if out in ([""], ["void"]) else out


def kind(text, aliases):
    """A parameter or result as its type alone: without its name, aliases resolved."""
    text = re.sub(r"\b\w+\b", lambda word: aliases.get(word[0], word[0]), text)
    base, star, rest = text.rpartition("*")
    if star:  # behind the last one stand at most its const and the name
        return re.sub(r"\s*\*\s*", "* ", base + "*").strip().replace("* *", "**")
    words = [w for w in rest.split() if w != "const"]
    return words[0]


def enums_of(text):
    """({name of an enumeration: int32_t}, {enumerator: value})."""
    names, values = {}, {}
    for body, name in re.findall(r"\benum\b[^{;]*\{(.*?)\}\s*(\w*)\s*;", text, flags=re.S):
        if name:
            names[name] = "int32_t"
        value = -1
        for item in split_arguments(body):
            label, _, given = item.partition("=")
            value = int(given, 0) if given.strip() else value + 1
            if label.strip():
                values[label.strip()] = value
    return names, values


def backend_side(root):
    """{symbol: [result, arguments...]}"""
    out = {}
    text = without_comments((root / OPERATORS).read_text())
    aliases = {n: " ".join(t.split()) for n, t in re.findall(r"using (\w+) = ([^;]+);", text)}
    aliases.update(SAME)
    for types, symbol in re.findall(r"Operator<([^;{}]*)>\s*\w+\s*\{\s*\"(\w+)\"\s*\}", text):
        out[symbol] = ["aclnnStatus"] + [kind(t, aliases) for t in split_arguments(types)]
    # The lists are macros: lines end in a backslash.
    text = "".join(without_comments((root / name).read_text().replace("\\\n", "\n")) for name in (LIBRARY, COLLECTIVES))
    for symbol, result, arguments in re.findall(
        r"\b(?:REQUIRED|OPTIONAL)\((\w+),\s*([\w\s*]+?),\s*\(((?:[^()]|\n)*)\)\s*\)", text
    ):
        out[symbol] = [kind(result, SAME)] + [kind(t, SAME) for t in split_arguments(arguments)]
    return out


def simulator_side(root):
    out = {}
    for name in (SIM_OPERATORS, SIM_RUNTIME, SIM_COLLECTIVES):
        text = without_comments((root / name).read_text())
        enums, _ = enums_of(text)
        aliases = {**SAME, **enums}
        text = re.sub(r"^\s*#.*?(?<!\\)$", "", text, flags=re.M | re.S)
        for arguments in re.findall(r"\bACLNN_(?:BOUNDED_)?OPERATOR\(([^;]*)\)\s*;", text):
            symbol, *rest = split_arguments(arguments)
            out[symbol] = ["aclnnStatus"] + [kind(a, aliases) for a in rest]
        for statement in text.split(";"):
            found = PROTOTYPE.search(statement)
            if found:
                result, symbol, arguments = found.groups()
                out[symbol] = [kind(result, aliases)] + [kind(a, aliases) for a in split_arguments(arguments)]
    return out


def constants(root):
    text = without_comments((root / CONSTANTS).read_text())
    _, mine = enums_of(re.sub(r"enum (\w+) : \w+ (\{.*?\});", r"enum \2 \1;", text, flags=re.S))
    for name, value in re.findall(r"constexpr \w+ (ACL_\w+) = (\w+);", text):
        mine[name] = int(value, 0)
    _, theirs = enums_of(without_comments((root / SIM_RUNTIME).read_text()))
    return mine, theirs


def compare(symbol, here, there):
    """Empty, or the first difference in words."""
    if here[0] != there[0]:
        return f"{symbol}: the backend takes its result as {here[0]}, the simulator gives {there[0]}"
    for i, (a, b) in enumerate(zip(here[1:], there[1:]), 1):
        if a != b:
            return f"{symbol}: argument {i} is {a} in the backend, {b} in the simulator"
    if len(here) != len(there):
        return f"{symbol}: {len(here) - 1} arguments in the backend, {len(there) - 1} in the simulator"
    return ""


def check(root):
    root = pathlib.Path(root)
    here, there = backend_side(root), simulator_side(root)
    errors = []
    # A pattern that no longer matches must not pass for agreement.
    for count, least, name in ((sum(s.startswith("aclnn") for s in here), 30, OPERATORS),
                               (sum(s.startswith("Hccl") for s in here), 10, COLLECTIVES),
                               (sum(not s.startswith(("aclnn", "Hccl")) for s in here), 40, LIBRARY)):
        if count < least:
            errors.append(f"{name}: {count} prototypes found, expected at least {least}")
    for symbol, mine in sorted(here.items()):
        if symbol not in there:
            errors.append(f"{symbol}: the backend calls it, the simulator does not declare it")
        elif difference := compare(symbol, mine, there[symbol]):
            errors.append(difference)
    mine, theirs = constants(root)
    shared = sorted(mine.keys() & theirs.keys())
    if len(shared) < 8:
        errors.append(f"{CONSTANTS}: {len(shared)} constants are also in {SIM_RUNTIME}, expected at least 8")
    errors += [f"{n}: {mine[n]} in the backend, {theirs[n]} in the simulator" for n in shared if mine[n] != theirs[n]]
    return errors


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=pathlib.Path(__file__).resolve().parents[1])
    errors = check(parser.parse_args().root)
    for e in errors:
        print(e)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
