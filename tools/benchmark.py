#!/usr/bin/env python3
"""Every current figure of docs/benchmarks.md, measured again: limits, Reprise and its peers in one run.

  tools/benchmark.py list                                        the sections and how long each takes
  tools/benchmark.py measure --shapes $SHAPES --out build/benchmark     all of them
  tools/benchmark.py measure --shapes $SHAPES --only peers,fused        a part; the others stay in the file
  tools/benchmark.py show build/benchmark/benchmark.json         tables and pictures of what was recorded

`measure` refuses to run beside other load: the load average and the processors' busy share must be low before it starts,
and the share again before each section. `reprise doctor` measures the limits before and after each section; a section
between whose probes the read bandwidth changed by more than a fifth is measured once more, and marked if it happens
again. The binary must be of the commit that is checked out. Everything goes to benchmark.json after each section, so
that an interrupted run keeps what it has and goes on with --resume.

`show` writes benchmark.md (sections as they stand in docs/benchmarks.md) and roof-NAME.svg for each shape: the share of
the roof by batch, ours beside peers. The roof of a batch is the time for reading its weights, keys and values once, or
for its multiplications at the peak, whichever is longer; peers are held against the same roof.
"""
import argparse
import json
import math
import os
import pathlib
import platform
import random
import re
import shlex
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
CACHE = pathlib.Path(os.environ.get("REPRISE_CACHE") or pathlib.Path.home() / ".cache/reprise")
MOST_LOAD = 0.3  # load average of a minute, in processors
MOST_BUSY = 0.1  # of all processors, while nothing of ours runs
STEADY = 0.8     # the lower of two probes over the higher


# -- the machine -------------------------------------------------------------------------------------------------------

def busy_share(before, after):
    """Of the processors' time between two readings of the first line of /proc/stat."""
    a, b = ([int(n) for n in text.split()[1:9]] for text in (before, after))
    spent = [y - x for x, y in zip(a, b)]
    total = sum(spent)
    return (total - spent[3] - spent[4]) / total if total else 0.0


def read_stat():
    with open("/proc/stat", encoding="ascii") as file:
        return file.readline()


def measured_busy(seconds=2.0):
    before = read_stat()
    time.sleep(seconds)
    return busy_share(before, read_stat())


def other_load(load_average, busy):
    """Why a measurement would mean little now; empty when it is quiet. Without a load average only what is busy counts:
    our own section before has just ended."""
    reasons = []
    if load_average is not None and load_average > MOST_LOAD:
        reasons.append(f"the load average is {load_average:.2f} (at most {MOST_LOAD})")
    if busy > MOST_BUSY:
        reasons.append(f"{100 * busy:.0f} % of the processors are busy (at most {100 * MOST_BUSY:.0f} %)")
    return reasons


def is_steady(before, after):
    low, high = sorted((before["read_GBps_all"], after["read_GBps_all"]))
    return low >= STEADY * high


# -- running ------------------------------------------------------------------------------------------------------------

class Run:
    """What a section measures with. Commands are kept as they can be typed again."""

    def __init__(self, args):
        self.args = args
        self.binary, self.shapes, self.out = args.binary, pathlib.Path(args.shapes), args.out
        self.library = pathlib.Path(args.binary).parent.parent / "lib/libreprise.so.0"
        self.models = args.models or self.shapes.parent / "models"
        self.commands = []

    def typed(self, command):
        text = shlex.join(map(str, command)).removeprefix(f"{sys.executable} ")
        for path, name in ((self.binary, "reprise"), (self.shapes, "$SHAPES"), (self.models, "$MODELS"), (HERE, "tools"),
                           (self.out, "OUT"), (self.args.peers, "PYTHON"), (CACHE, "$REPRISE_CACHE"), (ROOT, ".")):
            text = text.replace(str(path), name) if path else text
        return text

    def output(self, command):
        self.commands.append(self.typed(command))
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{shlex.join(map(str, command))}\n{done.stderr[-2000:]}")
        return done.stdout

    def ours(self, *command):
        return json.loads(self.output([self.binary, *command, "--json"]))

    def one_batch(self, shape, *flags):
        return self.ours("bench", "one-batch", "--load-format", "dummy", "--dtype", "bfloat16", "--model-path",
                         self.shapes / shape, "--log-level", "warning", *flags)["rows"]

    def script(self, name, *arguments):
        return self.output([sys.executable, HERE / name, "--binary", self.binary, *arguments])

    def of_library(self, name, *arguments):
        """What a script that opens the library wrote as JSON."""
        made = self.out / f"{name}.json"
        self.output([sys.executable, HERE / f"{name}.py", "--library", self.library, *arguments, "--json", made])
        return json.loads(made.read_text(encoding="utf-8"))

    def peer_file(self, shape, form):
        """A GGUF file with random weights of this shape, made once."""
        return self.output([HERE / "peers/llama_cpp.sh", "model", self.shapes / shape, form]).strip()

    def limits(self):
        done = subprocess.run([self.binary, "doctor", "--json"], capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"reprise doctor: {done.stderr[-2000:]}")
        return json.loads(done.stdout)


def table(header, rows):
    return ["| " + " | ".join(header) + " |", "|" + "---|" * len(header),
            *("| " + " | ".join(str(c) for c in row) + " |" for row in rows)]


