#!/usr/bin/env python3
"""Puts tests of one program together, so that starting it is paid once for several: a tenth of a test's time, and under
sanitizers a third.

  batch_tests.py BUILD OUT CTEST-ARGUMENTS...   of the tests that ctest would run in BUILD, writes OUT/CTestTestfile.cmake

GoogleTest's tests of a program that follow one another and have the same properties become one test of ctest; all
others stay as they are. Prints how many tests there are, and in how many processes.
"""
import itertools
import json
import pathlib
import subprocess
import sys

MOST = 10  # tests of a batch: few enough for what fails to be found, and for two processors to end together
FEW = 100  # tests that are not put together: each has its own line
FILTER = "--gtest_filter="
SKIPPED = "SKIP_REGULAR_EXPRESSION"  # it would hide failures of the others in a batch


def filter_of(test):
    """What a test is for GoogleTest; nothing of other tests."""
    found = [a.removeprefix(FILTER) for a in test.get("command", []) if a.startswith(FILTER)]
    return found[0] if len(found) == 1 else None


def properties_of(test):
    return {p["name"]: p["value"] for p in test.get("properties", [])}


def kind_of(test):
    """Equal for tests that may share a process."""
    if filter_of(test) is None:
        return test["name"]
    others = {name: value for name, value in properties_of(test).items() if name != SKIPPED}
    return json.dumps([[a for a in test["command"] if not a.startswith(FILTER)], others], sort_keys=True)


def batches(tests):
    """[[test, ...], ...]; those of a batch have one kind."""
    out = []
    for _, alike in itertools.groupby(tests, kind_of):
        alike = list(alike)
        out += [alike[i:i + MOST] for i in range(0, len(alike), MOST)]
    return out


def quoted(text):
    level = "="
    while f"]{level}]" in text:
        level += "="
    return f"[{level}[{text}]{level}]"


def value_text(name, value):
    """A property as CMake takes it."""
    if name == "RESOURCE_GROUPS":
        return ";".join(",".join(f"{r['.type']}:{r['slots']}" for r in group["requirements"]) for group in value)
    if isinstance(value, list):
        return ";".join(str(v).replace(";", "\\;") for v in value)
    return {True: "TRUE", False: "FALSE"}.get(value, str(value)) if isinstance(value, bool) else str(value)


def cmake_of(batch):
    name = batch[0]["name"] + (f" and {len(batch) - 1} more" if len(batch) > 1 else "")
    command, properties = batch[0]["command"], properties_of(batch[0])
    if len(batch) > 1:
        properties.pop(SKIPPED, None)
        command = [FILTER + ":".join(map(filter_of, batch)) if a.startswith(FILTER) else a for a in command]
    lines = [f"add_test({quoted(name)} {' '.join(map(quoted, command))})"]
    if properties:
        pairs = " ".join(f"{key} {quoted(value_text(key, value))}" for key, value in properties.items())
        lines.append(f"set_tests_properties({quoted(name)} PROPERTIES {pairs})")
    return "\n".join(lines)


def main():
    build, out, *arguments = sys.argv[1:]
    listed = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1", *arguments], check=True,
                            capture_output=True, text=True)
    said, brace, tests = listed.stdout.partition("{")
    complaints = said + listed.stderr
    sys.stderr.write(complaints)
    if "RegularExpression::compile" in complaints:  # ctest goes on with all tests where it does not understand one
        return 1
    tests = json.loads(brace + tests)["tests"]
    made = batches(tests) if len(tests) > FEW else [[t] for t in tests]
    folder = pathlib.Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "CTestTestfile.cmake").write_text("\n".join(map(cmake_of, made)) + "\n", encoding="utf-8")
    print(f"{len(tests)} tests in {len(made)} processes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
