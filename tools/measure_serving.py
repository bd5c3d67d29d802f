#!/usr/bin/env python3
"""The server under load: beside llama-server, beside its own batch, over graph modes. One command, tables as Markdown.

  tools/measure_serving.py --out build/serving                everything; it says first how long that takes
  tools/measure_serving.py --quick                            the same in small, to see that it works
  tools/measure_serving.py --only peers --shapes Qwen3-0.6B=$SHAPES/qwen3-0.6b

Parts: `peers` loads Reprise and llama.cpp's llama-server (tools/peers/llama_cpp.sh) in turn with `reprise bench
serving`: the same prompts as token ids, two threads, --max-concurrency 32; bf16 against a bf16 GGUF and W8A8 against
Q8_0. Shapes have random weights; SmolLM2 has its own, on both sides from the same file, with the perplexity of each form.
Loads are measured in the steady state: the pool of KV pages holds one and a half times what runs together, and the
warm-up has touched all of it, as a server that has worked for a while has (memory given for the first time costs up to an
eighth of the time). `batch` compares with `bench one-batch` at the same batch. `gsm8k` asks a server the questions of GSM8K at several
concurrencies in every graph mode, with and without passes, and compares every answer. `modes` loads it in the same modes.

Nothing else should run. Writes serving.md, serving.json and serving.svg to --out.
"""
import argparse
import json
import os
import pathlib
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
PAGE = 128  # tokens of a KV page
BF16 = ["--dtype", "bfloat16", "--quantization", "none"]
W8A8 = ["--dtype", "bfloat16", "--quantization", "w8a8_int8"]
FORMS = {"bf16": (BF16, "bf16"), "w8a8": (W8A8, "Q8_0")}  # ours: flags; theirs: format of the file
MODES = [  # name, flags
    ("eager", ["--graph", "off"]),
    ("whole", ["--graph-decode", "whole"]),
    ("piecewise", ["--graph-decode", "piecewise", "--graph-prefill", "piecewise"]),
]
PASSES = [("on", []), ("off", ["--passes", "none"])]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """A process that answers /v1/models when it is ready; ends with the block."""

    def __init__(self, command, port, log):
        self.log = open(log, "w", encoding="utf-8")
        self.command = [str(c) for c in [*command, "--port", port]]
        self.url = f"http://127.0.0.1:{port}"

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdout=self.log, stderr=self.log)
        deadline = time.monotonic() + 600
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                break
            try:
                with urllib.request.urlopen(self.url + "/v1/models", timeout=5) as answer:
                    if answer.status == 200:
                        return self
            except OSError:
                time.sleep(0.1)
        self.__exit__()
        sys.exit(f"{' '.join(self.command)}\nis not ready; its log: {self.log.name}")

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.log.close()