def figure(value):
    """Three digits, and all those in front of the point."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def share(value):
    return f"{value:.0f} %" if value is not None else ""


# -- the sections: what each measures, and the table that its data make -------------------------------------------------

FORM_NAMES = {"bf16": ("bf16", "x"), "w8a8": ("W8A8", "x Q8_0"), "q8_0": ("Q8_0 file", "x"), "q4_0": ("Q4_0 file", "x"),
              "q4_1": ("Q4_1 file", "x"), "q4_k_m": ("Q4_K_M file", "x"), "q5_k_m": ("Q5_K_M file", "x"),
              "q6_k": ("Q6_K file", "x"), "q3_k_m": ("Q3_K_M file", "x"), "q2_k": ("Q2_K file", "x"),
              "iq4_nl": ("IQ4_NL file", "x"), "iq4_xs": ("IQ4_XS file", "x")}


def peers_section(name, shape, *flags):
    def measure(run):
        beside = ["--beside-load"] if run.args.beside_load else []
        run.script("measure_peers.py", "--out", run.out, "--rounds", run.args.rounds, *beside, *flags,
                   f"{name}={run.shapes / shape}")
        return {"name": name, "forms": json.loads((run.out / f"{name}-peers.json").read_text(encoding="utf-8"))}

    return measure, show_peers


def show_peers(data):
    forms = data["forms"]
    cells = list(dict.fromkeys(c for f in forms.values() for c in f["cells"]))
    third = {form for form, f in forms.items() if any("openvino" in c for c in f["cells"].values())}
    rows = []
    for cell in cells:
        row = [cell]
        for name, form in forms.items():
            found = form["cells"].get(cell)
            if not found:
                row += ["", "", *([""] if name in third else [])]
                continue
            of = found.get("pct_peak") if cell.startswith("prefill") else found.get("pct_bandwidth")
            unit = f" {found['unit']}" if "unit" in found else ""
            row += [figure(found["ours"]) + unit + (f" ({share(of)})" if of else ""),
                    f"{found['ours'] / found['peer']:.2f}"]
            if name in third:
                row.append(f"{found['ours'] / found['openvino']:.2f}" if "openvino" in found else "")
        rows.append(row)
    return table([f"{data['name']}, tok/s", *(n for form in forms for n in
                                              (*FORM_NAMES[form], *(["x OpenVINO"] if form in third else [])))], rows)


def measure_experts(run):
    out = []
    for shape, label in (("qwen3-30b-a3b", "Qwen3-30B-A3B"), ("deepseek-v2-lite", "DeepSeek-V2-Lite")):
        for form, flags in (("bf16", []), ("W8A8", ["--quantization", "w8a8_int8"])):
            out.append({"label": f"{label}, {form}", "rows": run.one_batch(
                shape, "--override", "num_hidden_layers=2", "--context-length", 4224, "--batch-size", "1,8,32",
                "--input-len", 512, "--output-len", 17, "--repeat", 1, *flags)})
    return out


def show_batches(data):
    return table(["", "batch", "prefill tok/s", "% of peak", "decode tok/s", "% of read bandwidth"],
                 [[e["label"] if i == 0 else "", r["batch_size"], figure(r["prefill_tok_s"]), share(r["pct_peak"]),
                   figure(r["decode_tok_s"]), share(r["pct_bandwidth"])]
                  for e in data for i, r in enumerate(e["rows"])])


def measure_expanded(run):
    out = []
    for prompt in (512, 4096):
        for form, flags in (("bf16", []), ("W8A8", ["--quantization", "w8a8_int8"])):
            entry = {"prompt": prompt, "form": form, "absorbed": [], "expanded": []}
            for way in ("absorbed", "expanded", "absorbed", "expanded"):
                entry[way] += run.one_batch(
                    "deepseek-v2-lite", "--override", "num_hidden_layers=2", "--override", "first_k_dense_replace=1",
                    "--context-length", 4352, "--chunked-prefill-size", 4096, "--batch-size", 1, "--input-len", prompt,
                    "--output-len", 9, "--repeat", 3, "--mla-prefill", way, *flags)
            out.append(entry)
    return out


def show_expanded(data):
    rows = []
    for e in data:
        speed = {way: [r["prefill_tok_s"] for r in e[way]] for way in ("absorbed", "expanded")}
        row = [e["prompt"], e["form"]]
        for way in speed:
            row += [", ".join(map(figure, speed[way])), ", ".join(share(r["pct_peak"]) for r in e[way])]
        rows.append([*row, f"{sum(speed['expanded']) / sum(speed['absorbed']):.2f}"])
    return table(["prompt", "", "absorbed, tok/s", "of peak", "expanded, tok/s", "of peak", "x"], rows)


def ops_section(*flags):
    return lambda run: run.ours("bench", "ops", "--dtype", "bfloat16", *flags)["rows"], show_ops


OTHER_OPS = ("gated_delta", "state_space", "causal_conv", "segment_attention", "layer_norm", "gelu")


def measure_ops(run):
    """All ops of a decoder, and those of states and encoders, each in the shapes of its own models."""
    measured = ["bench", "ops", "--dtype", "bfloat16", "--tokens", "1,64", "--repeat", 5]
    rows = run.ours(*measured, "--model", "Qwen3-0.6B")["rows"]
    for op in OTHER_OPS:
        rows += run.ours(*measured, "--filter", op)["rows"]
    return rows


def show_ops(data):
    return table(["op", "shape", "fused, us", "parts, us", "ratio", "share of the limit"],
                 [[f"`{r['op']}`", r["shape"], figure(r["fused_us"]),
                   figure(r["unfused_us"]) if r.get("unfused_us") else "", f"{r['ratio']:.2f}" if r.get("ratio") else "",
                   share(100 * r["limit_us"] / r["fused_us"]) if r.get("limit_us") else ""] for r in data])


FAMILY_OPS = ("paged_attention", "grouped_linear_blocks", "add_groups", "swiglu_clamped", "gelu", "gelu_tanh", "relu_squared",
              "layer_norm", "rms_norm_centred", "rms_norm_gated", "scale", "softcap", "scale_rows", "position_scale", "rope",
              "rope_table_axes", "index_select", "pool_rows", "segment_attention", "causal_conv", "causal_conv_biased",
              "gated_delta", "state_space")
DECODE_ROWS, PROMPT_ROWS = (1, 8, 64), 512


def measure_families(run):
    """Each op in decode steps and with the rows of a prompt."""
    rows = []
    for op in FAMILY_OPS:
        for tokens in (",".join(map(str, DECODE_ROWS)), PROMPT_ROWS):
            rows += run.ours("bench", "ops", "--filter", op, "--dtype", "bfloat16", "--tokens", tokens)["rows"]
    return rows


def show_families(data):
    cells = {}
    for r in data:
        prompt = r["detail"].endswith("one sequence") or "a prompt" in r["detail"]
        if r["model"] != "launch-bound" and (r["tokens"] >= max(DECODE_ROWS) or not prompt):
            detail = re.sub(r"\d+ experts, \d+ a token: ", "experts, ", r["detail"])
            detail = detail.replace("states of ", "").replace("a sequence each", "each")
            where = f"{r['model']}: {detail}" if detail else r["model"]
            cells.setdefault((r["op"], where), {})[r["tokens"]] = f"{figure(r['fused_us'])}, {share(100 * r['limit_us'] / r['fused_us'])}"
    columns, rows, seen = (*DECODE_ROWS, PROMPT_ROWS), [], set()
    for (op, where), of in cells.items():
        rows.append(["" if op in seen else f"`{op}`", where, *(of.get(n, "") for n in columns)])
        seen.add(op)
    return table(["op", "shape", *(f"{n} rows" if n > 1 else "us, share: 1 row" for n in columns)], rows)


SET_SHAPES = (("Qwen3-0.6B", "qwen3-0.6b", []),
              ("Qwen3-30B-A3B, 2 layers", "qwen3-30b-a3b", ["--override", "num_hidden_layers=2"]),
              ("DeepSeek-V2-Lite, 2 layers", "deepseek-v2-lite", ["--override", "num_hidden_layers=2"]))
SET_FORMS = {"bf16": [], "W8A8": ["--quantization", "w8a8_int8"]}


def in_turn(rounds, ways):
    """Each of the ways once a round; which goes first changes, so that none always follows the same one."""
    for number in range(rounds):
        first = number % len(ways)
        yield from (*ways[first:], *ways[:first])


def measure_sets(run):
    """The best instruction set of this processor and the one before it, on the same work in turn."""
    sets = run.limits()["isa"][-2:]
    out = []
    for label, shape, flags in SET_SHAPES:
        for form, more in SET_FORMS.items():
            rows = {name: [] for name in sets}
            for name in in_turn(run.args.rounds, sets):
                rows[name] += run.one_batch(shape, *flags, "--isa", name, "--context-length", 4224, "--batch-size",
                                            "1,8,32,64", "--input-len", 512, "--output-len", 9, "--repeat", 1, *more)
            out.append({"label": f"{label}, {form}", "sets": rows})
    return out


def from_to(values):
    low, high = figure(min(values)), figure(max(values))
    return high if low == high else f"{low} to {high}"


def show_sets(data):
    sets, rows = list(data[0]["sets"]), []
    for e in data:
        batches = list(dict.fromkeys(r["batch_size"] for r in e["sets"][sets[0]]))
        for index, batch in enumerate(batches):
            row = [e["label"] if index == 0 else "", batch]
            for key in ("prefill_tok_s", "decode_tok_s"):
                speeds = [[r[key] for r in e["sets"][name] if r["batch_size"] == batch] for name in sets]
                row += [*map(from_to, speeds), f"{max(speeds[-1]) / max(speeds[0]):.2f}"]
            rows.append(row)
    return table(["", "batch", *(f"{what}, `{name}`" if name in sets else "best / best"
                                 for what in ("prefill tok/s", "decode tok/s") for name in (*sets, ""))], rows)


def measure_prompt_parts(run):
    """What a prompt's step spends on linears and on attention, each form in turn."""
    out = {form: [] for form in SET_FORMS}
    for form in in_turn(run.args.rounds, tuple(SET_FORMS)):
        out[form].append(run.ours(
            "graph", "profile", "--phase", "prefill", "--context", 512, "--model-path", run.shapes / "qwen3-0.6b",
            "--load-format", "dummy", "--dtype", "bfloat16", "--log-level", "warning", *SET_FORMS[form]))
    return [{"form": form, "step_ms": [p["step_us"] / 1e3 for p in profiles],
             **{part: [sum(o["span_us"] for o in p["ops"] if re.match(pattern, o["op"])) / 1e3 for p in profiles]
                for part, pattern in PROMPT_PARTS.items()}} for form, profiles in out.items()]


