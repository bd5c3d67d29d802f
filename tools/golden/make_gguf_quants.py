#!/usr/bin/env python3
"""Small GGUF files with one tensor of every supported type, and the float32 values the gguf package reads from them.

Writes tests/data/gguf/{quants_v3.gguf, quants_v2.gguf, quants_expected.safetensors, int8_rows.json}; see the README
there.
"""

import json
import struct

from common import DATA

import gguf
import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as T
from safetensors.numpy import save_file

OUT = DATA / "gguf"
ROWS, COLS = 2, 512

# Where the f16 scales of a block lie (byte offsets); every other byte of a block may hold anything.
SCALES = {
    T.Q8_0: [0], T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2],
    T.Q2_K: [80, 82], T.Q3_K: [108], T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208],
    T.IQ4_NL: [0], T.IQ4_XS: [0],
}
# f16 bits: 0, -0, smallest and largest subnormal, smallest normal, largest, and negatives of some.
EDGES = [0x0000, 0x8000, 0x0001, 0x03FF, 0x0400, 0x7BFF, 0x8001, 0xFBFF, 0x3C00, 0xBC00]


def plain(kind, rng):
    n = ROWS * COLS
    if kind == T.F32:
        bits = rng.standard_normal(n, dtype=np.float32).view(np.uint32)
        bits[:8] = [0, 0x80000000, 1, 0x007FFFFF, 0x00800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x3F800001]
        return bits.view(np.uint8)
    bits = rng.integers(0, 1 << 16, n, dtype=np.uint16)  # every bit pattern but infinities and NaN
    exponent = 0x7C00 if kind == T.F16 else 0x7F80
    bits = np.where((bits & exponent) == exponent, bits & np.uint16(~exponent & 0xFFFF), bits)
    return bits.view(np.uint8)


def blocks(kind, rng):
    per_block, size = GGML_QUANT_SIZES[kind]
    count = ROWS * COLS // per_block
    data = rng.integers(0, 256, (count, size), dtype=np.uint8)
    if size >= 8:
        body = [i for i in range(size) if all(i not in (o, o + 1) for o in SCALES[kind])]
        data[0, body] = 0x00
        data[1, body] = 0xFF
    for o in SCALES[kind]:
        d = (rng.standard_normal(count) * 10.0 ** rng.uniform(-4, 0, count)).astype(np.float16)
        data[:, o : o + 2] = d.view(np.uint8).reshape(count, 2)
    spare = range(2, count) if count > 12 else range(2, count, 2)
    for i, b in zip(spare, np.roll(EDGES, SCALES[kind][0] + int(kind))):
        for o in SCALES[kind]:
            data[i, o : o + 2] = [int(b) & 0xFF, int(b) >> 8]
    return data.reshape(-1)


def string(s):
    raw = s.encode()
    return struct.pack("<Q", len(raw)) + raw


METADATA = [
    ("general.architecture", 8, "quants"), ("general.alignment", 4, None), ("test.uint8", 0, 200), ("test.int8", 1, -100),
    ("test.uint16", 2, 60000), ("test.int16", 3, -30000), ("test.uint32", 4, 4000000000), ("test.int32", 5, -2000000000),
    ("test.float32", 6, 0.15625), ("test.bool", 7, True), ("test.string", 8, "häß 日本 🙂"), ("test.uint64", 10, 1 << 63),
    ("test.int64", 11, -(1 << 62)), ("test.float64", 12, 1e-300), ("test.empty_string", 8, ""),
    ("test.array.string", (9, 8), ["a", "", "ü"]), ("test.array.int32", (9, 5), [1, -2, 3]), ("test.array.float32", (9, 6), [0.5, -0.25]),
    ("test.array.bool", (9, 7), [True, False]), ("test.array.empty", (9, 4), []),
]
FORMAT = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


def value(kind, v):
    if isinstance(kind, tuple):
        return struct.pack("<IQ", kind[1], len(v)) + b"".join(value(kind[1], x) for x in v)
    return string(v) if kind == 8 else struct.pack("<" + FORMAT[kind], v)


def write(path, version, alignment, tensors):
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(METADATA))
    for key, kind, v in METADATA:
        if key == "general.alignment":
            v = alignment
        head += string(key) + struct.pack("<I", kind[0] if isinstance(kind, tuple) else kind) + value(kind, v)
    data = b""
    for name, shape, kind, raw in tensors:
        data += b"\0" * (-len(data) % alignment)
        head += string(name) + struct.pack("<I", len(shape))
        head += b"".join(struct.pack("<Q", d) for d in reversed(shape))  # fastest dimension first
        head += struct.pack("<IQ", int(kind), len(data))
        data += raw.tobytes()
    data += b"\0" * (-len(data) % alignment)
    path.write_bytes(head + b"\0" * (-len(head) % alignment) + data)


def write_int8_rows():
    """A row of float32 and the integers of its q8_0 blocks: what the package rounds activations to."""
    rng = np.random.default_rng(81)
    x = (rng.standard_normal(512) * np.repeat(10.0 ** rng.uniform(-6, 3, 16), 32)).astype(np.float32)
    x[32:64] = 0
    blocks = gguf.quantize(x.reshape(1, -1), T.Q8_0).reshape(-1, 34)
    integers = np.ascontiguousarray(blocks[:, 2:]).view(np.int8).reshape(-1)
    out = {"gguf": "0.19.0", "x": [float(v) for v in x], "integers": [int(v) for v in integers]}
    (OUT / "int8_rows.json").write_text(json.dumps(out) + "\n")


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    rng = np.random.Generator(np.random.PCG64(77))
    tensors = [("odd.f32", (7,), T.F32, np.arange(7, dtype=np.float32).view(np.uint8))]
    for kind in [T.F32, T.F16, T.BF16]:
        tensors.append((f"t.{kind.name}", (ROWS, COLS), kind, plain(kind, rng)))
    for kind in SCALES:
        tensors.append((f"t.{kind.name}", (ROWS, COLS), kind, blocks(kind, rng)))
    tensors.append(("cube.f16", (2, 3, 5), T.F16, np.arange(30, dtype=np.float16).view(np.uint8)))
    expected = None
    for version, alignment in ((3, 32), (2, 64)):
        path = OUT / f"quants_v{version}.gguf"
        write(path, version, alignment, tensors)
        reader = gguf.GGUFReader(path)
        got = {}
        for (name, shape, kind, _), t in zip(tensors, reader.tensors, strict=True):
            assert t.name == name and t.tensor_type == kind
            v = np.ascontiguousarray(gguf.dequantize(np.array(t.data), kind), dtype=np.float32).reshape(shape)
            assert np.isfinite(v).all(), name
            got[name] = v
        if expected is not None:
            assert all(np.array_equal(got[n].view(np.uint32), expected[n].view(np.uint32)) for n in got)
        expected = got
        for key, kind, v in METADATA:
            if key not in ("general.alignment", "test.array.empty"):
                read = reader.fields[key].contents()
                assert read == v or (isinstance(v, list) and list(read) == v), (key, read, v)
    save_file(expected, OUT / "quants_expected.safetensors", metadata={"gguf": "0.19.0"})
    write_int8_rows()
    print({p.name: p.stat().st_size for p in sorted(OUT.iterdir())})


if __name__ == "__main__":
    main()
