#!/usr/bin/env python3
"""Eager, piecewise and whole over batch sizes: runs `reprise bench one-batch` once per mode and draws one SVG per shape.

  tools/measure_modes.py --binary build/release/bin/reprise --out docs/plots NAME=MODEL_FOLDER ...

Weights are random (--load-format dummy). The modes take turns, --rounds times, and each point is the round with the
median speed, so that a slow phase of the machine does not fall on one mode; nothing else should run. Each point is
labelled with its share of the limit that holds there: read bandwidth or peak arithmetic, whichever share is larger.
Writes NAME.svg and NAME.json (every row as the bench printed it); --note puts the machine and the date in the picture.
"""
import argparse
import json
import math
import pathlib
import subprocess
import sys

MODES = [  # name, flags, colour
    ("eager, nothing fused", ["--graph", "off", "--passes", "none"], "#8a8f98"),
    ("piecewise", ["--graph-decode", "piecewise"], "#d08a2e"),
    ("whole", ["--graph-decode", "whole"], "#2f6fb3"),
]
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 420, 80, 20, 50, 60


def measure(args, folder, flags):
    command = [args.binary, "bench", "one-batch", "--json", "--load-format", "dummy", "--model-path", folder,
               "--batch-size", args.batch_sizes, "--input-len", str(args.input_len), "--output-len",
               str(args.output_len), "--repeat", str(args.repeat), "--log-level", "warning", *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return json.loads(done.stdout)


def share(row, limits):
    """Of the limit of a decode step: all weights and keys read once, or two operations per bf16 weight and sequence."""
    peak = max(limits.get("fp32_gflops") or 0, limits.get("bf16_gflops") or 0)
    gflops = row["weight_bytes"] * row["decode_tok_s"] / 1e9
    return max(row.get("pct_bandwidth") or 0, 100 * gflops / peak if peak else 0)


def draw(name, series, limits, note):
    batches = [r["batch_size"] for r in series[0][1]]
    top = max(r["decode_tok_s"] for _, rows, _ in series for r in rows) * 1.12
    low, high = math.log2(batches[0]), max(math.log2(batches[-1]), math.log2(batches[0]) + 1)

    def x(batch):
        return LEFT + (math.log2(batch) - low) / (high - low) * (WIDTH - LEFT - RIGHT - 40) + 20

    def y(value):
        return HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
           f'<text x="{LEFT}" y="22" font-size="16" fill="#222222">{name}: decode, tokens per second</text>',
           f'<text x="{LEFT}" y="40" font-size="11" fill="#777777">{note}</text>']
    step = 10 ** math.floor(math.log10(top / 4))
    step *= next(m for m in (1, 2, 5, 10) if top / (step * m) <= 6)
    tick = 0
    while tick <= top:
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" stroke="#e4e4e4"/>')
        out.append(f'<text x="{LEFT - 8}" y="{y(tick) + 4:.1f}" font-size="11" text-anchor="end" '
                   f'fill="#555555">{tick:g}</text>')
        tick += step
    for b in batches:
        out.append(f'<text x="{x(b):.1f}" y="{HEIGHT - BOTTOM + 18}" font-size="11" text-anchor="middle" '
                   f'fill="#555555">{b}</text>')
    out.append(f'<text x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 14}" font-size="12" text-anchor="middle" '
               f'fill="#555555">batch size (labels: share of the limit, whole)</text>')
    for index, (mode, rows, colour) in enumerate(series):
        points = " ".join(f'{x(r["batch_size"]):.1f},{y(r["decode_tok_s"]):.1f}' for r in rows)
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for r in rows:
            out.append(f'<circle cx="{x(r["batch_size"]):.1f}" cy="{y(r["decode_tok_s"]):.1f}" r="3" '
                       f'fill="{colour}"><title>{mode}, batch {r["batch_size"]}: {r["decode_tok_s"]:.0f} tok/s, '
                       f'{share(r, limits):.0f} % of the limit</title></circle>')
            if mode == "whole":
                out.append(f'<text x="{x(r["batch_size"]):.1f}" y="{y(r["decode_tok_s"]) - 9:.1f}" font-size="10" '
                           f'text-anchor="middle" fill="{colour}">{share(r, limits):.0f} %</text>')
        out.append(f'<rect x="{LEFT + 20}" y="{TOP + 8 + 18 * index}" width="14" height="4" fill="{colour}"/>')
        out.append(f'<text x="{LEFT + 40}" y="{TOP + 14 + 18 * index}" font-size="12" fill="#333333">{mode}</text>')
    return "\n".join(out + ["</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="build/release/bin/reprise")
    parser.add_argument("--out", default="docs/plots")
    parser.add_argument("--batch-sizes", default="1,2,4,8,16,32,64")
    parser.add_argument("--input-len", type=int, default=16)
    parser.add_argument("--output-len", type=int, default=16)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--note", default="", help="machine and date, for the picture")
    parser.add_argument("shapes", nargs="+", metavar="NAME=MODEL_FOLDER")
    args = parser.parse_args()
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    for shape in args.shapes:
        name, _, folder = shape.partition("=")
        if not folder:
            parser.error(f'"{shape}" is not of the form NAME=MODEL_FOLDER')
        rounds = [[measure(args, folder, flags) for _, flags, _ in MODES] for _ in range(args.rounds)]
        limits = rounds[-1][-1]["limits"]
        series = []
        for m, (mode, _, colour) in enumerate(MODES):
            points = zip(*(r[m]["rows"] for r in rounds))
            rows = [sorted(p, key=lambda row: row["decode_tok_s"])[len(p) // 2] for p in points]
            series.append((mode, rows, colour))
            for r in rows:
                print(f'{name:<14} {mode:<22} batch {r["batch_size"]:>3}: decode {r["decode_tok_s"]:>9.1f} tok/s '
                      f'({share(r, limits):.0f} % of the limit, host {r["host_us"]:.1f} us), '
                      f'prefill {r["prefill_tok_s"]:>9.1f} tok/s', flush=True)
        note = (f'{args.input_len} tokens in, {args.output_len} out, median of {args.rounds} rounds; limits '
                f'{limits.get("read_GBps_all", 0):.0f} GB/s, {limits.get("fp32_gflops", 0):.0f} GFLOP/s fp32')
        note += f"; {args.note}" if args.note else ""
        (out / f"{name}.svg").write_text(draw(name, series, limits, note))
        rows = {mode: rows for mode, rows, _ in series}
        (out / f"{name}.json").write_text(json.dumps({"limits": limits, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