PROMPT_PARTS = {"linear layers": "linear", "attention": "paged_attention"}


def show_prompt_parts(data):
    return table(["milliseconds", "whole step", *PROMPT_PARTS],
                 [[e["form"], *(", ".join(map(figure, e[key])) for key in ("step_ms", *PROMPT_PARTS))] for e in data])


BLOCK_TOKENS = (1, 4, 8, 16, 64, 256, 512)


def measure_block_sets(run):
    """Products with GGUF blocks on tile registers, and as the set does them by default, in turn."""
    sets = run.limits()["isa"]
    if "amx" not in sets:
        return {"why_not": "this processor has no tile registers"}
    ways = ("amx", "amx-blocks")
    out = {name: [] for name in ways}
    for name in in_turn(run.args.rounds, ways):
        out[name] += run.ours("bench", "ops", "--filter", "linear_blocks", "--model", "Qwen3-0.6B", "--dtype", "bfloat16",
                              "--threads", 1, "--isa", name, "--tokens", ",".join(map(str, BLOCK_TOKENS)))["rows"]
    return {"ways": out}


def show_block_sets(data):
    if "why_not" in data:
        return [f"Not measured: {data['why_not']}."]
    best = {name: {} for name in data["ways"]}
    for name, found in data["ways"].items():
        for r in found:
            key = (r["op"], r["shape"])
            best[name][key] = min(r["fused_us"], best[name].get(key, math.inf))
    return table(["op", "shape", *(f"`{name}`, us" for name in best), "x"],
                 [[f"`{op}`", shape, *(figure(times[op, shape]) for times in best.values()),
                   f"{best['amx'][op, shape] / best['amx-blocks'][op, shape]:.2f}"] for op, shape in best["amx"]])


