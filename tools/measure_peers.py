#!/usr/bin/env python3
"""Reprise and its peers on the same shapes, in turn: prefill, decode at two contexts, decode over batch sizes.

  tools/measure_peers.py --out docs/plots Qwen3-0.6B=$SHAPES/qwen3-0.6b    all formats
  tools/measure_peers.py --formats q8_0,q4_1 --only decode NAME=FOLDER     a part
  tools/measure_peers.py --layers 2 --formats bf16 --only batch NAME=FOLDER   that many layers of a large model

llama.cpp is built for this processor from its PyPI source package (tools/peers/llama_cpp.sh); with --openvino OpenVINO
GenAI runs too (tools/peers/openvino.sh), on the same file, for bf16 on one in F16. All use two threads and random
weights of the shape; bf16 and w8a8 (against Q8_0) run from config.json here, the others from the very file the peers
read. FORMAT-int8 and FORMAT-float are the file of FORMAT with --block-activations int8 and float; the peers round by default. The sides take turns --rounds times; medians count. The read bandwidth is measured before and after every run of
ours; rounds whose probes are more than 20 % apart are marked. Refuses to run beside other load. Writes NAME-peers.json
and one picture per shape, and prints the tables of docs/benchmarks.md. --note puts the machine and the date under the
title of the picture.
"""
import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys

import benchmark

HERE = pathlib.Path(__file__).parent
FORMATS = {  # ours: flags; peer: format of the file
    "bf16": (["--load-format", "dummy", "--dtype", "bfloat16"], "bf16"),
    "w8a8": (["--load-format", "dummy", "--dtype", "bfloat16", "--quantization", "w8a8_int8"], "Q8_0"),
    "q8_0": (None, "Q8_0"),
    "q4_0": (None, "Q4_0"),
    "q4_1": (None, "Q4_1"),
    "q4_k_m": (None, "Q4_K_M"),
    "q5_k_m": (None, "Q5_K_M"),
    "q6_k": (None, "Q6_K"),
    "q3_k_m": (None, "Q3_K_M"),
    "q2_k": (None, "Q2_K"),
    "iq4_nl": (None, "IQ4_NL"),
    "iq4_xs": (None, "IQ4_XS"),
}
WAYS = ("int8", "float")  # of what blocks are multiplied with
FORMATS |= {f"{form}-{way}": (None, peer) for form, (flags, peer) in FORMATS.items() if flags is None for way in WAYS}
COLOURS = {"bf16": "#2f6fb3", "w8a8": "#b3432f", "q8_0": "#7a4fa3", "q4_0": "#2e8b57", "q4_1": "#2e8b57",
           "q4_k_m": "#2e8b57", "q5_k_m": "#8a6d1f", "q6_k": "#5f6f7f", "q3_k_m": "#8a6d1f",
           "q2_k": "#5f6f7f", "iq4_nl": "#c2722b", "iq4_xs": "#c2722b"}
COLOURS |= {form: COLOURS[form.rsplit("-", 1)[0]] for form in FORMATS}
CONTEXTS = (128, 1024)


def run(command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stderr[-2000:]}")
    return done.stdout


