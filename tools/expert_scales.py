#!/usr/bin/env python3
"""What experts of W8A8 lose when the scales of their columns are rounded to bf16 (docs/ascend.md).

  tools/expert_scales.py [--hidden 1024 --inner 384 --tokens 12]

No real mixture of experts is at hand, so the weights are random: normal rows, each with a spread of its own, and inputs
without and with outlying columns, as those of real layers have. An expert is gate, up and down, quantised as the engine
does it (a scale per row of a weight and per token), with bf16 between its parts. Printed is the root mean square
distance to the expert in floating point, over its size. Plain Python: a minute.
"""
import argparse
import math
import random
import struct


def bf16(x):
    bits = struct.unpack("<I", struct.pack("<f", x))[0]
    return struct.unpack("<f", struct.pack("<I", bits + 0x7FFF + (bits >> 16 & 1) & 0xFFFF0000))[0]


def quantised(row):
    scale = max(map(abs, row)) / 127
    return [round(v / scale) for v in row], scale


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


def silu(v):
    return v / (1 + math.exp(-v))


class Expert:
    def __init__(self, hidden, inner):
        def rows(count, width):
            spreads = (0.02 * math.exp(random.gauss(0, 0.3)) for _ in range(count))
            return [[random.gauss(0, s) for _ in range(width)] for s in spreads]

        self.gate, self.up, self.down = rows(inner, hidden), rows(inner, hidden), rows(hidden, inner)
        self.int8 = [[quantised(r) for r in m] for m in (self.gate, self.up, self.down)]

    def exact(self, x):
        h = [silu(dot(x, g)) * dot(x, u) for g, u in zip(self.gate, self.up)]
        return [dot(h, r) for r in self.down]

    def of_int8(self, x, stored):
        """`stored` rounds a scale to what the product takes."""
        gate, up, down = self.int8
        q, scale = quantised(x)
        h = [bf16(silu(bf16(dot(q, g) * stored(a) * scale)) * bf16(dot(q, u) * stored(b) * scale))
             for (g, a), (u, b) in zip(gate, up)]
        q, scale = quantised(h)
        return [bf16(dot(q, r) * stored(s) * scale) for r, s in down]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--inner", type=int, default=384)
    parser.add_argument("--tokens", type=int, default=12)
    args = parser.parse_args()
    random.seed(5)
    print("| inputs | scales in fp32 | in bf16 | bf16 / fp32 |\n|---|---|---|---|")
    for name, outlier in (("normal", 1.0), ("1 column in 200 is eight times as large", 8.0)):
        expert = Expert(args.hidden, args.inner)
        spread = [outlier if random.random() < 0.005 else 1.0 for _ in range(args.hidden)]
        size, off = 0.0, [0.0, 0.0]
        for _ in range(args.tokens):
            x = [random.gauss(0, s) for s in spread]
            want = expert.exact(x)
            size += dot(want, want)
            for i, stored in enumerate((lambda s: s, bf16)):
                off[i] += sum((a - b) ** 2 for a, b in zip(want, expert.of_int8(x, stored)))
        fp32, rounded = (math.sqrt(o / size) for o in off)
        print(f"| {name} | {fp32:.4f} | {rounded:.4f} | {rounded / fp32:.4f} |", flush=True)


if __name__ == "__main__":
    main()
