#!/usr/bin/env python3
"""Compares the C interface of include/reprise.h with the one that was kept: additions pass, changes do not.

  tools/check_abi.py            against abi/libreprise-0.abi
  tools/check_abi.py --accept   keeps the interface as it is

abidw (abigail-tools) reads it from a shared object with the declared functions and empty bodies. The compiler holds
libreprise.so to the same header, and tests/capi/library_test.py its symbols.
"""
import argparse
import pathlib
import platform
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADER = ROOT / "include/reprise.h"
KEPT = ROOT / "abi/libreprise-0.abi"
BODIES = {"void": "{}", "reprise_text": "{ reprise_text t = {0, 0}; return t; }"}


def with_bodies(header):
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", header, flags=re.S)

    def body(match):
        kind = match[1].strip()
        return f"{match[1]}{match[2]} {BODIES.get(kind, '{ return 0; }')}"

    return re.sub(r"^REPRISE_API ((?:const )?\w+[ *]+)(\w+\([^;]*\));", body, text, flags=re.M)


def describe(header, folder, out):
    (folder / "interface.c").write_text(with_bodies(header).replace("#pragma once", ""))
    subprocess.run(["cc", "-g", "-std=c99", "-shared", "-fPIC", "interface.c", "-o", "interface.so"], cwd=folder, check=True)
    subprocess.run(["abidw", "--no-corpus-path", "--no-comp-dir-path", "--no-show-locs", "--type-id-style", "hash",
                    "--out-file", out, "interface.so"], cwd=folder, check=True)


def compare(before, after):
    done = subprocess.run(["abidiff", "--no-added-syms", before, after], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--accept", action="store_true")
    options = parser.parse_args()
    if platform.machine() != "x86_64":
        print("note: the interface is kept for x86-64; nothing was compared")
        return
    header = HEADER.read_text()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if options.accept:
            KEPT.parent.mkdir(exist_ok=True)
            return describe(header, folder, KEPT)
        describe(header, folder, folder / "now.abi")
        status, words = compare(KEPT, folder / "now.abi")
        if status != 0:
            print(words)
            sys.exit(f"the interface is not that of {KEPT.relative_to(ROOT)}; until the first release "
                     "tools/check_abi.py --accept keeps a new one")
        # The comparison sees a change: a parameter of another size.
        describe(header.replace("int32_t timeout_ms", "int64_t timeout_ms"), folder, folder / "other.abi")
        if compare(KEPT, folder / "other.abi")[0] == 0:
            sys.exit("abidiff does not see that a parameter changes")


if __name__ == "__main__":
    main()