def measure_modes(run):
    out = {}
    for name, shape, flags in (("launch-bound", "toy-t", ["--output-len", 48]), ("SmolLM2-135M", "smollm2-135m", []),
                               ("Qwen3-0.6B", "qwen3-0.6b", ["--output-len", 12, "--batch-sizes", "1,4,16,64"])):
        run.script("measure_modes.py", "--out", run.out, *flags, f"{name}={run.shapes / shape}")
        out[name] = json.loads((run.out / f"{name}.json").read_text(encoding="utf-8"))
    return out


def show_modes(data):
    header, rows = ["model, batch", "", *next(iter(data.values()))["rows"], "last / first"], []
    for name, entry in data.items():
        for points in zip(*entry["rows"].values()):
            for what, key in (("decode", "decode_tok_s"), ("prefill", "prefill_tok_s")):
                rows.append([f"{name}, {points[0]['batch_size']}", what, *(figure(p[key]) for p in points),
                             f"{points[-1][key] / points[0][key]:.2f} x"])
    return table(header, rows)


def measure_sampled(run):
    drawn = ["--temperature", 0.8]
    out = {"greedy": [], "sampled": []}
    for _ in range(run.args.rounds):
        for way, flags in (("greedy", []), ("sampled", drawn)):
            out[way] += run.one_batch("smollm2-135m", "--batch-size", 64, "--input-len", 128, "--output-len", 33,
                                      "--repeat", 1, *flags)
    return out


