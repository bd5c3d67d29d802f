#!/usr/bin/env python3
"""Cosines and sines of rotary embeddings, by mpmath with 200 bits, for tests of the op rope_table on every device.

Two answers for every position and frequency: `real` of RoFormer's formula (cos and sin of m * base^(-2i/d), arXiv
2104.09864), and `bits` of the angle as transformers has it (frequency, then its product with the position rounded to
fp32), each rounded once to fp32 and multiplied by the scale in fp32. Positions from the window on have the base of
dynamic NTK, as modeling_rope_utils.py (_compute_dynamic_ntk_parameters) computes it for a sequence of their own length.
Writes tests/data/rope_table.json. Needs mpmath alone.
"""

import struct

from mpmath import cos, mp, mpf, sin, workprec

from common import DATA, write_json

mp.prec = 200
POSITIONS = [0, 1, 17, 1000, 40959, 131071]


def f32(x):
    """To the nearest number with 24 bits: none of these is subnormal."""
    with workprec(24):
        return +mpf(x)


def bits(x):
    return struct.unpack("<I", struct.pack("<f", float(x)))[0]


def case(dim, base, scale=1.0, ntk_factor=0.0, window=0):
    rows = []
    for p in POSITIONS:
        own = mpf(base)
        if window and p + 1 > window:
            own *= (mpf(ntk_factor) * (p + 1) / window - (mpf(ntk_factor) - 1)) ** (mpf(dim) / (dim - 2))
        row = {"bits": [], "real": []}
        for function in (cos, sin):
            for i in range(dim // 2):
                freq = own ** (-mpf(2 * i) / dim)
                row["bits"].append(bits(f32(f32(function(f32(mpf(p) * f32(freq)))) * f32(scale))))
                row["real"].append(float(function(p * freq) * f32(scale)))
        rows.append(row)
    return {
        "dim": dim,
        "inv_freq": [float(f32(mpf(base) ** (-mpf(2 * i) / dim))) for i in range(dim // 2)],
        "scale": float(f32(scale)),
        "ntk_base": base,
        "ntk_factor": ntk_factor,
        "ntk_window": window,
        "rows": rows,
    }


if __name__ == "__main__":
    write_json(DATA / "rope_table.json", {
        "positions": POSITIONS,
        "cases": [case(64, 10000.0), case(32, 1000000.0, scale=1.2079441541679836),
                  case(16, 10000.0, ntk_factor=4.0, window=512)],
    }, indent=None)