class Sides:
    """Both programs on one shape and format."""

    def __init__(self, args, folder, form):
        self.args = args
        flags, peer_format = FORMATS[form]
        self.peer_file = run([HERE / "peers/llama_cpp.sh", "model", folder, peer_format]).strip()
        self.flags = [*flags, "--model-path", folder] if flags else ["--model-path", self.peer_file]
        if "-" in form:
            self.flags += ["--block-activations", form.rsplit("-", 1)[1]]
        self.probes = []
        self.openvino_version = None
        if args.openvino:  # it reads no bf16 file
            self.openvino_file = (run([HERE / "peers/llama_cpp.sh", "model", folder, "F16"]).strip()
                                  if peer_format == "bf16" else self.peer_file)

    def ours(self, batches, input_len, output_len, repeat=1):
        out = json.loads(run([self.args.binary, "bench", "one-batch", "--json", "--threads", 2, *self.flags,
                              "--batch-size", ",".join(map(str, batches)), "--input-len", input_len, "--output-len",
                              output_len, "--repeat", repeat, "--log-level", "warning"]))
        limits = out["limits"]
        self.limits = limits
        self.probes.append((limits["before"]["read_GBps_all"], limits["after"]["read_GBps_all"]))
        return out["rows"]

    def peer(self, arguments):
        rows = json.loads(run([self.args.bench / "llama-bench", "-m", self.peer_file, "-t", 2, "-r", 1, "-o", "json",
                               *arguments]))
        return [r["avg_ts"] for r in rows]

    def peer_batches(self, batches, output_len):
        rows = run([self.args.bench / "llama-batched-bench", "-m", self.peer_file, "-t", 2, "-tb", 2, "-npp", 128, "-ntg",
                    output_len, "-npl", ",".join(map(str, batches)), "-c", max(batches) * (128 + output_len + 32),
                    "-pps", "-no-kvu", "--output-format", "jsonl"])
        found = {}
        for line in rows.splitlines():
            if line.startswith("{"):
                row = json.loads(line)
                found[row["pl"]] = row["speed_tg"]
        return [found[b] for b in batches]

    def openvino(self, kind, sizes, output_len):
        """Of --openvino, by size; nothing without it."""
        if not self.args.openvino:
            return {}
        answer = json.loads(run([HERE / "peers/openvino.sh", "run", self.openvino_file, f"--{kind}",
                                 ",".join(map(str, sizes)), "--output-len", output_len]).splitlines()[-1])
        self.openvino_version = answer["version"]
        return {int(size): value for size, value in answer[kind].items()}

    def prefill(self):
        out = {}
        other = self.openvino("prefill", self.args.prompts, 1)
        for prompt in self.args.prompts:
            row = self.ours([1], prompt, 2, 3)[0]
            out[f"prefill {prompt}"] = (row["prefill_tok_s"], self.peer(["-p", prompt, "-n", 0])[0], row,
                                        other.get(prompt))
        return out

    def decode(self):
        out = {}
        other = self.openvino("decode", [c - 16 for c in CONTEXTS], 32)
        for context in CONTEXTS:
            row = self.ours([1], context - 16, 33)[0]
            out[f"decode, context {context}"] = (
                row["decode_tok_s"], self.peer(["-p", 0, "-n", 32, "-d", context - 16])[0], row,
                other.get(context - 16))
        return out

    def batch(self):
        n = self.args.batch_output_len
        ours = self.ours(self.args.batches, 128, n)
        peer = self.peer_batches(self.args.batches, n)
        # Fewer tokens than these are lost in the noise of the two runs whose difference it is.
        other = self.openvino("batches", self.args.batches, max(n, 65))
        return {f"batch {r['batch_size']}": (r["decode_tok_s"], p, r, other.get(r["batch_size"]))
                for r, p in zip(ours, peer)}


