#!/usr/bin/env python3
"""Vectors of texts a second: Reprise beside transformers (what sentence-transformers runs) and OpenVINO.

  tools/measure_embeddings.py --library build/release/lib/libreprise.so.0 --peers PYTHON MODEL_FOLDER

MODEL_FOLDER is a BERT with mean pooling, as all-MiniLM-L6-v2. PYTHON is an interpreter with torch and transformers, and
with openvino where that is to be measured too; without --peers Reprise is measured alone. All read the same --texts
texts of --tokens tokens in one batch, with the same number of threads, and take turns: each figure is the median of
--rounds. "int8" is W8A8 made while loading. The time of ours includes the tokenizer, that of the peers is the model's alone. Every way's first vector is
held to the first way's (cosine). Prints a table in markdown; nothing else should run.
"""
import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORDS = "the sea is blue and a graph was captured once for all sizes that occur in this big house of ideas".split()


def texts_of(count, tokens):
    """Of words that are one token each; the tokenizer adds two."""
    return [" ".join(WORDS[(i * 7 + j * 3) % len(WORDS)] for j in range(tokens - 2)) for i in range(count)]


def reprise_way(folder, texts, dtype, threads):
    sys.path.insert(0, str(ROOT / "python"))
    from reprise import LLM
    how = {"dtype": "bfloat16", "quantization": "w8a8_int8"} if dtype == "int8" else {"dtype": dtype}
    llm = LLM(model=folder, threads=threads, **how)
    return lambda: [float(x) for x in llm.embed(texts, use_tqdm=False)[0].outputs.embedding]


def pooled_model(folder, texts):
    import torch
    from transformers import AutoModel, AutoTokenizer

    class Pooled(torch.nn.Module):
        """Mean of the rows that are tokens, of length one."""

        def __init__(self):
            super().__init__()
            self.model = AutoModel.from_pretrained(folder, attn_implementation="sdpa").eval()

        def forward(self, input_ids, attention_mask, token_type_ids):
            rows = self.model(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)[0]
            kept = attention_mask[..., None].to(rows.dtype)
            return torch.nn.functional.normalize((rows * kept).sum(1) / kept.sum(1), dim=1)

    return Pooled(), dict(AutoTokenizer.from_pretrained(folder)(texts, return_tensors="pt", padding=True))


def transformers_way(folder, texts, dtype, threads):
    import torch
    torch.set_num_threads(threads)
    model, batch = pooled_model(folder, texts)
    model = model.to(getattr(torch, dtype))

    def run():
        with torch.inference_mode():
            return model(**batch)[0].float().tolist()
    return run


def openvino_way(folder, texts, dtype, threads):
    import openvino
    import torch
    model, batch = pooled_model(folder, texts)
    with torch.inference_mode():
        converted = openvino.convert_model(model, example_input=batch)
    hint = {"float32": "f32", "bfloat16": "bf16"}[dtype]
    compiled = openvino.Core().compile_model(converted, "CPU", {"INFERENCE_NUM_THREADS": threads,
                                                               "INFERENCE_PRECISION_HINT": hint})
    request, arrays = compiled.create_infer_request(), {k: v.numpy() for k, v in batch.items()}
    return lambda: request.infer(arrays)[0][0].tolist()


WAYS = {"reprise": reprise_way, "transformers": transformers_way, "openvino": openvino_way}


def serve(args):
    """A way in a process of its own: a line of milliseconds and the first vector for every line that it reads."""
    run = WAYS[args.worker](args.folder, texts_of(args.texts, args.tokens), args.dtype, args.threads)
    run()
    print("ready", flush=True)
    for _ in sys.stdin:
        begin = time.perf_counter()
        vector = run()
        print(json.dumps({"ms": 1e3 * (time.perf_counter() - begin), "vector": vector}), flush=True)


class Way:
    def __init__(self, args, name, dtype):
        self.name, self.dtype, self.times, self.vector = name, dtype, [], []
        python = sys.executable if name == "reprise" else args.peers
        command = [python, __file__, args.folder, "--worker", name, "--dtype", dtype, "--threads", str(args.threads),
                   "--texts", str(args.texts), "--tokens", str(args.tokens)]
        environment = {**os.environ, "REPRISE_LIBRARY": str(pathlib.Path(args.library).resolve())}
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        line = self.process.stdout.readline()
        while line and line != "ready\n":  # libraries print what they like before
            line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{name} {dtype} ended before it was ready; its error stands above")

    def step(self):
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        found = json.loads(self.process.stdout.readline())
        self.times.append(found["ms"])
        self.vector = found["vector"]


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b)) / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="MODEL_FOLDER")
    parser.add_argument("--library", default="build/release/lib/libreprise.so.0")
    parser.add_argument("--peers", metavar="PYTHON")
    parser.add_argument("--only", default="transformers,openvino", help="peers to measure")
    parser.add_argument("--texts", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=pathlib.Path, help="write the rows here, too")
    parser.add_argument("--worker", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--dtype", default="float32", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        return serve(args)
    names = ["reprise"] + ([n for n in args.only.split(",") if n] if args.peers else [])
    ways = [Way(args, name, dtype) for name in names
            for dtype in ("float32", "bfloat16", "int8")[:3 if name == "reprise" else 2]]
    for _ in range(args.rounds):
        for way in ways:
            way.step()
    print(f"{args.texts} texts of {args.tokens} tokens, {args.threads} threads, medians of {args.rounds}\n")
    print("| | dtype | ms | texts/s | cosine |\n|---|---|---|---|---|")
    rows = []
    for way in ways:
        ms = statistics.median(way.times)
        rows.append({"name": way.name, "dtype": way.dtype, "ms": ms, "texts_s": 1e3 * args.texts / ms,
                     "cosine": cosine(way.vector, ways[0].vector)})
        print("| {name} | {dtype} | {ms:.0f} | {texts_s:.0f} | {cosine:.5f} |".format(**rows[-1]))
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
