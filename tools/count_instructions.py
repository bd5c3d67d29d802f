#!/usr/bin/env python3
"""Instructions of the CPU's hot kernels, counted by callgrind and compared with the committed counts.

  tools/count_instructions.py            fails when a kernel takes over 5 % more than tests/data/instructions.json says
  tools/count_instructions.py --accept   writes that file

Counts do not depend on the machine's speed or load, only on the compiler. Valgrind knows no AVX-512, so they are those of
the AVX2 kernels: of the same sources, shapes and blocking. One thread, shape T, bf16; inclusive of what the kernel calls.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
COUNTS = ROOT / "tests/data/instructions.json"
TOLERANCE = 0.05
KERNEL = re.compile(r"reprise::cpu::avx2::(\w+)\(")
NAMES = set(re.findall(r"\bX\((\w+)\)", (ROOT / "src/backends/cpu/kernels/table.h").read_text()))
TOKENS = (1, 16)


def count(binary, tokens, calls, folder):
    """Inclusive instructions of every kernel function of a run."""
    out = folder / f"{tokens}-{calls}"
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", str(binary), "bench", "ops", "--isa", "avx2",
               "--threads", "1", "--model", "T", "--dtype", "bfloat16", "--tokens", str(tokens), "--calls", str(calls)]
    done = subprocess.run(command, capture_output=True, text=True)
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
    counts = {}
    with tempfile.TemporaryDirectory() as name:
        for tokens in TOKENS:
            once, thrice = (count(args.binary, tokens, n, pathlib.Path(name)) for n in (1, 3))
            for kernel, total in thrice.items():
                each = (total - once.get(kernel, 0)) // 2
                if each > 0:
                    counts[f"{kernel}, {tokens} tokens"] = each
    if not counts:
        sys.exit("no kernel was seen: was the binary stripped of its symbols?")
    if args.accept:
        COUNTS.write_text(json.dumps(counts, indent=1, sort_keys=True) + "\n")
        print(f"{len(counts)} counts written to {COUNTS.relative_to(ROOT)}")
        return
    known = json.loads(COUNTS.read_text())
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
