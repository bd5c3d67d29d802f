#!/usr/bin/env python3
"""How fast a vision tower is: the share of the machine's peak that a tower of Qwen3-VL-4B's sizes reaches.

  tools/measure_tower.py [--binary build/release/bin/reprise] [--dtype bfloat16] [--side 512] [--rounds 5]

A server with random weights answers one token to a picture of side x side pixels, and to as many text tokens as the
picture takes. The text model has its first three layers alone. The difference is the time of the picture: decoding it,
cutting it into patches, and the tower. Operations are those of the tower's products and of its attention, two a
multiply-add; the peak is what `reprise bench ops` measures on the same threads. Each figure is the median of --rounds
pictures of different content, so none is in the prefix cache. Nothing else should run.
"""
import argparse
import base64
import json
import pathlib
import random
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import zlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
# config.json of Qwen/Qwen3-VL-4B-Instruct.
TOWER = {"depth": 24, "hidden_size": 1024, "intermediate_size": 4096, "num_heads": 16, "patch_size": 16,
         "out_hidden_size": 2560, "num_position_embeddings": 2304, "deepstack_visual_indexes": [5, 11, 17]}
TEXT = {"hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 3, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 8192}
MERGE = 2


def make_folder(folder):
    """The tiny checkpoint of the tests with those sizes, without its weights."""
    tiny = ROOT / "tests/data/vision/qwen3_vl"
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tiny / name, folder)
    config = json.loads((tiny / "config.json").read_text())
    config["vision_config"].update(TOWER)
    config["text_config"].update(TEXT)
    config["text_config"]["rope_parameters"]["mrope_section"] = [24, 20, 20]
    (folder / "config.json").write_text(json.dumps(config))
    processor = json.loads((tiny / "preprocessor_config.json").read_text())
    processor.update(patch_size=TOWER["patch_size"], size={"shortest_edge": 1024, "longest_edge": 1 << 24})
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))


def png(side, seed):
    """Noise as a data URL."""
    rows = random.Random(seed)
    raw = b"".join(b"\0" + rows.randbytes(3 * side) for _ in range(side))

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    image = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(raw, 1)) + chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(image).decode()


def operations(patches):
    """Of the tower for one picture: products, attention of all patches to all, merger and three deepstack mergers."""
    hidden, inner, out = TOWER["hidden_size"], TOWER["intermediate_size"], TOWER["out_hidden_size"]
    first = 3 * 2 * TOWER["patch_size"] ** 2 * hidden
    layer = 4 * hidden * hidden + 2 * hidden * inner + 2 * patches * hidden
    merged = hidden * MERGE * MERGE
    mergers = (1 + len(TOWER["deepstack_visual_indexes"])) * (merged * merged + merged * out) / (MERGE * MERGE)
    return 2 * patches * (first + TOWER["depth"] * layer + mergers)


class Server:
    def __init__(self, binary, folder, dtype, threads):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.process = subprocess.Popen(
            [binary, "serve", "--model-path", folder, "--load-format", "dummy", "--dtype", dtype,
             "--threads", str(threads), "--port", str(self.port), "--max-running-requests", "1",
             "--max-total-tokens", "16384", "--served-model-name", "tower"],
            stderr=subprocess.PIPE, text=True)
        for _ in range(600):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/ready", timeout=5)
                return
            except (urllib.error.URLError, ConnectionError):
                if self.process.poll() is not None:
                    sys.exit(f"the server ended: {self.process.stderr.read()[-2000:]}")
                time.sleep(0.2)
        sys.exit("the server did not become ready")

    def ask(self, content):
        """Seconds to the first token, and the tokens of the prompt."""
        body = json.dumps({"model": "tower", "max_tokens": 1, "temperature": 0,
                           "messages": [{"role": "user", "content": content}]}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/v1/chat/completions", body,
                                         {"Content-Type": "application/json"})
        begin = time.perf_counter()
        with urllib.request.urlopen(request, timeout=600) as answer:
            used = json.load(answer)["usage"]
        return time.perf_counter() - begin, used["prompt_tokens"]

    def stop(self):
        self.process.terminate()
        self.process.communicate(timeout=60)


def peak_gflops(binary, dtype, threads):
    """Of multiply-adds in the dtype: in bf16 those of the instructions for it, where there are any."""
    done = subprocess.run([binary, "bench", "ops", "--json", "--filter", "silu_mul", "--tokens", "1", "--repeat", "1",
                           "--threads", str(threads)], capture_output=True, text=True, check=True)
    limits = json.loads(done.stdout)["limits"]
    names = ["bf16_gflops", "fp32_gflops"] if dtype == "bfloat16" else ["fp32_gflops"]
    return next((limits[n], n) for n in names if limits.get(n))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default=ROOT / "build/release/bin/reprise")
    parser.add_argument("--dtype", default="bfloat16", choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--side", type=int, default=512, help="pixels; a multiple of 32")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=pathlib.Path, help="a file for the figures")
    args = parser.parse_args()
    if args.side % (TOWER["patch_size"] * MERGE) or args.side <= 0:
        parser.error(f"--side {args.side} is no multiple of {TOWER['patch_size'] * MERGE}")
    patches = (args.side // TOWER["patch_size"]) ** 2
    peak, name = peak_gflops(args.binary, args.dtype, args.threads)
    with tempfile.TemporaryDirectory() as folder:
        make_folder(pathlib.Path(folder))
        server = Server(args.binary, folder, args.dtype, args.threads)
        try:
            pictures, texts = [], []
            for i in range(args.rounds + 1):
                picture, tokens = server.ask([{"type": "image_url", "image_url": {"url": png(args.side, i)}}])
                words = "".join(random.Random(i).choice("abcdefgh") for _ in range(tokens))
                text, _ = server.ask(words)
                if i:  # the first ones warm up
                    pictures.append(picture)
                    texts.append(text)
        finally:
            server.stop()
    seconds = statistics.median(pictures) - statistics.median(texts)
    work = operations(patches)
    if args.json:
        args.json.write_text(json.dumps({"dtype": args.dtype, "side": args.side, "patches": patches, "seconds": seconds,
                                         "operations": work, "peak_gflops": peak}), encoding="utf-8")
    print("| dtype | pixels | patches | ms of the picture | GFLOP | GFLOP/s | share of the peak |")
    print("|---|---|---|---|---|---|---|")
    print(f"| {args.dtype} | {args.side} x {args.side} | {patches} | {seconds * 1e3:.0f} | {work / 1e9:.0f} | "
          f"{work / 1e9 / seconds:.0f} | {100 * work / 1e9 / seconds / peak:.0f} % of {peak:.0f} ({name}) |")


if __name__ == "__main__":
    main()
