#!/usr/bin/env python3
"""Instructions of the CPU's hot kernels, counted by callgrind and compared with the committed counts.

  tools/count_instructions.py            fails when a kernel takes over 5 % more than tests/data/instructions.json says
  tools/count_instructions.py --accept   writes that file

Counts do not depend on the machine's speed or load, but on the compiler, which the file names: a binary made by another
one is counted and not compared. Valgrind knows no AVX-512, so they are those of the AVX2 kernels: of the same sources,
shapes and blocking; where the processor has no AVX2 there is nothing to count. One thread, shape T, bf16; inclusive of
what the kernel calls.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
COUNTS = ROOT / "tests/data/instructions.json"
TOLERANCE = 0.05
KERNEL = re.compile(r"reprise::cpu::avx2::(\w+)\(")
LISTED = re.findall(r"\bX\((\w+)\)", (ROOT / "src/backends/cpu/kernels/table.h").read_text())
NAMES = {*LISTED, *(f"{name}_{dtype}" for name in LISTED for dtype in ("f32", "bf16", "f16"))}
TOKENS = (1, 16)


def has_avx2():
    cpu = pathlib.Path("/proc/cpuinfo")
    return platform.machine() == "x86_64" and (not cpu.is_file() or re.search(r"^flags\b.*\bavx2\b", cpu.read_text(), re.M))


def compiler_of(binary):
    """What CMake found; the binary itself also names those of the static libraries in it."""
    for file in binary.parent.parent.glob("CMakeFiles/*/CMakeCXXCompiler.cmake"):
        found = dict(re.findall(r'^set\(CMAKE_CXX_COMPILER_(ID|VERSION) "(.*)"\)', file.read_text(), re.M))
        return f"{found.get('ID')} {found.get('VERSION')}"
    return "unknown"


def count(binary, tokens, calls, folder):
    """Inclusive instructions of every kernel function of a run."""
    out = folder / f"{tokens}-{calls}"
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", str(binary), "bench", "ops", "--isa", "avx2",
               "--threads", "1", "--model", "T", "--dtype", "bfloat16", "--tokens", str(tokens), "--calls", str(calls)]
    # Nothing that a user has set changes what runs: no options of valgrind, no preloaded or tuned library, no plan cache.
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "LC_ALL": "C.UTF-8"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr[-3000:]}")
    text = subprocess.run(["callgrind_annotate", "--inclusive=yes", "--threshold=100", str(out)], capture_output=True,
                          text=True, check=True).stdout
    found = {}
    for line in text.splitlines():
        kernel = KERNEL.search(line)
        number = re.match(r"\s*([\d,]+)", line)
        if kernel and kernel[1] in NAMES and number and "'" not in line:
            found[kernel[1]] = max(found.get(kernel[1], 0), int(number[1].replace(",", "")))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=ROOT / "build/release/bin/reprise", type=pathlib.Path)
    parser.add_argument("--accept", action="store_true")
    args = parser.parse_args()
    binary = args.binary.resolve()
    if not has_avx2():
        print("this processor has no AVX2: nothing to count")
        return
    counts = {}
    with tempfile.TemporaryDirectory() as name:
        runs = [(tokens, calls) for tokens in TOKENS for calls in (2, 1)]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            found = dict(zip(runs, pool.map(lambda run: count(binary, *run, pathlib.Path(name)), runs)))
        for tokens in TOKENS:
            once, twice = found[tokens, 1], found[tokens, 2]
            for kernel, total in twice.items():
                each = total - once.get(kernel, 0)
                if each > 0:
                    counts[f"{kernel}, {tokens} tokens"] = each
    if not counts:
        sys.exit("no kernel was seen: was the binary stripped of its symbols?")
    compiler = compiler_of(binary)
    if args.accept:
        COUNTS.write_text(json.dumps({"compiler": compiler, "counts": counts}, indent=1, sort_keys=True) + "\n")
        print(f"{len(counts)} counts written to {COUNTS.relative_to(ROOT)}")
        return
    known = json.loads(COUNTS.read_text())
    if known["compiler"] != compiler:
        print(f"{len(counts)} kernels; not compared: {COUNTS.relative_to(ROOT)} is of {known['compiler']}, and the binary "
              f"was made by {compiler}")
        return
    known = known["counts"]
    worse = better = 0
    for key in sorted({*known, *counts}):
        if key not in known or key not in counts:
            print(f"{key}: {'is new' if key in counts else 'is gone'}; review and run with --accept")
            worse += 1
            continue
        change = counts[key] / known[key] - 1
        if abs(change) > TOLERANCE:
            print(f"{key}: {known[key]} instructions before, {counts[key]} now ({change:+.1%})")
            worse += change > 0
            better += change < 0
    print(f"{len(counts)} kernels, {worse} worse, {better} better by more than {TOLERANCE:.0%}")
    sys.exit(1 if worse else 0)


if __name__ == "__main__":
    main()
