#!/usr/bin/env python3
"""Ids and round trips of HF tokenizers over 21,000 strings for SmolLM2, Qwen3, DeepSeek-V3 and MiniLM (BERT).

Writes tests/data/tokenizer/*; the formats are in the README there.
"""

import gzip
import json
import struct
import sys
import unicodedata

from common import DATA, FULL, fnv1a64, write_gz, write_json
from smollm2 import SmolLM2
from strings import strings

import tokenizers
from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers

OUT = DATA / "tokenizer"


def published(name):
    with gzip.open(DATA / "tokenizer" / "published" / f"{name}.tokenizer.json.gz", "rt", encoding="utf-8") as f:
        return Tokenizer.from_str(f.read())


def ranges(points):
    out = []
    for c in points:
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def unicode_classes():
    """What the regex engine of HF tokenizers takes for a letter, number, ... (so which Unicode version it knows)."""
    everything = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
    classes = {}
    for name, pattern in (("L", r"\p{L}"), ("M", r"\p{M}"), ("N", r"\p{N}"), ("P", r"\p{P}"), ("S", r"\p{S}"), ("whitespace", r"\s")):
        split = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
        found = []
        for i in range(0, len(everything), 4096):
            chunk = "".join(map(chr, everything[i : i + 4096]))
            found += [ord(c) for piece, _ in split.pre_tokenize_str(chunk) for c in piece]
        classes[name] = ranges(found)
    digits, found = pre_tokenizers.Digits(individual_digits=True), []
    for c in everything:
        if len(digits.pre_tokenize_str(f"a{chr(c)}a")) == 3:
            found.append(c)
    classes["digits_pre_tokenizer"] = ranges(found)
    # The normaliser's data are older: which of the marks and decompositions of Python's Unicode it does not know.
    nfc, nfd = normalizers.NFC(), normalizers.NFD()
    unknown = []
    for c in everything:
        if unicodedata.combining(chr(c)) == 0:
            continue
        probes = [f"x{chr(c)}{p}" for p in "\u0334\u0323\u0301"] + [f"x{p}{chr(c)}" for p in "\u0334\u0323\u0301"]
        if any(nfd.normalize_str(s) != unicodedata.normalize("NFD", s) for s in probes):
            unknown.append(c)
    classes["nfc"] = {
        "compared_with_unicode": unicodedata.unidata_version,
        "no_combining_class": ranges(unknown),
        "no_decomposition": [c for c in everything if nfd.normalize_str(chr(c)) != unicodedata.normalize("NFD", chr(c))],
        "differs_alone": [c for c in everything if nfc.normalize_str(chr(c)) != unicodedata.normalize("NFC", chr(c))],
    }
    return classes


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    texts = strings()
    assert len(texts) >= 20000 and len(set(texts)) == len(texts)
    write_gz(OUT / "strings.jsonl.gz", "".join(json.dumps(t, ensure_ascii=False) + "\n" for t in texts).encode())
    index = {"strings": len(texts), "full_ids": FULL, "made_with": {"tokenizers": tokenizers.__version__}, "tokenizers": {}}
    for name, tok in (("smollm2", SmolLM2().tokenizer()), ("qwen3", published("qwen3")), ("deepseek_v3", published("deepseek_v3")), ("minilm", published("minilm"))):
        tok.no_padding()
        tok.no_truncation()
        hashes, counts, decodes, full = [], [], [], []
        same = 0
        for i, text in enumerate(texts):
            ids = tok.encode(text, add_special_tokens=False).ids
            back = tok.decode(ids, skip_special_tokens=False)
            hashes.append(fnv1a64(struct.pack(f"<{len(ids)}i", *ids)))
            counts.append(len(ids))
            decodes.append(0 if back == text else fnv1a64(back.encode()))
            same += back == text
            if i < FULL:
                full.append(ids)
        n = len(texts)
        write_gz(OUT / f"{name}.golden.gz", b"RTOKGLD1" + struct.pack("<II", n, 0) + struct.pack(f"<{n}Q", *hashes) + struct.pack(f"<{n}I", *counts) + struct.pack(f"<{n}Q", *decodes))
        with open(OUT / f"{name}.first_ids.json", "w") as f:
            f.write("[\n" + ",\n".join(json.dumps(ids, separators=(",", ":")) for ids in full) + "\n]\n")
        index["tokenizers"][name] = {"ids_total": sum(counts), "longest": max(counts), "decode_equals_text": same}
        print(name, index["tokenizers"][name], flush=True)
    write_json(OUT / "index.json", index)
    classes = unicode_classes()
    write_json(OUT / "unicode_classes.json", classes, indent=None)
    print({k: len(v) for k, v in classes.items()})


if __name__ == "__main__":
    sys.exit(main())