def show_sampled(data):
    speed = {way: sorted(r["decode_tok_s"] for r in rows) for way, rows in data.items()}
    middle = {way: values[len(values) // 2] for way, values in speed.items()}
    return table(["SmolLM2-135M, batch 64", "greedy, tok/s", "temperature 0.8, tok/s", "sampled / greedy (target)"],
                 [["median", figure(middle["greedy"]), figure(middle["sampled"]),
                   f"{middle['sampled'] / middle['greedy']:.2f} x (0.9 x)"]])


TEXTS = {"copy": "copy of a text", "edit": "edit of code", "summary": "summary with quotes", "plain": "new text",
         "random": "no text"}
SPECULATED = {"Q4_1 file, fp32": ["--dtype", "float32"], "Q4_1 file, bf16": ["--dtype", "bfloat16"],
              "W8A8": ["--dtype", "bfloat16", "--quantization", "w8a8_int8"],
              "made-up weights, bf16": ["--dtype", "bfloat16", "--load-format", "dummy"]}
NEW_ROUNDS = 5  # at least, where a few per cent decide


def speculated_prompts(run, form, text):
    """The model, and the flags of each prompt. Made-up weights answer random tokens with random tokens."""
    if ("dummy" in SPECULATED[form]) != (text == "random"):
        return
    drawn = ["--temperature", 1] if text in ("plain", "random") else []
    if text == "random":
        for number in range(6):
            ids = ",".join(map(str, random.Random(number).sample(range(100, 40000), 64)))
            yield ["--model-path", run.shapes / "smollm2-135m", "--prompt-ids", ids, *drawn]
        return
    chat = ["--apply-chat-template"] if text == "plain" else []
    for line in (ROOT / "tests/data/speculation" / f"{text}.jsonl").read_text(encoding="utf-8").splitlines():
        yield ["--model-path", "smollm2", "--prompt", json.loads(line)["prompt"], *chat, *drawn]


def measure_speculation(run):
    """One answer at a time, each with and without drafts; which goes first alternates. The text must be the same."""
    out = []
    for form, flags in SPECULATED.items():
        for text in TEXTS:
            rounds = run.args.rounds if text not in ("plain", "random") else max(NEW_ROUNDS, run.args.rounds)
            for number, prompt in enumerate(speculated_prompts(run, form, text)):
                for turn in range(rounds):
                    answers = {}
                    for way in ("none", "NGRAM") if turn % 2 == 0 else ("NGRAM", "none"):
                        made = run.ours("generate", *flags, *prompt, "--max-new-tokens", 160, "--ignore-eos", "--seed",
                                        number, "--speculative-algorithm", way)
                        answers[way] = made["output"]["token_ids"]
                        out.append({"form": form, "text": text, "prompt": number, "way": way,
                                    "decode_tok_s": made["timing"]["decode_tok_s"],
                                    "speculative": made.get("speculative")})
                    if answers["none"] != answers["NGRAM"]:
                        raise SystemExit(f"{form}, {text} {number}: drafts have changed the answer")
    return out


def show_speculation(data):
    rows = []
    for form in SPECULATED:
        for text, name in TEXTS.items():
            def seconds(way):  # of a token, each prompt with its median
                mine = [r for r in data if (r["form"], r["text"], r["way"]) == (form, text, way)]
                by_prompt = {}
                for r in mine:
                    by_prompt.setdefault(r["prompt"], []).append(1 / r["decode_tok_s"])
                return sum(sorted(t)[len(t) // 2] for t in by_prompt.values()) / max(1, len(by_prompt))
            drafts = [r["speculative"] for r in data if (r["form"], r["text"], r["way"]) == (form, text, "NGRAM")]
            if not drafts:
                continue
            verified = sum(d["drafts"] for d in drafts)
            gained = 1 + sum(d["accepted_tokens"] for d in drafts) / max(1, verified)
            plain, fast = seconds("none"), seconds("NGRAM")
            rows.append([form, name, figure(1 / plain), figure(1 / fast), f"{plain / fast:.2f} x", f"{gained:.2f}",
                         f"{sum(d['draft_tokens'] for d in drafts) / max(1, verified):.1f}"])
    return table(["weights", "text", "tok/s", "with NGRAM, tok/s", "ratio", "tokens a step with drafts",
                  "drafts in it"], rows)


ACCEPTED_FORMS = {"bf16": [], "W8A8": ["--quantization", "w8a8_int8"]}


def measure_acceptance(run):
    """What verification gains where each draft comes true with chance 0.8."""
    return [{"form": form, "width": width, **run.one_batch(
        "qwen3-0.6b", *flags, "--batch-size", 1, "--input-len", 128, "--output-len", 161, "--repeat",
        max(NEW_ROUNDS, run.args.rounds), "--speculative-synthetic-acceptance", 0.8, "--speculative-num-draft-tokens",
        width)[0]} for form, flags in ACCEPTED_FORMS.items() for width in (8, 4)]


def show_acceptance(data):
    return table(["weights", "rows of a sequence, at most", "tok/s", "with drafts, tok/s", "ratio (target)",
                  "tokens a step", "came true by position"],
                 [[r["form"], r["width"], figure(r["plain_decode_tok_s"]), figure(r["decode_tok_s"]),
                   f"{r['speed_up']:.2f} x (2 x)", f"{r['tokens_per_step']:.1f}",
                   f"{', '.join(map(str, r['accepted_per_position']))} of {r['drafts']} steps"] for r in data])


def measure_serving(run):
    run.script("measure_serving.py", "--out", run.out, "--rounds", run.args.rounds, "--shapes",
               f"Qwen3-0.6B={run.shapes / 'qwen3-0.6b'}", "--data", run.shapes.parent / "gsm8k_test.jsonl")
    return {"report": json.loads((run.out / "serving.json").read_text(encoding="utf-8")),
            "lines": (run.out / "serving.md").read_text(encoding="utf-8").splitlines()}


def measure_onednn(run):
    return {"lines": run.script("measure_onednn.py", "--tokens", "1,4,16,64,512").splitlines()}


def show_lines(data):
    # Headings of a part stand below the section's.
    return [re.sub(r"^### ", "#### ", line) for line in data["lines"]]


def measure_quantised(run):
    """Perplexity and GSM8K of each form, and how many answers have the number or the text that bf16 gives."""
    questions, solved = (run.shapes.parent / f for f in ("gsm8k_test.jsonl", "gsm8k_train_head.jsonl"))
    forms = [("bf16", "smollm2", []), ("bf16, int8 KV cache", "smollm2", ["--kv-cache-dtype", "int8"]),
             ("`--quantization w8a8_int8`", "smollm2", ["--quantization", "w8a8_int8"])]
    for label, name, flags in (("dynamic W8A8, `--smooth 0.5`", "dynamic", ["--scheme", "dynamic"]),
                               ("static W8A8, `--smooth 0.5`, ModelSlim", "static",
                                ["--scheme", "static", "--format", "modelslim"])):
        folder = run.out / f"smollm2-{name}"
        run.output([run.binary, "quantize", "--model-path", "smollm2", "--output", folder, "--dtype", "bfloat16", "--smooth",
                    0.5, "--calibration-file", solved, *flags])
        forms.append((label, folder, []))
    out, first = [], None
    for label, model, flags in forms:
        model = ["--model-path", model, "--dtype", "bfloat16", *flags]
        answers = run.out / "answers.jsonl"
        ppl = run.ours("eval", "perplexity", *model, "--text-file", questions, "--max-windows", 16)
        score = run.ours("eval", "gsm8k", *model, "--data-path", questions, "--shots-path", solved, "--num-questions", 200,
                         "--num-shots", 1, "--max-new-tokens", 160, "--answers-file", answers)
        said = [json.loads(line) for line in answers.read_text(encoding="utf-8").splitlines()]
        first = first or said
        out.append({"label": label, "perplexity": ppl["perplexity"], "questions": len(said),
                    "right": sum(a["right"] for a in said), "no_number": sum(not a["got"] for a in said),
                    "accuracy": score["accuracy"],
                    **{f"same_{key}": sum(a[key] == b[key] for a, b in zip(said, first)) for key in ("got", "text")}})
    return out


def show_quantised(data):
    base = data[0]["perplexity"]
    return table(["SmolLM2", "perplexity", "change", f"right, of {data[0]['questions']}", "no number", "same number",
                  "same text"],
                 [[e["label"], f"{e['perplexity']:.4f}", f"{100 * (e['perplexity'] / base - 1):+.2f} %" if i else "",
                   e["right"], e["no_number"], *((e["same_got"], e["same_text"]) if i else ("", ""))]
                  for i, e in enumerate(data)])


LORA_WAYS = {"no slots": "no slots", "slots, none used": "slots, none used",
             "one adapter": "one adapter for all rows", "an adapter a row": "an adapter a row, at most 8"}


def measure_lora(run):
    return run.of_library("measure_lora", "--batch-sizes", "1,4,8,16", "--rounds", max(NEW_ROUNDS, run.args.rounds),
                          "--output-len", 17, "--adapters", 8, f"SmolLM2-135M={run.shapes / 'smollm2-135m'}")


def show_lora(data):
    return table(["tok/s, batch", *LORA_WAYS.values()],
                 [[f"{name}, {r['batch']}" if i == 0 else r["batch"],
                   *(figure(r[way]) + (f" ({100 * r[way] / r['no slots'] - 100:+.0f} %)" if way != "no slots" else "")
                     for way in LORA_WAYS)] for name, rows in data.items() for i, r in enumerate(rows)])


VECTOR_MODEL = "all-MiniLM-L6-v2"
VECTOR_NAMES = {"reprise": "Reprise", "openvino": "OpenVINO", "float32": "fp32", "bfloat16": "bf16", "int8": "W8A8"}


def measure_vectors(run):
    folder = run.models / VECTOR_MODEL
    if not folder.is_dir():
        return {"why_not": f"there is no {VECTOR_MODEL} in the folder of --models"}
    peers = ["--peers", run.args.peers] if run.args.peers else []
    return {"rows": run.of_library("measure_embeddings", "--rounds", max(9, run.args.rounds), *peers, folder)}


def show_vectors(data):
    if "why_not" in data:
        return [f"Not measured: {data['why_not']}."]
    return table(["", "dtype", "ms", "texts/s", "cosine"],
                 [[*(VECTOR_NAMES.get(r[key], r[key]) for key in ("name", "dtype")), f"{r['ms']:.0f}", f"{r['texts_s']:.0f}",
                   f"{r['cosine']:.5f}"] for r in data["rows"]])


def measure_tower(run):
    out = []
    for dtype in ("bfloat16", "float32"):
        made = run.out / "measure_tower.json"
        run.output([sys.executable, HERE / "measure_tower.py", "--binary", run.binary, "--dtype", dtype, "--rounds",
                    max(NEW_ROUNDS, run.args.rounds), "--json", made])
        out.append(json.loads(made.read_text(encoding="utf-8")))
    return out


def show_tower(data):
    def row(r):
        rate = r["operations"] / 1e9 / r["seconds"]
        return [VECTOR_NAMES[r["dtype"]], f"{1e3 * r['seconds']:,.0f}", f"{r['operations'] / 1e9:.0f}", f"{rate:.0f}",
                f"{100 * rate / r['peak_gflops']:.0f} % of {r['peak_gflops']:.0f}"]
    return table(["dtype", "ms", "GFLOP", "GFLOP/s", "share of the peak"], [row(r) for r in data])


BLOCK_FORMATS = ("Q8_0", "Q4_K_M", "Q4_0")
BLOCK_WAYS = ("float", "int8")


def measure_block_activations(run):
    """Files of a format with the activations as they are and rounded to int8, in turn, and OpenVINO's prompts."""
    out = []
    for form in BLOCK_FORMATS:
        file = run.peer_file("qwen3-0.6b", form)
        entry = {"form": form, "openvino": [], **{way: {"prefill": [], "decode": []} for way in BLOCK_WAYS}}

        def ours(way, *flags):
            return run.ours("bench", "one-batch", "--model-path", file, "--block-activations", way, "--log-level", "warning",
                            *flags)["rows"]
        for way in in_turn(run.args.rounds, (*BLOCK_WAYS, "openvino")):
            if way == "openvino":
                answer = run.output([HERE / "peers/openvino.sh", "run", file, "--prefill", 512, "--output-len", 1])
                entry["openvino"].append(json.loads(answer.splitlines()[-1])["prefill"]["512"])
                continue
            entry[way]["prefill"] += ours(way, "--batch-size", 1, "--input-len", 512, "--output-len", 2)
            entry[way]["decode"] += ours(way, "--batch-size", "1,4,16,64", "--input-len", 64, "--output-len", 16)
        out.append(entry)
    return out


def show_block_activations(data):
    def middle(values):
        return sorted(values)[len(values) // 2]

    prefill, decode = [], []
    batches = list(dict.fromkeys(r["batch_size"] for r in data[0]["float"]["decode"]))
    for e in data:
        speed = {way: [r["prefill_tok_s"] for r in e[way]["prefill"]] for way in BLOCK_WAYS}
        prefill.append([e["form"], *(", ".join(map(figure, speed[way])) for way in BLOCK_WAYS),
                        share(middle([r["pct_peak"] for r in e["int8"]["prefill"]])),
                        ", ".join(map(figure, e["openvino"])), f"{middle(speed['int8']) / middle(speed['float']):.2f}",
                        f"{middle(speed['int8']) / middle(e['openvino']):.2f}"])
        decode += [[f"{e['form']}, {way}", *(", ".join(figure(r["decode_tok_s"]) for r in e[way]["decode"]
                                                       if r["batch_size"] == batch) for batch in batches)]
                   for way in BLOCK_WAYS]
    return [*table(["prefill 512", *BLOCK_WAYS, "share of the int8 peak", "OpenVINO", "int8 x float", "int8 x OpenVINO"],
                   prefill), "", *table(["decode, batch", *map(str, batches)], decode)]


# name: title, minutes, measure, show
SECTIONS = {
    "qwen3": ("Qwen3-0.6B compared with llama.cpp", 90, *peers_section("Qwen3-0.6B", "qwen3-0.6b", "--openvino")),
    "smollm2": ("SmolLM2-135M compared with llama.cpp", 40, *peers_section("SmolLM2-135M", "smollm2-135m")),
    "experts-peers": ("Experts compared with llama.cpp", 25, *peers_section(
        "Qwen3-30B-A3B", "qwen3-30b-a3b", "--layers", 2, "--formats", "bf16,w8a8", "--only", "batch", "--batches", "1,8,32")),
    "experts": ("Experts: prefill and decode", 12, measure_experts, show_batches),
    "latent": ("Latent attention: one step", 2, *ops_section(
        "--model", "DeepSeek-V2-Lite", "--filter", "latent_attention", "--tokens", "1,8,32")),
    "expanded": ("Latent attention: expanded prompts", 10, measure_expanded, show_expanded),
    "modes": ("Graph modes side by side", 25, measure_modes, show_modes),
    "fused": ("Fused ops compared with their parts", 8, *ops_section("--model", "Qwen3-0.6B", "--tokens", "1,16,64")),
    "families": ("Ops of newer families", 6, measure_families, show_families),
    "ops": ("Ops one by one", 12, measure_ops, show_ops),
    "few-rows": ("Linears of few rows", 40, *peers_section(
        "Qwen3-0.6B-few-rows", "qwen3-0.6b", "--formats", "bf16,q8_0,q4_k_m", "--only", "batch", "--batches", "1,2,4,8,16")),
    "sets": ("Instruction sets in turn", 45, measure_sets, show_sets),
    "prompt-parts": ("Parts of a prompt", 5, measure_prompt_parts, show_prompt_parts),
    "tiles": ("Products of a prompt", 3, *ops_section("--model", "Qwen3-0.6B", "--filter", "linear", "--tokens", 512)),
    "block-sets": ("GGUF blocks on tile registers", 15, measure_block_sets, show_block_sets),
    "onednn": ("Linears compared with oneDNN", 10, measure_onednn, show_lines),
    "sampled": ("Sampled beside greedy decode", 3, measure_sampled, show_sampled),
    "speculation": ("Answers with drafts", 40, measure_speculation, show_speculation),
    "acceptance": ("Drafts of a given acceptance", 6, measure_acceptance, show_acceptance),
    "block-activations": ("Int8 activations of GGUF files", 30, measure_block_activations, show_block_activations),
    "lora": ("LoRA adapters while decoding", 8, measure_lora, show_lora),
    "vectors": ("Vectors of texts", 5, measure_vectors, show_vectors),
    "tower": ("A vision tower", 4, measure_tower, show_tower),
    "serving": ("The server under load", 100, measure_serving, show_lines),
    "quantised": ("Quantised forms of SmolLM2", 35, measure_quantised, show_quantised),
}


# -- the roof -----------------------------------------------------------------------------------------------------------

BYTES_OF_A_WEIGHT = {"bf16": 2, "w8a8": 1, "q8_0": 34 / 32, "q4_0": 18 / 32, "q4_1": 20 / 32}


def roof_tok_s(form, batch, row, limits):
    """Tokens a second of a decode step that only reads, or only multiplies, whichever takes longer."""
    read_s = (row["weight_bytes"] + row["kv_bytes"]) / (limits["read_GBps_all"] * 1e9)
    peak = limits.get("int8_gops") if form == "w8a8" else None
    peak = peak or max(limits["fp32_gflops"], limits.get("bf16_gflops") or 0)
    multiply_s = 2 * batch * row["weight_bytes"] / BYTES_OF_A_WEIGHT[form] / (peak * 1e9)
    return batch / max(read_s, multiply_s)


def roof_shares(data):
    """{form: [(batch, share of ours, share of the peer)]} of a section with peers, in percent. Files of several block
    formats have no single number of bytes a weight, and are left out."""
    out = {}
    for form, found in data["forms"].items():
        if form not in BYTES_OF_A_WEIGHT:
            continue
        points = []
        for cell, v in found["cells"].items():
            batch = re.fullmatch(r"batch (\d+)", cell)
            if batch and v.get("row"):
                roof = roof_tok_s(form, int(batch[1]), v["row"], found["limits"])
                points.append((int(batch[1]), 100 * v["ours"] / roof, 100 * v["peer"] / roof))
        if points:
            out[form] = points
    return out


WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 420, 60, 20, 56, 60
COLOURS = {"bf16": "#2f6fb3", "w8a8": "#b3432f", "q8_0": "#7a4fa3", "q4_0": "#2e8b57", "q4_1": "#8a6d1f"}
GREY = "#737d88"


def draw_roof(name, shares, note):
    batches = sorted({p[0] for points in shares.values() for p in points})
    top = max(100.0, *(max(p[1:]) for points in shares.values() for p in points))

    def x(batch):
        return LEFT + 20 + batches.index(batch) / max(1, len(batches) - 1) * (WIDTH - LEFT - RIGHT - 40)

    def y(percent):
        return HEIGHT - BOTTOM - percent / top * (HEIGHT - TOP - BOTTOM)

    def text(at_x, at_y, words, size=11, colour=GREY, anchor="middle"):
        return (f'<text x="{at_x:.1f}" y="{at_y:.1f}" font-size="{size}" fill="{colour}" '
                f'text-anchor="{anchor}">{words}</text>')

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">',
           text(LEFT, 20, f"{name}: decode, share of the roof by batch", 16, anchor="start"),
           text(LEFT, 38, f"solid: Reprise, dashed: llama.cpp; {note}", anchor="start")]
    for percent in range(0, math.floor(top) + 1, 20):
        out += [f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(percent):.1f}" y2="{y(percent):.1f}" stroke="{GREY}" '
                'stroke-opacity="0.25"/>', text(LEFT - 8, y(percent) + 4, f"{percent} %", anchor="end")]
    out += [text(x(b), HEIGHT - BOTTOM + 18, str(b)) for b in batches]
    out.append(text((LEFT + WIDTH) / 2, HEIGHT - 14, "sequences decoded together", 12))
    for index, (form, points) in enumerate(shares.items()):
        colour = COLOURS[form]
        for side, dash in ((1, ""), (2, ' stroke-dasharray="6 4"')):
            line = " ".join(f"{x(p[0]):.1f},{y(p[side]):.1f}" for p in points)
            out.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
        out += [f'<circle cx="{x(b):.1f}" cy="{y(mine):.1f}" r="3" fill="{colour}"><title>{form}, batch {b}: {mine:.0f} %, '
                f'llama.cpp {theirs:.0f} %</title></circle>' for b, mine, theirs in points]
        out += [f'<rect x="{WIDTH - 130}" y="{TOP + 8 + 18 * index}" width="14" height="4" fill="{colour}"/>',
                text(WIDTH - 110, TOP + 14 + 18 * index, FORM_NAMES[form][0], 12, anchor="start")]
    return "\n".join([*out, "</svg>", ""])


# -- the commands -------------------------------------------------------------------------------------------------------

def show(report, out):
    """The page and the pictures of a recorded run."""
    out.mkdir(parents=True, exist_ok=True)
    machine, lines = report["machine"], []
    for name, section in report["sections"].items():
        title, _, _, show_section = SECTIONS[name]
        before, after = section["before"]["read_GBps_all"], section["after"]["read_GBps_all"]
        lines += [f"### {title}", "",
                  f"Machine: {machine['cpu']}, {machine['isa']}, {machine['threads']} threads. Date: {section['date']}. "
                  f"Commit: `{report['commit']}`. Command:", "", "```", *dict.fromkeys(section["commands"]), "```", "",
                  f"Read bandwidth: {before:.0f} GB/s before and {after:.0f} GB/s after"
                  f"{'' if section['steady'] else ', so shares of it mean little'}."
                  f"{' Measured beside other load.' if section.get('beside') else ''}", ""]
        shares = roof_shares(section["data"]) if "forms" in section["data"] else {}
        if shares:
            picture = f"roof-{section['data']['name']}.svg"
            note = f"{machine['cpu']}, {section['date']}, {report['commit']}"
            (out / picture).write_text(draw_roof(section["data"]["name"], shares, note), encoding="utf-8")
            lines += [f"![{section['data']['name']}: share of the roof by batch](plots/{picture})", ""]
        lines += [*show_section(section["data"]), ""]
    (out / "benchmark.md").write_text("\n".join(lines), encoding="utf-8")
    return lines


def commit_of(folder, version):
    """The commit that is checked out. A binary that says this of its version must be of it, and no file changed."""
    def git(*command):
        return subprocess.run(["git", "-C", str(folder), *command], capture_output=True, text=True, check=True).stdout.strip()

    commit = git("rev-parse", "--short", "HEAD")
    if git("status", "--porcelain", "--untracked-files=no"):
        raise SystemExit("files differ from the commit; figures belong to a commit")
    found = re.search(r"commit ([0-9a-f]+)", version)
    if not found or not (found[1].startswith(commit) or commit.startswith(found[1])):
        raise SystemExit(f"the binary is of {found[0] if found else 'no commit'}, and {commit} is checked out; build it again")
    return commit


def measure_section(run, name):
    """Again when the bandwidth moved in between; the second time counts as it is."""
    for attempt in (1, 2):
        reasons = other_load(None, measured_busy())
        if reasons and not run.args.beside_load:
            raise SystemExit(f"{name}: other load: {'; '.join(reasons)}. --resume goes on from here when it is quiet")
        run.commands = []
        before = run.limits()
        data = SECTIONS[name][2](run)
        after = run.limits()
        steady = is_steady(before, after)
        if steady or attempt == 2:
            return {"date": time.strftime("%Y-%m-%d"), "commands": run.commands, "before": before, "after": after,
                    "steady": steady, "beside": reasons, "data": data}
        print(f"{name}: the read bandwidth moved from {before['read_GBps_all']:.0f} to {after['read_GBps_all']:.0f} GB/s; "
              "once more", file=sys.stderr, flush=True)


def measure(args):
    reasons = other_load(os.getloadavg()[0], measured_busy())
    if reasons and not args.beside_load:
        raise SystemExit(f"other load: {'; '.join(reasons)}. End it; --beside-load measures all the same and marks the figures")
    commit = commit_of(ROOT, subprocess.run([args.binary, "--version"], capture_output=True, text=True, check=True).stdout)
    args.out.mkdir(parents=True, exist_ok=True)
    target = args.out / "benchmark.json"
    run = Run(args)
    report = json.loads(target.read_text(encoding="utf-8")) if target.is_file() else {}
    if report.get("commit") != commit:
        limits = run.limits()
        report = {"commit": commit, "machine": {"cpu": limits["cpu"], "isa": limits["isa"][-1], "threads": limits["threads"],
                                                "system": platform.platform()}, "sections": {}}
    for name in args.only:
        if args.resume and name in report["sections"]:
            continue
        print(f"{name}: about {SECTIONS[name][1]} minutes; begun {time.strftime('%H:%M')}", file=sys.stderr, flush=True)
        report["sections"][name] = measure_section(run, name)
        target.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    show(report, args.out)
    print(f"{target} and {args.out / 'benchmark.md'}")


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("list")
    shown = verbs.add_parser("show")
    shown.add_argument("recorded", type=pathlib.Path)
    shown.add_argument("--out", type=pathlib.Path, help="default: the folder of the file")
    measured = verbs.add_parser("measure")
    measured.add_argument("--binary", default=str(ROOT / "build/release/bin/reprise"))
    measured.add_argument("--shapes", required=True, help="a folder of config.json files; GSM8K's questions lie beside it")
    measured.add_argument("--models", type=pathlib.Path, help=f"a folder with {VECTOR_MODEL}; default: models, beside "
                          "that of the shapes")
    measured.add_argument("--peers", metavar="PYTHON", help="an interpreter with torch, transformers and openvino, for "
                          "the peers of vectors; default: none are measured")
    measured.add_argument("--out", type=pathlib.Path, default=ROOT / "build/benchmark")
    measured.add_argument("--only", type=lambda t: t.split(","), default=list(SECTIONS))
    measured.add_argument("--rounds", type=int, default=3)
    measured.add_argument("--resume", action="store_true", help="leave out what this commit's file has already")
    measured.add_argument("--beside-load", action="store_true", help="measure beside other load, and mark the figures")
    args = parser.parse_args(arguments)
    if args.verb == "list":
        for name, (title, minutes, *_) in SECTIONS.items():
            print(f"{name:<18} {minutes:>4} min  {title}")
    elif args.verb == "show":
        print("\n".join(show(json.loads(args.recorded.read_text(encoding="utf-8")), args.out or args.recorded.parent)))
    else:
        for name in args.only:
            if name not in SECTIONS:
                parser.error(f'no section "{name}"; there are: {", ".join(SECTIONS)}')
        measure(args)


if __name__ == "__main__":
    main()
