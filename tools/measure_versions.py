#!/usr/bin/env python3
"""Two builds of Reprise on the same shapes, in turn: what a change cost or brought, cell by cell.

  tools/measure_versions.py OLD NEW SmolLM2-135M=$SHAPES/smollm2-135m Qwen3-0.6B=$SHAPES/qwen3-0.6b

OLD and NEW are binaries. For every shape and dtype both run `bench one-batch` with random weights --rounds times, the
first of a round being the other one each time; the medians count. A cell is the prefill of a prompt or the decoding of a
batch. Cells in which NEW has less than --least of OLD's speed (default 0.98) are marked, and make the exit status 1.
Refuses to run beside other load. Prints the table of docs/benchmarks.md; --out writes it as JSON.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys

import benchmark

DTYPES = {"fp32": ["--dtype", "float32"], "bf16": ["--dtype", "bfloat16"], "fp16": ["--dtype", "float16"],
          "W8A8": ["--dtype", "bfloat16", "--quantization", "w8a8_int8"]}


def run(binary, folder, dtype, args):
    """Tokens a second by cell."""
    command = [binary, "bench", "one-batch", "--json", "--model-path", folder, "--load-format", "dummy", *DTYPES[dtype],
               "--batch-size", args.batches, "--input-len", str(args.input_len), "--output-len", str(args.output_len),
               "--repeat", "1"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr[-2000:]}")
    rows = json.loads(done.stdout)["rows"]
    cells = {f"prefill, {r['batch_size']}": r["prefill_tok_s"] for r in rows}
    return cells | {f"decode, {r['batch_size']}": r["decode_tok_s"] for r in rows}


def compare(old, new, folder, dtype, args):
    """(cell, old, new) of medians."""
    found = {old: {}, new: {}}
    for round_ in range(args.rounds):
        for binary in (old, new) if round_ % 2 == 0 else (new, old):
            for cell, speed in run(binary, folder, dtype, args).items():
                found[binary].setdefault(cell, []).append(speed)
    return [(cell, statistics.median(speeds), statistics.median(found[new][cell])) for cell, speeds in found[old].items()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("shapes", nargs="+", metavar="NAME=FOLDER")
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--batches", default="1,4,16,64")
    parser.add_argument("--input-len", type=int, default=128)
    parser.add_argument("--output-len", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--least", type=float, default=0.98)
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    unknown = [d for d in args.dtypes.split(",") if d not in DTYPES]
    if unknown:
        parser.error(f"--dtypes {','.join(unknown)}: allowed: {', '.join(DTYPES)}")
    for shape in args.shapes:
        name, _, folder = shape.partition("=")
        if not (pathlib.Path(folder) / "config.json").is_file():
            parser.error(f"{shape}: no config.json in the folder")
    if reasons := benchmark.other_load(None, benchmark.measured_busy()):
        sys.exit(f"measure_versions: other load: {'; '.join(reasons)}")

    results, slower = [], 0
    print("| shape | dtype | cell, sequences | old, tok/s | new, tok/s | new / old |\n|---|---|---|---|---|---|")
    for shape in args.shapes:
        name, _, folder = shape.partition("=")
        for dtype in args.dtypes.split(","):
            for cell, old, new in compare(args.old, args.new, folder, dtype, args):
                ratio = new / old
                slower += ratio < args.least
                mark = " (slower)" if ratio < args.least else ""
                print(f"| {name} | {dtype} | {cell} | {old:.1f} | {new:.1f} | {ratio:.2f}{mark} |", flush=True)
                results.append({"shape": name, "dtype": dtype, "cell": cell, "old": old, "new": new})
    if args.out:
        args.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(f"\n{slower} of {len(results)} cells below {args.least}")
    sys.exit(1 if slower else 0)


if __name__ == "__main__":
    main()
