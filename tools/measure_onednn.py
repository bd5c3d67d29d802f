#!/usr/bin/env python3
"""Our linears beside oneDNN's matrix products at the same sizes, in turn, on the same two threads.

  tools/measure_onednn.py [--model Qwen3-0.6B] [--rounds 3]

Needs libdnnl-dev (Debian). Both sides use the same weights again and again, so small ones lie in a cache. oneDNN's int8
product ends with int32 sums; ours goes on to scales, bias and rounding. Medians of the rounds count. Prints the table of
docs/benchmarks.md. Nothing else should run.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
OPS = {"linear": "bf16", "linear_w8a8_static": "int8"}


def run(command, **more):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **more)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stderr[-2000:]}")
    return done.stdout


def sizes_of(row):
    """(M, K, N) of a row of `bench ops`: the shape names x and the weight."""
    numbers = [[int(n) for n in re.findall(r"\d+", part)] for part in re.findall(r"\[([^]]*)\]", row["shape"])]
    return numbers[0][0], numbers[0][1], numbers[1][0]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--model", default="Qwen3-0.6B")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", default="1,4,16,64")
    parser.add_argument("--binary", default=HERE.parent / "build/release/bin/reprise")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "onednn"
        run(["g++", "-O2", "-std=c++20", "-fopenmp", HERE / "peers/onednn.cpp", "-o", program, "-ldnnl"])
        ours, theirs = {}, {}
        for number in range(args.rounds):
            print(f"round {number + 1} of {args.rounds}", file=sys.stderr)
            for op, kind in OPS.items():
                out = run([args.binary, "bench", "ops", "--json", "--filter", op, "--dtype", "bfloat16", "--model",
                           args.model, "--tokens", args.tokens, "--threads", 2])
                for row in json.loads(out)["rows"]:
                    if row["op"].split(" ")[0] == op:
                        ours.setdefault((kind, *sizes_of(row)), []).append(row["fused_us"])
            sizes = sorted({key[1:] for key in ours})
            out = run([program, *(",".join(map(str, s)) for s in sizes)],
                      env={**os.environ, "OMP_NUM_THREADS": "2", "OMP_PROC_BIND": "true"})
            for line in out.splitlines():
                row = json.loads(line)
                theirs.setdefault((row["type"], row["m"], row["k"], row["n"]), []).append(row["us"])
    print("| type, K, N | M | Reprise | oneDNN | oneDNN / Reprise |\n|---|---|---|---|---|")
    for key in sorted(ours, key=lambda k: (k[0], k[2], k[3], k[1])):
        if key not in theirs:
            continue
        kind, m, k, n = key
        a, b = statistics.median(ours[key]), statistics.median(theirs[key])
        rate = lambda us: f"{us:.1f} us, {2e-3 * m * k * n / us:.0f} Gop/s"
        print(f"| {kind}, {k}, {n} | {m} | {rate(a)} | {rate(b)} | {b / a:.2f} |")


if __name__ == "__main__":
    main()