def with_layers(folder, layers):
    """A folder with the same config.json but for the number of layers, beside the peer's files."""
    config = json.loads((pathlib.Path(folder) / "config.json").read_text(encoding="utf-8"))
    config["num_hidden_layers"] = layers
    cache = pathlib.Path(os.environ.get("REPRISE_CACHE", pathlib.Path.home() / ".cache/reprise"))
    made = cache / "peers/shapes" / f"{pathlib.Path(folder).name}-{layers}-layers"
    made.mkdir(parents=True, exist_ok=True)
    (made / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    return made


def measure(args, folder, form):
    sides = Sides(args, folder, form)
    rounds = []
    for i in range(args.rounds):
        print(f"  {form}: round {i + 1} of {args.rounds}", file=sys.stderr, flush=True)
        cells = {}
        for kind in args.only:
            cells.update(getattr(sides, kind)())
        rounds.append(cells)
    table = {}
    for name in rounds[0]:
        ours = sorted(r[name][0] for r in rounds)
        peer = sorted(r[name][1] for r in rounds)
        middle = sorted(rounds, key=lambda r: r[name][0])[len(rounds) // 2][name][2]
        table[name] = {"ours": statistics.median(ours), "peer": statistics.median(peer),
                       "ours_range": [ours[0], ours[-1]], "peer_range": [peer[0], peer[-1]],
                       "pct_bandwidth": middle.get("pct_bandwidth"), "pct_peak": middle.get("pct_peak"),
                       "row": {key: middle[key] for key in ("weight_bytes", "kv_bytes")}}
        if rounds[0][name][3] is not None:
            table[name]["openvino"] = statistics.median(r[name][3] for r in rounds)
    if all(f"decode, context {c}" in table for c in CONTEXTS):
        step = {c: 1 / table[f"decode, context {c}"]["ours"] for c in CONTEXTS}
        peer = {c: 1 / table[f"decode, context {c}"]["peer"] for c in CONTEXTS}
        row = rounds[0][f"decode, context {CONTEXTS[1]}"][2]
        per_token = row["kv_bytes"] / (row["input_len"] + row["output_len"] / 2)
        added = (CONTEXTS[1] - CONTEXTS[0]) * per_token / 1e9
        ours_s, peer_s = step[CONTEXTS[1]] - step[CONTEXTS[0]], peer[CONTEXTS[1]] - peer[CONTEXTS[0]]
        if ours_s > 0 and peer_s > 0:  # else the machine changed its speed in between
            table["decode, context 128 to 1024"] = {"ours": added / ours_s, "peer": added / peer_s, "unit": "GB/s of KV"}
    low = min(min(p) for p in sides.probes)
    high = max(max(p) for p in sides.probes)
    return {"cells": table, "read_GBps": [low, high], "limits": sides.limits, "steady": high <= 1.2 * low,
            "openvino": sides.openvino_version}


def show(name, form, result):
    print(f"\n{name} {form} against llama.cpp {FORMATS[form][1]}; read bandwidth {result['read_GBps'][0]:.0f} to "
          f"{result['read_GBps'][1]:.0f} GB/s{'' if result['steady'] else ' (not steady)'}\n")
    third = any("openvino" in v for v in result["cells"].values())
    print(f"| | Reprise | llama.cpp | ratio |{' OpenVINO | ratio |' if third else ''} share of the limit |\n"
          f"|---|---|---|---|{'---|---|' if third else ''}---|")
    for cell, v in result["cells"].items():
        unit = v.get("unit", "tok/s")
        share = v.get("pct_peak") if cell.startswith("prefill") else v.get("pct_bandwidth")
        kind = "of peak" if cell.startswith("prefill") else "of read bandwidth"
        other = f" {v['openvino']:.1f} | {v['ours'] / v['openvino']:.2f} x |" if "openvino" in v else " | |" * third
        print(f"| {cell} | {v['ours']:.1f} {unit} | {v['peer']:.1f} | {v['ours'] / v['peer']:.2f} x |{other} "
              f"{f'{share:.0f} % {kind}' if share else ''} |", flush=True)


WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 440, 80, 20, 50, 60
DASHES = {"ours": "", "peer": "6 4", "openvino": "2 3"}
NAMES = {"ours": "Reprise", "peer": "llama.cpp", "openvino": "OpenVINO"}


def draw(name, results, batches, note=""):
    """Decode over batch sizes, both axes logarithmic: solid is ours, dashed and dotted the peers."""
    lines = [(form, side, [r["cells"][f"batch {b}"][side] for b in batches]) for form, r in results.items()
             for side in DASHES if side in r["cells"][f"batch {batches[0]}"]]
    low = math.log2(min(min(v) for _, _, v in lines)) - 0.3
    high = math.log2(max(max(v) for _, _, v in lines)) + 0.3

    def x(i):
        return LEFT + 20 + i / max(1, len(batches) - 1) * (WIDTH - LEFT - RIGHT - 40)

    def y(value):
        return HEIGHT - BOTTOM - (math.log2(value) - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    third = ", dotted: OpenVINO" if any(side == "openvino" for _, side, _ in lines) else ""
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
           f'<text x="{LEFT}" y="22" font-size="16" fill="#222222">{name}: decode, tokens per second</text>',
           f'<text x="{LEFT}" y="40" font-size="11" fill="#777777">solid: Reprise, dashed: llama.cpp (w8a8 against '
           f'Q8_0){third}; '
           f'both axes logarithmic{"; " + note if note else ""}</text>']
    for power in range(math.ceil(low), math.floor(high) + 1):
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(2 ** power):.1f}" y2="{y(2 ** power):.1f}" '
                   f'stroke="#e4e4e4"/><text x="{LEFT - 8}" y="{y(2 ** power) + 4:.1f}" font-size="11" '
                   f'text-anchor="end" fill="#555555">{2 ** power}</text>')
    for i, b in enumerate(batches):
        out.append(f'<text x="{x(i):.1f}" y="{HEIGHT - BOTTOM + 18}" font-size="11" text-anchor="middle" '
                   f'fill="#555555">{b}</text>')
    out.append(f'<text x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 14}" font-size="12" text-anchor="middle" '
               'fill="#555555">sequences decoded together</text>')
    for index, form in enumerate(results):
        for side, values in ((s, v) for f, s, v in lines if f == form):
            points = " ".join(f"{x(i):.1f},{y(v):.1f}" for i, v in enumerate(values))
            dash = f' stroke-dasharray="{DASHES[side]}"' if DASHES[side] else ""
            out.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[form]}" stroke-width="2"{dash}/>')
            who = NAMES[side]
            out += [f'<circle cx="{x(i):.1f}" cy="{y(v):.1f}" r="3" fill="{COLOURS[form]}"><title>{who} {form}, batch '
                    f'{batches[i]}: {v:.0f} tok/s</title></circle>' for i, v in enumerate(values)]
        out.append(f'<rect x="{LEFT + 20}" y="{TOP + 8 + 18 * index}" width="14" height="4" fill="{COLOURS[form]}"/>'
                   f'<text x="{LEFT + 40}" y="{TOP + 14 + 18 * index}" font-size="12" fill="#333333">{form}</text>')
    return "\n".join([*out, "</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="build/release/bin/reprise")
    parser.add_argument("--out", default="docs/plots", type=pathlib.Path)
    parser.add_argument("--formats", default="bf16,w8a8,q8_0,q4_0,q4_1,q4_k_m")
    parser.add_argument("--only", default="prefill,decode,batch", help="prefill, decode, batch")
    parser.add_argument("--prompts", default="128,512,2048", help="tokens of the prompts of prefill")
    parser.add_argument("--batches", default="1,2,4,8,16,32,64")
    parser.add_argument("--batch-output-len", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--layers", type=int, help="of every shape; default: those of its config.json")
    parser.add_argument("--openvino", action="store_true", help="measure OpenVINO GenAI too")
    parser.add_argument("--beside-load", action="store_true", help="to try the program out: the figures mean nothing")
    parser.add_argument("--note", default="", help="machine and date, for the picture")
    parser.add_argument("shapes", nargs="+", metavar="NAME=MODEL_FOLDER")
    args = parser.parse_args()
    args.batches = [int(b) for b in args.batches.split(",")]
    args.prompts = [int(p) for p in args.prompts.split(",")]
    args.only = args.only.split(",")
    for form in args.formats.split(","):
        if form not in FORMATS:
            parser.error(f'format "{form}"; allowed: {", ".join(FORMATS)}')
    for kind in args.only:
        if kind not in ("prefill", "decode", "batch"):
            parser.error(f'--only "{kind}"; allowed: prefill, decode, batch')
    args.bench = pathlib.Path(run([HERE / "peers/llama_cpp.sh", "build"]).strip())
    reasons = benchmark.other_load(None, benchmark.measured_busy())
    if reasons and not args.beside_load:
        sys.exit(f"other load: {'; '.join(reasons)}. End it")
    args.out.mkdir(parents=True, exist_ok=True)
    for shape in args.shapes:
        name, _, folder = shape.partition("=")
        if not folder:
            parser.error(f'"{shape}" is not of the form NAME=MODEL_FOLDER')
        if args.layers:
            folder = with_layers(folder, args.layers)
        results = {}
        for form in args.formats.split(","):
            results[form] = measure(args, folder, form)
            show(name, form, results[form])
            (args.out / f"{name}-peers.json").write_text(json.dumps(results, indent=1) + "\n")
        if "batch" in args.only:
            (args.out / f"{name}-peers.svg").write_text(draw(name, results, args.batches, args.note))


if __name__ == "__main__":
    main()
