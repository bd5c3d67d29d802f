#!/usr/bin/env python3
"""Tables of a round of tools/gpu_round.sh, and what changed since an earlier one.

    tools/gpu_report.py round.json [EARLIER/round.json]

A figure that became worse by more than 3 % stands in a list of its own, and the status is then 1.
"""
import json
import pathlib
import sys

WORSE = 0.03


def bench_rows(results):
    for name, result in results.items():
        for row in result.get("rows", []):
            yield (name.removeprefix("bench-"), row["batch_size"]), row


def tables(round_):
    out = [f"{round_['machine']}", "", "| step | status | seconds |", "|---|---|---|"]
    out += [f"| {s['step']} | left out: {s['skipped']} | |" if "skipped" in s else
            f"| {s['step']} | {s['status']} | {s['seconds']} |" for s in round_["steps"]]
    out += ["", "| shape | batch | prefill tok/s | decode tok/s | ms a step | GB/s | share | gap us |",
            "|---|---|---|---|---|---|---|---|"]
    for (name, batch), r in bench_rows(round_["results"]):
        share = f"{r['pct_bandwidth']:.0f} %" if r.get("pct_bandwidth") else "-"
        out.append(f"| {name} | {batch} | {r['prefill_tok_s']:,.0f} | {r['decode_tok_s']:,.0f} | "
                   f"{r['step_ms_p50']:.2f} | {r['achieved_GBps']:,.0f} | {share} | {r['gap_us']:.1f} |")
    return "\n".join(out)


def worse(now, earlier):
    before = dict(bench_rows(earlier["results"]))
    out = []
    for key, row in bench_rows(now["results"]):
        old = before.get(key)
        if not old:
            continue
        for figure, up in (("decode_tok_s", True), ("prefill_tok_s", True), ("step_ms_p50", False)):
            ratio = row[figure] / old[figure] if up else old[figure] / row[figure]
            if ratio < 1 - WORSE:
                out.append(f"{key[0]}, batch {key[1]}: {figure} {old[figure]:.4g} before, {row[figure]:.4g} now")
    return out


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__.strip())
    rounds = [json.loads(pathlib.Path(p).read_text()) for p in sys.argv[1:]]
    print(tables(rounds[0]))
    if len(rounds) == 2:
        if rounds[0]["machine"] != rounds[1]["machine"]:
            sys.exit(f"the rounds are of two machines: {rounds[0]['machine']} and {rounds[1]['machine']}")
        lines = worse(*rounds)
        print("\nbecame worse by more than 3 %:\n" + ("\n".join(lines) or "nothing"))
        sys.exit(1 if lines else 0)


if __name__ == "__main__":
    main()