class Bench:
    def __init__(self, args, folder):
        self.args = args
        self.folder = folder
        self.logs = 0

    def run(self, *command):
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(map(str, command))}\n{done.stderr[-2000:]}")
        return done.stdout

    def say(self, what):
        print(f"  {what}", file=sys.stderr, flush=True)

    def ours(self, model, *flags):
        return self.start([self.args.binary, "serve", "--threads", self.args.threads, "--log-level", "warning",
                           "--model-path", model, *flags])

    def theirs(self, file, slots):
        context = slots * (self.args.input_len + self.args.output_len + 32)
        return self.start([self.args.peer / "llama-server", "-m", file, "-t", self.args.threads, "-tb",
                           self.args.threads, "-np", slots, "-c", context, "--no-ui"])

    def start(self, command):
        self.logs += 1
        self.server = Server(command, free_port(), self.folder / f"server{self.logs}.log")
        return self.server

    def forget(self):
        """Ours: the prompts of the run before must not be found in the prefix cache."""
        urllib.request.urlopen(urllib.request.Request(self.server.url + "/flush_cache", method="POST")).close()

    def steady(self, concurrency):
        """Flags of ours for a pool that such a load has soon touched as a whole."""
        pages = concurrency * -(-(self.args.input_len + self.args.output_len) // PAGE)
        return ["--max-total-tokens", pages * 3 // 2 * PAGE]

    def load(self, concurrency, prompts, seed=1, *more):
        most = max(numbers(str(concurrency)))
        report = json.loads(self.run(
            self.args.binary, "bench", "serving", "--base-url", self.server.url, "--json", "--prompt-form",
            "ids", "--random-input-len", self.args.input_len, "--random-output-len", self.args.output_len,
            "--ignore-eos", "--seed", seed, "--num-prompts", prompts, "--max-concurrency", concurrency,
            "--warmup-requests", most * 3 // 2, *more))
        for row in report["rows"]:
            if row["failed"]:
                sys.exit(f"{row['failed']} requests failed: {row['errors']}")
            want = row["completed"] * self.args.output_len
            if row["total_output_tokens"] != want:
                sys.exit(f"{row['total_output_tokens']} tokens came and {want} were asked for")
        return report["rows"]


def median_of(rows, key):
    return statistics.median(r[key] for r in rows)


def models(bench):
    """Name, what Reprise loads, flags, what the peer's file is made from."""
    out = [(name, folder, ["--load-format", "dummy"], folder) for name, folder in bench.args.shapes]
    if not bench.args.no_smollm2:
        cache = pathlib.Path(os.environ.get("REPRISE_CACHE", pathlib.Path.home() / ".cache/reprise"))
        files = sorted((cache / "smollm2").glob("*.gguf"))
        if not files:
            sys.exit(f"no GGUF file in {cache / 'smollm2'}: `reprise pull smollm2` fetches it, --no-smollm2 does without")
        out.append(("SmolLM2", "smollm2", [], files[0]))
    return out


def perplexity(bench, model, *flags):
    out = json.loads(bench.run(bench.args.binary, "eval", "perplexity", "--json", "--log-level", "warning", "--text-file",
                               bench.args.data, "--max-windows", bench.args.windows, "--model-path", model, *flags))
    return out["perplexity"]


def part_peers(bench):
    args, out = bench.args, []
    for name, model, flags, source in models(bench):
        for form, (form_flags, peer_format) in FORMS.items():
            file = bench.run(HERE / "peers/llama_cpp.sh", "model", source, peer_format).strip()
            rows = {"ours": [], "peer": []}
            for i in range(args.rounds):
                bench.say(f"{name} {form}: round {i + 1} of {args.rounds}")
                with bench.ours(model, *flags, *form_flags, *bench.steady(args.concurrency)):
                    rows["ours"] += bench.load(args.concurrency, args.prompts, i + 1)
                with bench.theirs(file, args.concurrency):
                    rows["peer"] += bench.load(args.concurrency, args.prompts, i + 1)
            entry = {"model": name, "form": form, "peer_form": peer_format, "rows": rows}
            if not flags:
                entry["perplexity"] = [perplexity(bench, model, *form_flags), perplexity(bench, file, "--dtype",
                                                                                          "bfloat16")]
            out.append(entry)
    return out


def show_peers(args, found):
    lines = [f"### Beside llama-server ({args.peer_version})", "",
             f"{args.prompts} requests of {args.input_len} random tokens and {args.output_len} generated ones, "
             f"{args.concurrency} at a time (`-np {args.concurrency}`), {args.threads} threads, medians of {args.rounds} "
             "rounds in turn, every page touched before. Owed: 2.5 x the throughput, TTFT p99 no worse.", "",
             "| | output tok/s | llama-server | ratio | TTFT p99 ms | llama-server | TPOT median ms | llama-server | "
             "perplexity, both |", "|---|---|---|---|---|---|---|---|---|"]
    for e in found:
        def cell(side, key):
            return median_of(e["rows"][side], key)
        ratio = cell("ours", "output_throughput") / cell("peer", "output_throughput")
        quality = " / ".join(f"{p:.3f}" for p in e.get("perplexity", []))
        lines.append(f"| {e['model']}, {e['form']} and {e['peer_form']} | {cell('ours', 'output_throughput'):.1f} | "
                     f"{cell('peer', 'output_throughput'):.1f} | {ratio:.2f} x | {cell('ours', 'p99_ttft_ms'):.0f} | "
                     f"{cell('peer', 'p99_ttft_ms'):.0f} | {cell('ours', 'median_tpot_ms'):.1f} | "
                     f"{cell('peer', 'median_tpot_ms'):.1f} | {quality} |")
    return lines


def part_batch(bench):
    """A batch alone, the server, a batch alone again and so on: each load is held against the batches on both sides of it,
    since the machine's clock drifts by more within minutes than the two differ."""
    args, out = bench.args, []
    for name, model, flags, _ in models(bench):
        for form, (form_flags, _) in FORMS.items():
            def alone():
                report = json.loads(bench.run(
                    args.binary, "bench", "one-batch", "--json", "--threads", args.threads, "--model-path", model, *flags,
                    *form_flags, "--batch-size", args.concurrency, "--input-len", args.input_len, "--output-len",
                    args.output_len, "--repeat", 1, "--log-level", "warning"))
                return report["rows"][0]

            # What the batch would take for the same work: all prompts read, all tokens but the first decoded.
            def batch_s(row, n):
                return n * args.input_len / row["prefill_tok_s"] + n * (args.output_len - 1) / row["decode_tok_s"]

            rounds = []
            bench.say(f"{name} {form}: one batch")
            before = alone()
            for i in range(args.rounds):
                bench.say(f"{name} {form}: round {i + 1} of {args.rounds}, server and one batch")
                with bench.ours(model, *flags, *form_flags, *bench.steady(args.concurrency)):
                    served = bench.load(args.concurrency, args.prompts, i + 1)[0]
                after = alone()
                n = served["completed"]
                seconds = statistics.mean(batch_s(row, n) for row in (before, after))
                rounds.append({"one_batch_tok_s": n * args.output_len / seconds,
                               "served_tok_s": served["output_throughput"], "share": seconds / served["duration"],
                               "decode_tok_s": statistics.mean(row["decode_tok_s"] for row in (before, after)),
                               "prefill_tok_s": statistics.mean(row["prefill_tok_s"] for row in (before, after)),
                               "median_tpot_ms": served["median_tpot_ms"]})
                before = after
            out.append({"model": name, "form": form, "rounds": rounds})
    return out


def show_batch(args, found):
    lines = [f"### Beside its own batch of {args.concurrency}", "",
             f"`bench one-batch` at the same batch and lengths: its time for reading {args.prompts} prompts and decoding "
             f"their answers, over the server's for the same requests. Owed: 90 %.", "",
             "| | one batch: prefill, decode tok/s | output tok/s of both | served | share |", "|---|---|---|---|---|"]
    for e in found:
        r = e["rounds"]
        lines.append(f"| {e['model']}, {e['form']} | {median_of(r, 'prefill_tok_s'):.0f}, {median_of(r, 'decode_tok_s'):.1f} "
                     f"| {median_of(r, 'one_batch_tok_s'):.1f} | {median_of(r, 'served_tok_s'):.1f} | "
                     f"{100 * median_of(r, 'share'):.0f} % |")
    return lines


def every_mode(bench, most, *flags):
    for mode, mode_flags in MODES:
        for passes, pass_flags in PASSES:
            yield mode, passes, bench.ours("smollm2", *mode_flags, *pass_flags, "--max-running-requests", most,
                                            *flags)


def part_gsm8k(bench):
    args, out, first, differing = bench.args, [], None, 0
    with tempfile.TemporaryDirectory() as folder:
        answers = pathlib.Path(folder) / "answers.jsonl"
        for mode, passes, server in every_mode(bench, max(args.parallel)):
            with server:
                for parallel in args.parallel:
                    bench.say(f"gsm8k: {mode}, passes {passes}, {parallel} at a time")
                    bench.forget()
                    score = json.loads(bench.run(
                        args.binary, "eval", "gsm8k", "--json", "--base-url", server.url, "--parallel", parallel,
                        "--data-path", args.data, "--num-questions", args.questions, "--max-new-tokens",
                        args.answer_len, "--answers-file", answers))
                    said = answers.read_text(encoding="utf-8").splitlines()
                    first = first or said
                    other = sum(a != b for a, b in zip(first, said)) + abs(len(first) - len(said))
                    differing += other
                    out.append({"mode": mode, "passes": passes, "parallel": parallel, "differing": other, **score})
    if differing:
        print(f"{differing} answers differ between modes or concurrencies", file=sys.stderr)
    return out


def show_gsm8k(args, found):
    differing = sum(r["differing"] for r in found)
    lines = ["### GSM8K with SmolLM2", "",
             f"{found[0]['questions']} questions behind five solved ones, at most {args.answer_len} tokens, greedy, through "
             f"`/v1/completions`, each run with an empty prefix cache. Answers that differ from those of the first row: {differing}.", "",
             "| graph | passes | concurrency | accuracy | invalid | latency s | output tok/s | questions/s |",
             "|---|---|---|---|---|---|---|---|"]
    for r in found:
        lines.append(f"| {r['mode']} | {r['passes']} | {r['parallel']} | {r['accuracy']:.3f} | {r['invalid']:.3f} | "
                     f"{r['latency_s']:.1f} | {r['output_tok_s']:.1f} | {r['questions'] / r['latency_s']:.2f} |")
    return lines


def part_modes(bench):
    args, out = bench.args, []
    loads = ",".join(map(str, args.loads))
    for mode, passes, server in every_mode(bench, max(args.loads), *bench.steady(max(args.loads))):
        bench.say(f"modes: {mode}, passes {passes}")
        more = ["--plot", args.out / "serving.svg"] if (mode, passes) == ("whole", "on") else []
        with server:
            for row in bench.load(loads, args.mode_prompts, 1, *more):
                out.append({"mode": mode, "passes": passes, **row})
    return out


def show_modes(args, found):
    lines = ["### Under load in every mode, SmolLM2", "",
             f"{args.mode_prompts} requests of {args.input_len} random tokens and {args.output_len} generated ones.", "",
             "| graph | passes | concurrency | total tok/s | output tok/s | median TTFT ms | median ITL ms | median TPOT ms |",
             "|---|---|---|---|---|---|---|---|"]
    for r in found:
        lines.append(f"| {r['mode']} | {r['passes']} | {r['max_concurrency']} | {r['total_token_throughput']:.1f} | "
                     f"{r['output_throughput']:.1f} | {r['median_ttft_ms']:.0f} | {r['median_itl_ms']:.1f} | "
                     f"{r['median_tpot_ms']:.1f} |")
    return lines


PARTS = {  # what it runs, what it shows, minutes on two quiet cores in full and with --quick
    "peers": (part_peers, show_peers, 35, 3),
    "batch": (part_batch, show_batch, 16, 2),
    "gsm8k": (part_gsm8k, show_gsm8k, 25, 2),
    "modes": (part_modes, show_modes, 18, 1),
}


def named(text):
    name, _, folder = text.partition("=")
    if not folder:
        raise argparse.ArgumentTypeError(f'"{text}" is not of the form NAME=MODEL_FOLDER')
    return name, folder


def numbers(text):
    return [int(n) for n in text.split(",")]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = pathlib.Path(os.environ.get("REPRISE_TEST_DATA", HERE.parent.parent / "shared/data"))
    parser.add_argument("--binary", default=HERE.parent / "build/release/bin/reprise")
    parser.add_argument("--out", default="build/serving", type=pathlib.Path)
    parser.add_argument("--only", default=",".join(PARTS), help=", ".join(PARTS))
    parser.add_argument("--quick", action="store_true", help="few requests and questions, one round")
    parser.add_argument("--shapes", nargs="*", type=named, default=[("Qwen3-0.6B", str(data / "shapes/qwen3-0.6b"))],
                        metavar="NAME=MODEL_FOLDER")
    parser.add_argument("--no-smollm2", action="store_true")
    parser.add_argument("--data", default=data / "gsm8k_test.jsonl", help="JSON lines of GSM8K")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--prompts", type=int, help="requests of a load; default: three for each in flight")
    parser.add_argument("--input-len", type=int)
    parser.add_argument("--output-len", type=int)
    parser.add_argument("--parallel", type=numbers, default=[16, 32, 64, 128])
    parser.add_argument("--loads", type=numbers, default=[32, 64, 128])
    parser.add_argument("--questions", type=int)
    parser.add_argument("--answer-len", type=int)
    args = parser.parse_args()
    args.only = args.only.split(",")
    for part in args.only:
        if part not in PARTS:
            parser.error(f'--only "{part}"; allowed: {", ".join(PARTS)}')
    full = {"rounds": 3, "prompts": 3 * args.concurrency, "input_len": 128, "output_len": 64, "questions": 256,
            "answer_len": 160, "windows": 16, "mode_prompts": 256}
    quick = {"rounds": 1, "prompts": args.concurrency, "input_len": 32, "output_len": 8, "questions": 8,
             "answer_len": 8, "windows": 1, "mode_prompts": 128}
    for key, value in (quick if args.quick else full).items():
        if getattr(args, key, None) is None:
            setattr(args, key, value)
    return args


def machine(bench):
    limits = json.loads(bench.run(bench.args.binary, "doctor", "--json"))
    return {"cpu": limits["cpu"], "isa": limits["isa"][-1], "read_GBps_all": limits["read_GBps_all"]}


def main():
    args = arguments()
    minutes = sum(PARTS[p][3 if args.quick else 2] for p in args.only)
    print(f"about {minutes} minutes on two quiet cores; begun {time.strftime('%H:%M')}", file=sys.stderr, flush=True)
    args.out.mkdir(parents=True, exist_ok=True)
    bench = Bench(args, args.out)
    args.peer_version = ""
    if "peers" in args.only:
        args.peer = pathlib.Path(bench.run(HERE / "peers/llama_cpp.sh", "server").strip())
        told = subprocess.run([args.peer / "llama-server", "--version"], capture_output=True, text=True)
        args.peer_version = re.sub(r"\s+", " ", (told.stderr + told.stdout).strip().splitlines()[0])
    before = machine(bench)
    report, lines = {"before": before, "parts": {}}, []
    for part in args.only:
        measure, show = PARTS[part][:2]
        found = measure(bench)
        report["parts"][part] = found
        table = show(args, found)
        lines += [*table, ""]
        print("\n".join(table), "\n", flush=True)
        # After each part, so that an interrupted run keeps what it has.
        (args.out / "serving.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        (args.out / "serving.md").write_text("\n".join(lines), encoding="utf-8")
    report["after"] = machine(bench)
    note = (f"{before['cpu']}, {before['isa']}, {args.threads} threads; read bandwidth "
            f"{before['read_GBps_all']:.0f} GB/s before and {report['after']['read_GBps_all']:.0f} after.")
    print(note)
    (args.out / "serving.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    (args.out / "serving.md").write_text("\n".join([*lines, note, ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
