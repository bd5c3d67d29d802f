#!/usr/bin/env python3
"""Times that the Ascend simulator's clock predicts for real model shapes, as Markdown tables.

  tools/predict_ascend.py --keep results.json --into docs/ascend-predictions.md
      every table of that page, in its place; what this build gave before (results.json) is not run again
  tools/predict_ascend.py --only modes --soc Ascend910B2     one table, printed

No NPU is involved and nothing is measured: kernels take time by a model (operations, bytes, start-up; host calls take
theirs) and compute nothing. Layers are alike, so two depths are run, and the whole model follows from them; `proof`
runs the whole model beside that. "published" is the second reading of the model (ASCEND_SIM_RATES): constants that public
measurements contradict are replaced by those measurements. No constant is fitted to a figure shown here.

  summary     published figures beside the model's, each with the deviation
  kernels     measured means of single kernels beside the model
  updates     measured task updates beside the model
  steps       measured steps of other engines beside the model, in both readings
  first       their first token
  ranks       one model over several cards, in both forms
  shared-experts a mixture of experts over four cards, each expert cut or whole
  expert-ranks DeepSeek-V3 with its experts over 16 dies
  speculation steps that verify drafts, and what published times between tokens ask of drafts
  passes      Qwen3-32B W8A8 static with the original's two passes, as the original ran it
  speeds      its absolute times, and what its own kernel times would save
  end-to-end  Llama-3.1-8B with 128 requests at a time, decode included
  mla         DeepSeek-V2-Lite in every mode
  modes       eager, piecewise and whole steps of real shapes
  modes-a3    the same with the constants of a 910B2, which are those of a die of an A3
  readings    whole decode steps in both readings
  proof       a model of full depth beside what two depths say of it
  prefill     piecewise prefill over prompt lengths, where launches cost the host more
  overlap     decode steps one at a time and overlapped
  decode      fused decode in whole graphs, where launches cost the host more
  ops         fused kernels beside their parts, and the original system's
  experts     experts in bf16 and int8
  fia         prompts by FusedInferAttentionScore and by the pair before it
  streams     layers of decode steps on one stream and on two
  prefetch    layers of decode steps without and with weights that are read ahead
  launches    launches of a layer in a whole decode graph
  queues      queues that graphs hold, by layers, on older and newer drivers
  constants   every constant of the model with its source, those first that are assumed
"""
import argparse
import copy
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
DEPTHS = (2, 4)  # layers that stand for all
DEEP = (8, 16)  # where the host and the device take equally long, which of few layers is another one than of many
SHAPES = [  # name, folder, quantisation
    ("Llama-3.1-8B bf16", "llama-3.1-8b", "none"),
    ("Qwen2.5-7B bf16", "qwen2.5-7b", "none"),
    ("Qwen3-32B W8A8", "qwen3-32b", "w8a8_int8"),
]
# Of few layers an eager step may be the cheaper one, and the engine would take it; of all of them it is not.
MODES = [
    ("eager", ["--graph", "off"]),
    ("piecewise", ["--graph", "required", "--graph-decode", "piecewise", "--graph-prefill", "piecewise"]),
    ("whole", ["--graph", "required", "--graph-decode", "whole", "--graph-prefill", "piecewise"]),
]
CHUNK = 8192  # three repeats, whose median knows its operators: a first prefill of a size plans each anew
FACTORS = (1, 2, 5)
READINGS = ("model", "published")

# Shapes that are no folder of the test data: another one's config.json with these fields.
MADE = {
    "qwen3-8b": ("qwen3-32b", {"hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36,
                               "num_attention_heads": 32}),
    "qwen3-1.7b": ("qwen3-32b", {"hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28,
                                 "num_attention_heads": 16, "tie_word_embeddings": True}),
    # What one of eight ranks holds in tensor parallelism.
    "qwen3-32b-tp8": ("qwen3-32b", {"intermediate_size": 3200, "num_attention_heads": 8, "num_key_value_heads": 1,
                                    "vocab_size": 18992}),
    "qwen3-32b-static": ("qwen3-32b", {}),
    "deepseek-v3": ("deepseek-v2-lite", {"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3"}),
    "qwen1.5-moe-a2.7b": ("qwen3-30b-a3b", {
        "architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe", "intermediate_size": 5632,
        "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632, "num_hidden_layers": 24,
        "num_attention_heads": 16, "num_key_value_heads": 16, "num_experts": 60, "num_experts_per_tok": 4,
        "norm_topk_prob": False}),
    # Two of 16 ranks that hold Qwen3-235B-A22B: four share out a sequence's heads, and all the experts. A rank has 16
    # heads of queries, one of keys and 8 experts. Four groups of four ranks have a batch each, and with loads that are
    # even these two get four rows for each of their own tokens, as if it chose four of their experts.
    "qwen3-235b-of-16": ("qwen3-30b-a3b", {
        "hidden_size": 4096, "moe_intermediate_size": 1536, "num_hidden_layers": 94, "num_attention_heads": 32,
        "num_key_value_heads": 2, "num_experts": 16, "num_experts_per_tok": 4}),
}
# Flags with which a shape is run. Two ranks exchange what all of them would, and as often.
MADE_FLAGS = {"qwen3-235b-of-16": ["--tp-size", "2", "--ep-size", "2"]}


# The description of a W8A8 checkpoint whose activations all have one scale, known beforehand (ModelSlim).
def static_description(layers):
    parts = [f"self_attn.{part}_proj" for part in "qkvo"] + [f"mlp.{part}_proj" for part in ("gate", "up", "down")]
    names = [f"model.layers.{n}.{part}.weight" for n in range(layers) for part in parts]
    return {**dict.fromkeys(names, "W8A8"), "lm_head.weight": "FLOAT"}


def deviation(model, measured):
    return f"{(model / measured - 1) * 100:+.0f} %"


def spread(values, form="{:.2f}"):
    """"2.0 to 3.2", or one number where both are it."""
    low, high = form.format(min(values)), form.format(max(values))
    return low if low == high else f"{low} to {high}"


class Model:
    def __init__(self, args):
        self.args = args
        self.known = json.loads(args.keep.read_text()) if args.keep and args.keep.is_file() else {}
        # What another build gave says nothing of this one.
        build = hashlib.sha256()
        for file in (args.binary, args.binary.parent / "../lib/ascend-sim/libascendcl.so"):
            build.update(file.read_bytes())
        if self.known.setdefault("build", build.hexdigest()) != build.hexdigest():
            print(f"{args.keep} is of another build: all is run again", file=sys.stderr)
            self.known = {"build": build.hexdigest()}
        self.made = tempfile.TemporaryDirectory()
        self.notes = None

    def run(self, words, env):
        key = " ".join([f"{name}={value}" for name, value in sorted(env.items())] + words)
        key = key.replace(self.made.name, "made").replace(str(self.args.data), "data")
        if key not in self.known:
            done = subprocess.run([str(self.args.binary), *words], capture_output=True, text=True,
                                  env={**os.environ, **env})
            if done.returncode != 0:
                sys.exit(f"{key}\n{done.stderr[-2000:]}")
            self.known[key] = json.loads(done.stdout)
            print(f"done: {key}", file=sys.stderr, flush=True)
            if self.args.keep:
                self.args.keep.write_text(json.dumps(self.known))
        return self.known[key]

    def run_fresh(self, words, env):
        done = subprocess.run([str(self.args.binary), *words], capture_output=True, text=True,
                              env={**os.environ, **env})
        if done.returncode != 0:
            sys.exit(f"{' '.join(words)}\n{done.stderr[-2000:]}")

    def path(self, folder):
        if folder not in MADE:
            return str(self.args.data / "shapes" / folder)
        to = pathlib.Path(self.made.name) / folder
        if not to.is_dir():
            base, fields = MADE[folder]
            config = {**json.loads((self.args.data / "shapes" / base / "config.json").read_text()), **fields}
            to.mkdir()
            (to / "config.json").write_text(json.dumps(config))
            if folder.endswith("-static"):
                (to / "quant_model_description.json").write_text(
                    json.dumps(static_description(config["num_hidden_layers"])))
        return str(to)

    def layers(self, folder):
        return json.loads((pathlib.Path(self.path(folder)) / "config.json").read_text())["num_hidden_layers"]

    def constants(self, rates="model"):
        """Lines of the model's constants; one short run tells them."""
        words = ["bench", "ops", "--json", "--device", "ascend", "--ascend-runtime", "sim", "--dtype", "bfloat16",
                 "--model", "B", "--tokens", "1", "--filter", "rms_norm"]
        env = {"ASCEND_SIM_COMPUTE": "0", "ASCEND_SIM_SOC": self.args.soc}
        return self.run(words, env if rates == "model" else {**env, "ASCEND_SIM_RATES": rates})["clock_note"]

    def constant(self, what, rates="model"):
        """The number of a constant by the beginning of its line."""
        line = next(line for line in self.constants(rates) if line.startswith(what))
        return float(re.search(r": (?:at least )?([0-9][0-9.e+]*)", line[len(what) - 1:]).group(1))

    def bandwidth(self):
        """Bytes per microsecond."""
        line = next(line for line in self.constants() if " GB/s" in line)
        return float(re.search(r"([0-9.]+) GB/s", line).group(1)) * 1e3

    def bench(self, folder, quantisation, batches, input_len, *flags, layers=None, env=None, output_len=6):
        """{batch: (decode step ms, prefill ms)}"""
        words = ["bench", "one-batch", "--json", "--device", "ascend", "--ascend-runtime", "sim", "--dtype", "bfloat16",
                 "--load-format", "dummy", "--repeat", "3", "--log-level", "error", "--output-len", str(output_len),
                 "--chunked-prefill-size", str(CHUNK), "--model-path", self.path(folder), "--quantization", quantisation,
                 "--batch-size", ",".join(map(str, batches)), "--input-len", str(input_len), *map(str, flags)]
        if layers:
            words += ["--override", f"num_hidden_layers={layers}"]
        env = {"ASCEND_SIM_COMPUTE": "0", "ASCEND_SIM_SOC": self.args.soc, **(env or {})}
        rows = self.run(words, env)["rows"]
        return {r["batch_size"]: (r["step_ms_p50"], r["batch_size"] * r["input_len"] / r["prefill_tok_s"] * 1e3)
                for r in rows}

    def whole_model(self, folder, *args, depths=DEPTHS, **kwargs):
        """As bench(), for all layers, from two depths."""
        few, more = (self.bench(folder, *args, layers=n, **kwargs) for n in depths)
        scale = (self.layers(folder) - depths[0]) / (depths[1] - depths[0])
        return {b: tuple(x + (y - x) * scale for x, y in zip(few[b], more[b])) for b in few}

    def all_layers(self, folder, *args, depths=DEPTHS, **kwargs):
        """Likewise, of the layers alone: what one costs, times their number."""
        few, more = (self.bench(folder, *args, "--override", "vocab_size=2048", layers=n, **kwargs) for n in depths)
        scale = self.layers(folder) / (depths[1] - depths[0])
        return {b: tuple((y - x) * scale for x, y in zip(few[b], more[b])) for b in few}


def sizes_for(batches, input_len):
    """Flags that capture what these batches need and nothing else."""
    tokens = {min(CHUNK, b * input_len) for b in batches} | {b * input_len % CHUNK for b in batches} - {0}
    return ["--graph-decode-sizes", ",".join(map(str, batches)),
            "--graph-prefill-sizes", ",".join(map(str, sorted(tokens)))]


def mode_rows(model, shapes, length):
    """A line for each shape and batch: decode and prefill in every mode."""
    batches, lines = model.args.batches, []
    for name, folder, quantisation in shapes:
        got = {mode: model.whole_model(folder, quantisation, batches, length, *flags,
                                       *([] if mode == "eager" else sizes_for(batches, length)))
               for mode, flags in MODES}
        for b in batches:
            (eager, prompt), (pieces, prompt_pieces), (whole, _) = (got[mode][b] for mode, _ in MODES)
            lines.append(f"| {name} | {b} | {eager:.2f} | {pieces:.2f} | {whole:.2f} | {eager / whole:.2f} | "
                         f"{prompt:.1f} | {prompt_pieces:.1f} | {prompt / prompt_pieces:.3f} |")
    return lines


def part_modes(model):
    lines = ["| model | batch | decode ms: eager | piecewise | whole | eager / whole | prefill ms: eager | piecewise | "
             "ratio |", "|---|---|---|---|---|---|---|---|---|"]
    return lines + mode_rows(model, SHAPES, model.args.input_len)


OVERLAPPED = [("Qwen3-8B bf16", "qwen3-8b", "none"), ("Qwen3-32B W8A8", "qwen3-32b", "w8a8_int8")]


def part_overlap(model):
    """An answer of two tokens has one decode step. Nothing is submitted behind it, as without overlap."""
    batches, length = [1, 16], 512
    lines = ["| model | batch | TPOT ms: one step at a time | overlapped | saved us | saved |",
             "|---|---|---|---|---|---|"]
    for name, folder, quantisation in OVERLAPPED:
        flags = [*MODES[2][1], *sizes_for(batches, length)]
        alone, ahead = (model.whole_model(folder, quantisation, batches, length, *flags, output_len=n) for n in (2, 6))
        lines += [f"| {name} | {b} | {alone[b][0]:.3f} | {ahead[b][0]:.3f} | {(alone[b][0] - ahead[b][0]) * 1e3:.0f} | "
                  f"{(1 - ahead[b][0] / alone[b][0]) * 100:.2f} % |" for b in batches]
    return lines


def die_of_a3(model):
    """The constants of a die are those of a 910B2."""
    die = copy.copy(model)
    die.args = copy.copy(model.args)
    die.args.soc = "Ascend910B2"
    return die


def part_modes_a3(model):
    return part_modes(die_of_a3(model))


def part_proof(model):
    name, folder, quantisation = SHAPES[0]
    batches, length = [16], 512
    lines = ["| mode | decode ms: two depths | all layers | prefill ms: two depths | all layers |", "|---|---|---|---|---|"]
    for mode, flags in (MODES[0], MODES[2]):
        flags = [*flags, *([] if mode == "eager" else sizes_for(batches, length))]
        short = model.whole_model(folder, quantisation, batches, length, *flags, depths=DEEP)[16]
        full = model.bench(folder, quantisation, batches, length, *flags)[16]
        lines.append(f"| {name}, {mode} | {short[0]:.3f} | {full[0]:.3f} | {short[1]:.2f} | {full[1]:.2f} |")
    return lines


def part_fia(model):
    lines = ["| context | prefill ms: FIA | pair | pair / FIA |", "|---|---|---|---|"]
    for context in (128, 512, 2048, 8192, 32768, 65536):
        prompt, pair = (
            model.all_layers("llama-3.1-8b", "none", [1], context, "--graph", "required", *sizes_for([1], context),
                             env={"ASCEND_USE_FIA": fia})[1][1] for fia in ("true", "false"))
        lines.append(f"| {context} | {prompt:.1f} | {pair:.1f} | {pair / prompt:.2f} |")
    return lines


# Prompts of 64 tokens, so that a batch is a prefill of 64 tokens each and a decode step of one row each.
SHORT = 64
SHORT_BATCHES = [1, 2, 4, 8, 16, 32, 64]


def short_prompts(model, graphs, fused, n):
    name, folder, quantisation = SHAPES[0]
    flags = ["--graph", "required", *sizes_for(SHORT_BATCHES, SHORT)] if graphs else ["--graph", "off"]
    return model.all_layers(folder, quantisation, SHORT_BATCHES, SHORT, *flags, *([] if fused else ["--passes", "none"]),
                            depths=DEEP, env={"ASCEND_SIM_LAUNCH_FACTOR": str(n)})


def part_prefill(model):
    lines = ["| tokens | " + " | ".join(f"x{n}: eager ms | piecewise | ratio" for n in FACTORS) + " |",
             "|---" * (1 + 3 * len(FACTORS)) + "|"]
    for batch in SHORT_BATCHES:
        row = [f"| {batch * SHORT}"]
        for n in FACTORS:
            eager, pieces = (short_prompts(model, graphs, True, n)[batch][1] for graphs in (False, True))
            row += [f"{eager:.2f}", f"{pieces:.2f}", f"{eager / pieces:.3f}"]
        lines.append(" | ".join(row) + " |")
    return lines


def part_decode(model):
    lines = ["| launches | batch | eager ms: unfused | fused | whole ms: unfused | fused | gain, eager | gain, whole | "
             "eager / whole |", "|---|---|---|---|---|---|---|---|---|"]
    for n in FACTORS:
        got = [short_prompts(model, graphs, fused, n) for graphs in (False, True) for fused in (False, True)]
        for b in (1, 16, 32, 64):
            eager_parts, eager, whole_parts, whole = (g[b][0] for g in got)
            lines.append(f"| x{n} | {b} | {eager_parts:.2f} | {eager:.2f} | {whole_parts:.2f} | {whole:.2f} | "
                         f"{eager_parts / eager:.3f} | {whole_parts / whole:.3f} | {eager / whole:.3f} |")
    return lines


def op_rows(model):
    """Name, tokens, graph us of the fused kernel and its parts, the same launched one by one, the original's ratio."""
    tokens = [1, 16, 64]

    def rows(op):
        report = model.run(["bench", "ops", "--json", "--device", "ascend", "--ascend-runtime", "sim", "--dtype",
                            "bfloat16", "--model", "B", "--tokens", ",".join(map(str, tokens)), "--filter", op],
                           {"ASCEND_SIM_COMPUTE": "0", "ASCEND_SIM_SOC": model.args.soc})
        return {r["tokens"]: r for r in report["rows"]}

    out = []
    for op in ("add_rms_norm", "silu_mul", "silu_mul_quant", "add_rms_norm_quant_dynamic"):
        out += [(f"`{op}`", n, r["fused_us"], r["unfused_us"], r["eager_fused_us"], r["eager_unfused_us"], None)
                for n, r in rows(op).items()]
    # "From two": the original started from the fused sum and norm, and the quantising op.
    norm = rows("add_rms_norm")
    for op, quant in (("add_rms_norm_quant_dynamic", "quantize_dynamic"),
                      ("add_rms_norm_quant_divided", "quantize_static")):
        whole, alone = rows(op), rows(quant)
        out += [(f"`{op}`, from two", n, whole[n]["fused_us"], norm[n]["fused_us"] + alone[n]["fused_us"],
                 whole[n]["eager_fused_us"], norm[n]["eager_fused_us"] + alone[n]["eager_fused_us"], NORM_RATIO)
                for n in tokens]
    # Two norms and a rotation in one kernel: no operator of the vendor does that. A launch of the norm stands for each.
    out += [("two norms and a rotation (no such kernel)", n, r["fused_us"], 3 * r["fused_us"], r["eager_fused_us"],
             3 * r["eager_fused_us"], ROTATION_RATIO) for n, r in rows("rms_norm").items()]
    return out


def part_ops(model):
    lines = ["| kernel | tokens | graph us: fused | parts | ratio | eager us: fused | parts | ratio | original |",
             "|---|---|---|---|---|---|---|---|---|"]
    for name, n, fused, parts, eager, eager_parts, original in op_rows(model):
        lines.append(f"| {name} | {n} | {fused:.2f} | {parts:.2f} | {fused / parts:.3f} | {eager:.2f} | {eager_parts:.2f} | "
                     f"{eager / eager_parts:.3f} | {f'{original:.3f} ' if original else ''}|")
    return lines


def part_queues(model):
    lines = ["| layers | driver | decode: queues per size | sizes | prefill: queues per size | captured | left out | "
             "queues held |", "|---|---|---|---|---|---|---|---|"]
    for layers in (36, 61, 94):
        for stack, driver in (("old", "before 25.5"), ("new", "25.5 and later")):
            report = model.run(
                ["graph", "explain", "--json", "--log-level", "error", "--load-format", "dummy", "--dtype", "bfloat16",
                 "--graph-warmups", "0", "--max-running-requests", "256", "--chunked-prefill-size", "4096",
                 "--max-total-tokens", "8192", "--override", f"num_hidden_layers={layers}", "--override", "head_dim=128",
                 "--device", "ascend", "--ascend-runtime", "sim", "--model-path",
                 str(HERE.parent / "tests/data/models/qwen3_untied")],
                {"ASCEND_SIM_COMPUTE": "0", "ASCEND_SIM_STACK": stack})["queues"]
            decode, prefill = report["phases"]
            left = prefill["left_out"]
            lines.append(f"| {layers} | {driver} | {decode['queues_of_a_size']} | {len(decode['kept'])} | "
                         f"{prefill['queues_of_a_size']} | {len(prefill['kept'])} | {len(left)} | "
                         f"{report['used']} of {report['total']} |")
    return lines


# Kernels of a public profile: vLLM in eager mode, Qwen3-32B over 16 dies of an A3, batches of 1 to 32 and prefill up to
# 4,096 tokens (Horacehxw/msModeling, qwen332b_compute_ops.csv). Name, mean and standard deviation in us, bytes that the
# decode shapes of that run move with `rows` rows; a rank has 4 heads of 128, 1 of keys, 1,600 of the inner size.
HIDDEN, INNER, HEAD, VOCABULARY = 5120, 1600, 128, 151936
PRODUCTS = 4 * [(HIDDEN, 6 * HEAD), (4 * HEAD, HIDDEN), (HIDDEN, 2 * INNER), (INNER, HIDDEN)]
PROFILE = [
    ("AddRmsNorm (with bias)", 6.1, 4.2, lambda rows: 4 * rows * HIDDEN * 2 + HIDDEN * 2),
    ("SwiGlu", 5.6, 3.7, lambda rows: rows * 3 * INNER * 2),
    ("rotation (a Triton kernel)", 5.5, 6.7, lambda rows: rows * (2 * 5 + 1) * HEAD * 2),
    ("cache write", 3.9, 3.4, lambda rows: 2 * rows * HEAD * 2),
    ("Slice", 2.6, 0.6, lambda rows: 2 * rows * HEAD * 2),
    ("Cast", 2.4, 2.8, lambda rows: 3 * rows * HEAD * 2),
    ("ArgMax over the vocabulary", 88, 54, lambda rows: rows * VOCABULARY * 4),
]
# Host time of one update of captured attention, us: system, chip, published.
UPDATES = [
    ("vLLM Ascend #15579, paged attention of ATB, 28 layers", "910B", (86, 105)),
    ("the same after a change", "910B", (59,)),
    ("vLLM Ascend #13058, FusedInferAttentionScore, 20 layers", "910B3", (184,)),
]


def part_kernels(model):
    bandwidth = model.bandwidth()
    vector = model.constant("device: start of a vector kernel"), model.constant("share of the bandwidth that other")
    matrix = model.constant("device: start of a matrix kernel"), model.constant("share of the bandwidth that matrix")
    lines = ["| kernel | measured mean, us | standard deviation | the model, us | deviation |", "|---|---|---|---|---|"]
    # Weights only: the rows of a step add next to nothing.
    head = (HIDDEN, VOCABULARY // 16)
    products = 64 * PRODUCTS[:4] + [head]
    mean = matrix[0] + sum(2 * n * k for n, k in products) / len(products) / (bandwidth * matrix[1])
    lines.append(f"| MatMul (decode) | 18.9 | 13.8 | {mean:.1f} | {deviation(mean, 18.9)} |")
    lines.append("| FusedInferAttentionScore | 25.2 | 15.9 | depends on contexts that are not given | |")
    for name, measured, sigma, moved in PROFILE:
        each = [vector[0] + moved(rows) / (bandwidth * vector[1]) for rows in (1, 32)]
        off = [deviation(us, measured) for us in each]
        lines.append(f"| {name} | {measured:g} | {sigma:g} | {spread(each, '{:.1f}')} | "
                     f"{off[0] if off[0] == off[1] else ' to '.join(off)} |")
    return lines


def part_updates(model):
    phases = next(n for n in model.constants() if n.startswith("host: phase 1"))
    retiled, launch = (float(re.search(pattern, phases).group(1)) for pattern in (r"([0-9.]+) us with new ones in",
                                                                                 r"phase 2: ([0-9.]+)"))
    own = retiled + launch + model.constant("host: a task update")
    lines = ["| system | chip | us per layer | the model, us | deviation |", "|---|---|---|---|---|"]
    for system, chip, published in UPDATES:
        off = " to ".join(deviation(own, us) for us in published)
        lines.append(f"| {system} | {chip} | {spread(published, '{:g}')} | {own:g} | {off} |")
    return lines


def readings(model, *args, **kwargs):
    """whole_model() in both readings."""
    return [model.whole_model(*args, env={} if rates == "model" else {"ASCEND_SIM_RATES": rates}, **kwargs)
            for rates in READINGS]


# Published steps: name, figures in ms, shape, quantisation, batch, context in the middle of the run, over ranks.
COLLECTIVES = 129  # of a step over ranks: two in each of 64 layers, one behind the head
COLLECTIVE_US = 10  # of each (assumed: what the vendor's performance model has for a start; no bytes)
STEPS = [
    ("xLLM, Qwen3-8B bf16", (14.74, 14.81), "qwen3-8b", "none", 1, 2560, False),
    ("xLLM, Qwen3-1.7B bf16", (5.60, 5.11), "qwen3-1.7b", "none", 1, 2560, False),
    ("aclgraph, Qwen3-32B bf16, 8 ranks", (16.75,), "qwen3-32b-tp8", "none", 1, 1024, True),
    ("xlite, Qwen3-32B bf16, 8 ranks", (12.78,), "qwen3-32b-tp8", "none", 1, 1024, True),
    ("SGLang, Qwen3-8B W8A8, 64 requests", (37,), "qwen3-8b", "w8a8_int8", 64, 4250, False),
]


def part_steps(model):
    lines = ["| | published, ms | model, ms | deviation | reading published, ms | deviation |", "|---|---|---|---|---|---|"]
    for name, published, folder, quantisation, batch, context, ranks in STEPS:
        both = readings(model, folder, quantisation, [batch], context, "--graph", "required", "--graph-prefill",
                        "piecewise", *sizes_for([batch], context))
        times = [r[batch][0] + (COLLECTIVES * COLLECTIVE_US / 1e3 if ranks else 0) for r in both]
        cells = [f"{ms:.2f} | {' to '.join(dict.fromkeys(deviation(ms, p) for p in published))}" for ms in times]
        lines.append(f"| {name} | {', '.join(f'{p:g}' for p in published)} | {' | '.join(cells)} |")
    return lines


# One model over several cards: name, shape, quantisation, numbers of cards. A card is a process of the engine, and the
# simulator's HCCL takes 10 us a meeting and 28 GB/s between two cards, both assumed (docs/ascend.md).
RANKED = [("Qwen3-32B bf16", "qwen3-32b", "none", (2, 4, 8)), ("Qwen3-32B W8A8", "qwen3-32b", "w8a8_int8", (2, 4))]


def part_ranks(model):
    batches, context = model.args.batches, model.args.input_len
    heads = [f"{b}{' row' if b == 1 else ''}: gather | reduce" for b in batches]
    lines = ["| ms | cards | " + " | ".join(heads) + " | prefill: gather | reduce |", "|---" * (2 * len(heads) + 4) + "|"]
    for name, folder, quantisation, numbers in RANKED:
        for cards in numbers:
            got = {form: model.whole_model(folder, quantisation, batches, context, "--graph", "required",
                                           "--graph-prefill", "piecewise", *sizes_for(batches, context),
                                           "--tp-size", str(cards), "--tp-form", form)
                   for form in ("gather", "reduce")}
            cells = [f"{got[form][b][0]:.2f}" for b in batches for form in got]
            cells += [f"{got[form][batches[0]][1]:.2f}" for form in got]
            lines.append(f"| {name} | {cards} | {' | '.join(cells)} |")
    return lines


def part_shared_experts(model):
    """The same over cards whose experts are cut by rows, and over cards that have whole ones."""
    batches, context, cards = model.args.batches, 512, 4
    words = ["--graph", "required", "--graph-prefill", "piecewise", *sizes_for(batches, context),
             "--tp-size", str(cards)]
    heads = [f"{b} row{'s' if b > 1 else ''}" for b in batches] + ["prefill"]
    lines = [f"| ms | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    for name, more in (("a quarter of each expert", []), ("32 of 128 experts", ["--ep-size", str(cards)])):
        got = model.whole_model("qwen3-30b-a3b", "none", batches, context, *words, *more, depths=(1, 2))
        lines.append(f"| {name} | {' | '.join(f'{got[b][0]:.2f}' for b in batches)} | {got[batches[0]][1]:.1f} |")
    return lines


# DeepSeek-V3 over 16 dies of an A3, whose experts are shared out and each of which attends to requests of its own: what
# one die has and does. With loads that are even, its 16 experts get 8 rows for each of its own tokens, as if these chose
# among them alone. Links by the vendor's own model (msModeling, tensor_cast/device.py): 10 us a collective, 0.5 us and
# 196 GB/s in a node, of which 0.7 is reached.
DIES = 16
EXPERT_RANK = {"n_routed_experts": 256 // DIES, "n_group": 1, "topk_group": 1, "moe_intermediate_size": 2048}
COLLECTIVE_US, HOP_US, LINK_BYTES_PER_US = 10, 0.5, 196e3 * 0.7
EXPERT_BATCHES, EXPERT_CONTEXT = [16, 32, 64], 4250  # a die; half an answer behind the prompt of 3,500 + 1,500


def exchange_us(tokens, bytes_of_a_number):
    """Rows of a die's tokens to their experts, or back."""
    rows = tokens * DEEPSEEK_V3["num_experts_per_tok"] * (DIES - 1) / DIES
    return COLLECTIVE_US + HOP_US + rows * DEEPSEEK_V3["hidden_size"] * bytes_of_a_number / LINK_BYTES_PER_US


def part_expert_ranks(model):
    die, batches = die_of_a3(model), EXPERT_BATCHES
    layers, dense = 61, 3

    def bench(first_dense, rates):
        """Milliseconds that a layer more takes, and what is no layer: {batch: (layer, rest)}."""
        words = ["--graph", "required", "--graph-prefill", "piecewise", *sizes_for(batches, EXPERT_CONTEXT)]
        changed = {"first_k_dense_replace": first_dense, "vocab_size": 129280}
        for name, value in (DEEPSEEK_V3 | EXPERT_RANK | changed).items():
            if name not in ("architectures", "model_type"):
                words += ["--override", f"{name}={json.dumps(value) if isinstance(value, bool) else value}"]
        env = {"ASCEND_SIM_RATES": rates} if rates != "model" else {}
        one, two = (die.bench("deepseek-v3", "w8a8_int8", batches, EXPERT_CONTEXT, *words, layers=n, env=env)
                    for n in (1, 2))
        return {b: (two[b][0] - one[b][0], 2 * one[b][0] - two[b][0]) for b in batches}

    lines = ["| requests of a die | of all | exchange, ms | model: ms | tok/s a card | published: ms | "
             "tok/s a card |", "|---" * 7 + "|"]
    got = {rates: (bench(0, rates), bench(layers, rates)) for rates in READINGS}
    for b in batches:
        sent = (layers - dense) * (exchange_us(b, 1) + exchange_us(b, 2)) / 1e3
        cells = []
        for rates in READINGS:
            (expert, rest), (plain, _) = got[rates][0][b], got[rates][1][b]
            step = rest + (layers - dense) * expert + dense * plain + sent
            cells += [f"{step:.1f}", f"{2 * b / step * 1e3:,.0f}"]
        lines.append(f"| {b} | {DIES * b} | {sent:.2f} | {' | '.join(cells)} |")
    return lines


# Published times between tokens with a draft model: shape, tokens of the prompt and of the answer, ms. SGLang's best
# practice for Qwen3-8B on one die of an A3 (ascend_npu_best_practice.md); how many drafts came true is not told there.
SPECULATION = [("Qwen3-8B W8A8", "qwen3-8b", "w8a8_int8", 3500, 1500, 5.0),
               ("Qwen3-8B W8A8", "qwen3-8b", "w8a8_int8", 6000, 1500, 11.79)]
WIDTHS = (2, 4, 8)


def drafted(model, folder, quantisation, context, width):
    """A step that verifies width - 1 drafts of one sequence, ms. Kernels compute nothing, and the benchmark drafts the
    token that they give again and again."""
    def at(layers):
        words = ["bench", "one-batch", "--json", "--device", "ascend", "--ascend-runtime", "sim", "--dtype", "bfloat16",
                 "--load-format", "dummy", "--repeat", "3", "--log-level", "error", "--output-len", str(12 * width),
                 "--chunked-prefill-size", str(CHUNK), "--model-path", model.path(folder),
                 "--quantization", quantisation, "--batch-size", "1", "--input-len", str(context),
                 "--graph", "required", "--graph-prefill", "piecewise", *sizes_for([1], context),
                 "--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", str(width),
                 "--speculative-adaptive", "off", "--override", f"num_hidden_layers={layers}"]
        row = model.run(words, {"ASCEND_SIM_COMPUTE": "0", "ASCEND_SIM_SOC": model.args.soc})["rows"][0]
        assert row["tokens_per_step"] > 0.9 * width, f"{row['tokens_per_step']} tokens a step, not {width}"
        return row["step_ms_p50"]
    few, more = (at(n) for n in DEPTHS)
    return few + (more - few) * (model.layers(folder) - DEPTHS[0]) / (DEPTHS[1] - DEPTHS[0])


def part_speculation(model):
    die = die_of_a3(model)
    lines = ["| | context | C(1) ms | " + " | ".join(f"C({w})" for w in WIDTHS) + " | C(4) / C(1) | "
             "C(4) / 2 | C(4) / 3 | published | tokens needed |",
             "|---" * (len(WIDTHS) + 8) + "|"]
    for name, folder, quantisation, prompt, answer, published in SPECULATION:
        context = prompt + answer // 2
        plain = die.whole_model(folder, quantisation, [1], context, "--graph", "required", "--graph-prefill", "piecewise",
                                *sizes_for([1], context))[1][0]
        steps = {w: drafted(die, folder, quantisation, context, w) for w in WIDTHS}
        cells = " | ".join(f"{steps[w]:.2f}" for w in WIDTHS)
        lines.append(f"| {name} | {context} | {plain:.2f} | {cells} | {steps[4] / plain:.2f} | {steps[4] / 2:.2f} | "
                     f"{steps[4] / 3:.2f} | {published:g} | {steps[4] / published:.2f} |")
    return lines


def part_first(model):
    lines = ["| | published, ms | 910B3, ms | deviation | die of an A3, ms | deviation |", "|---|---|---|---|---|---|"]
    published = (134.8, 126)
    first = [m.whole_model("qwen3-8b", "none", [1], 2048, "--graph", "required", "--graph-prefill", "piecewise",
                           *sizes_for([1], 2048))[1][1] for m in (model, die_of_a3(model))]
    cells = [f"{ms:.0f} | {' to '.join(deviation(ms, p) for p in published)}" for ms in first]
    lines.append(f"| xLLM, Qwen3-8B bf16, a prompt of 2,048 | 134.8, 126 | {' | '.join(cells)} |")
    return lines


# Kernels of the original before and after its passes, us: norm with quantisation, two norms with the rotation.
NORM_US, ROTATION_US = (29, 19), (62, 25)
NORM_RATIO, ROTATION_RATIO = (after / before for before, after in (NORM_US, ROTATION_US))
# The original's run of Qwen3-32B W8A8 (#15332): batch, output tokens per second before and after its two passes, and the
# seconds that it took before. GSM8K has 1,319 questions.
QUESTIONS = 1319
ORIGINAL_DECODE = [(16, 454.471, 480.432, 826.420), (32, 684.102, 720.576, 536.163), (64, 944.312, 969.680, 378.931)]
NORM_QUANT = "add_rms_norm_quant_static"
SHOTS = 900  # tokens of five solved questions and a sixth, about
# Of Llama-3.1-8B with 128 requests at a time (#12287): seconds and output tokens per second, eager and piecewise.
ORIGINAL_PREFILL = ((67.817, 1769.183), (56.924, 2079.687))


def static_steps(model, rates, fused):
    batches = [b for b, *_ in ORIGINAL_DECODE]
    return model.whole_model("qwen3-32b-static", "modelslim", batches, SHOTS, "--graph", "required", "--graph-prefill",
                             "piecewise", *sizes_for(batches, SHOTS), *([] if fused else ["--disable-pass", NORM_QUANT]),
                             env={} if rates == "model" else {"ASCEND_SIM_RATES": rates})


def rotation_saving(model, rates, batch):
    """Milliseconds that two norms of all heads take in every layer of a step of the 64 layers, with their gaps."""
    bandwidth, share = model.bandwidth(), model.constant("share of the bandwidth that other")
    start, gap = model.constant("device: start of a vector kernel"), model.constant("device: gap between kernels of a")
    least = model.constant("published rates: aclnnRmsNorm", rates) if rates == "published" else 0
    each = [max(start + 2 * batch * heads * HEAD * 2 / (bandwidth * share), least) + gap for heads in (64, 8)]
    return model.layers("qwen3-32b-static") * sum(each) / 1e3


def part_passes(model):
    lines = ["| reading | batch | decode ms: parts | norm with quantisation | gain | both passes | gain | the original |",
             "|---|---|---|---|---|---|---|---|"]
    for rates in READINGS:
        parts, fused = (static_steps(model, rates, on) for on in (False, True))
        for batch, before, after, _ in ORIGINAL_DECODE:
            both = fused[batch][0] - rotation_saving(model, rates, batch)
            lines.append(f"| {rates} | {batch} | {parts[batch][0]:.2f} | {fused[batch][0]:.2f} | "
                         f"{parts[batch][0] / fused[batch][0]:.3f} | {both:.2f} | {parts[batch][0] / both:.3f} | "
                         f"{after / before:.3f} |")
    return lines


def part_speeds(model):
    lines = ["| batch | the original, ms a token | model, ms | deviation | reading published, ms | deviation | "
             "its kernels |", "|---|---|---|---|---|---|---|"]
    saved = model.layers("qwen3-32b-static") * (
        2 * (NORM_US[0] - NORM_US[1]) + ROTATION_US[0] - ROTATION_US[1]) / 1e3
    steps = [static_steps(model, rates, False) for rates in READINGS]
    for batch, before, *_ in ORIGINAL_DECODE:
        token = batch / before * 1e3
        cells = " | ".join(f"{s[batch][0]:.1f} | {deviation(s[batch][0], token)}" for s in steps)
        lines.append(f"| {batch} | {token:.1f} | {cells} | {token / (token - saved):.3f} |")
    return lines


def part_end_to_end(model):
    lines = ["| launches | new tokens | decode s | prefill s: eager | piecewise | whole run s: eager | piecewise | ratio |",
             "|---|---|---|---|---|---|---|---|"]
    (seconds, speed), (seconds_after, speed_after) = ORIGINAL_PREFILL
    answers = (seconds * speed + seconds_after * speed_after) / 2
    for n in FACTORS:
        env = {"ASCEND_SIM_LAUNCH_FACTOR": str(n)}
        step = model.whole_model("llama-3.1-8b", "none", [128], SHOTS, "--graph-prefill", "off", "--graph-decode-sizes",
                                 "128", env=env)[128][0]
        decode = answers / 128 * step / 1e3
        for new in (128, SHOTS):
            eager, pieces = (
                QUESTIONS * model.whole_model("llama-3.1-8b", "none", [1], new, *flags, env=env)[1][1] / 1e3
                for flags in (["--graph", "off"], ["--graph", "required", *sizes_for([1], new)]))
            lines.append(f"| x{n} | {new} | {decode:.1f} | {eager:.1f} | {pieces:.1f} | {decode + eager:.1f} | "
                         f"{decode + pieces:.1f} | {(decode + eager) / (decode + pieces):.3f} |")
    lines.append(f"| the original | not given | | | | {seconds:.1f} | {seconds_after:.1f} | {speed_after / speed:.3f} |")
    return lines


def part_mla(model):
    lines = ["| dtype | batch | decode ms: eager | piecewise | whole | eager / whole | prefill ms: eager | "
             "piecewise | ratio |", "|---|---|---|---|---|---|---|---|---|"]
    shapes = [(name, "deepseek-v2-lite", q) for name, q in (("bf16", "none"), ("W8A8", "w8a8_int8"))]
    return lines + mode_rows(model, shapes, 512)


def part_readings(model):
    lines = ["| model | batch | whole decode ms: model | published | published / model |", "|---|---|---|---|---|"]
    batches, length = model.args.batches, model.args.input_len
    for name, folder, quantisation in SHAPES + [("Qwen3-0.6B bf16", "qwen3-0.6b", "none")]:
        both = readings(model, folder, quantisation, batches, length, *MODES[2][1], *sizes_for(batches, length))
        for b in batches:
            own, published = (r[b][0] for r in both)
            lines.append(f"| {name} | {b} | {own:.2f} | {published:.2f} | {published / own:.2f} |")
    return lines


def part_experts(model):
    lines = ["| batch | decode ms: bf16 | W8A8 parts | W8A8 | bf16 / W8A8 | prefill tok/s: bf16 | W8A8 parts | W8A8 | "
             "W8A8 / bf16 |", "|---|---|---|---|---|---|---|---|---|"]
    batches, length = model.args.batches, 512
    flags = ["--graph", "required", "--graph-prefill", "piecewise", *sizes_for(batches, length)]
    got = [model.bench("qwen3-30b-a3b", quantisation, batches, length, *flags, *more, layers=4)
           for quantisation, more in (("none", []), ("w8a8_int8", ["--disable-pass", "grouped_silu_mul_quant"]),
                                      ("w8a8_int8", []))]
    for b in batches:
        steps, speeds = zip(*((g[b][0], b * length / g[b][1] * 1e3) for g in got))
        lines.append(f"| {b} | {steps[0]:.3f} | {steps[1]:.3f} | {steps[2]:.3f} | {steps[0] / steps[2]:.2f} | "
                     f"{speeds[0]:,.0f} | {speeds[1]:,.0f} | {speeds[2]:,.0f} | {speeds[2] / speeds[0]:.2f} |")
    return lines


def part_streams(model):
    lines = ["| model | dtype | batch | all layers, ms: one stream | two | gain |", "|---|---|---|---|---|---|"]
    batches, length = (1, 8, 32, 64), 512
    for name, folder in (("Qwen1.5-MoE-A2.7B", "qwen1.5-moe-a2.7b"), ("DeepSeek-V2-Lite", "deepseek-v2-lite"),
                         ("Qwen3-235B-A22B, one of 16 ranks", "qwen3-235b-of-16"), ("Qwen3-0.6B, dense", "qwen3-0.6b")):
        for dtype, quantisation in (("bf16", "none"), ("W8A8", "w8a8_int8")):
            flags = [*MODES[2][1], *sizes_for(batches, length), *MADE_FLAGS.get(folder, [])]
            one, two = (model.all_layers(folder, quantisation, batches, length, "--graph-streams", n, *flags)
                        for n in (1, 2))
            for b in batches:
                lines.append(f"| {name} | {dtype} | {b} | {one[b][0]:.3f} | {two[b][0]:.3f} | "
                             f"{100 * (one[b][0] / two[b][0] - 1):.1f} % |")
    return lines


def weights_ms(model, folder, quantisation):
    """What reading the weights of all layers of a dense model takes by itself, at the rate of long streams."""
    config = json.loads((pathlib.Path(model.path(folder)) / "config.json").read_text())
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    size = config.get("head_dim") or hidden // heads
    numbers = hidden * (size * (2 * heads + 2 * config["num_key_value_heads"]) + 3 * config["intermediate_size"])
    return numbers * (1 if quantisation == "w8a8_int8" else 2) * model.layers(folder) / (1.6 * 2**40 * 0.75) * 1e3


PREFETCHED = [  # name, folder, quantisation, whether every step reads all weights
    ("Qwen3-0.6B bf16", "qwen3-0.6b", "none", True),
    ("Llama-3.1-8B bf16", "llama-3.1-8b", "none", True),
    ("Qwen3-32B W8A8", "qwen3-32b", "w8a8_int8", True),
    ("Qwen3-32B bf16, one of eight ranks", "qwen3-32b-tp8", "none", True),
    ("Qwen1.5-MoE-A2.7B bf16", "qwen1.5-moe-a2.7b", "none", False),
    ("Qwen3-235B-A22B bf16, one of 16 ranks", "qwen3-235b-of-16", "none", False),
    ("Qwen3-235B-A22B W8A8, one of 16 ranks", "qwen3-235b-of-16", "w8a8_int8", False),
]


def part_prefetch(model):
    lines = ["| model | batch | all layers, ms: as they are | weights ahead | gain | time without reading weights |",
             "|---|---|---|---|---|---|"]
    batches, length = (1, 8, 32), 512
    for name, folder, quantisation, dense in PREFETCHED:
        flags = [*MODES[2][1], *sizes_for(batches, length), *MADE_FLAGS.get(folder, [])]
        plain, ahead = (model.all_layers(folder, quantisation, batches, length, *more, *flags)
                        for more in ([], ["--graph-prefetch-weights"]))
        for b in batches:
            idle = f"{100 * (1 - weights_ms(model, folder, quantisation) / plain[b][0]):.1f} %" if dense else ""
            lines.append(f"| {name} | {b} | {plain[b][0]:.3f} | {ahead[b][0]:.3f} | "
                         f"{100 * (plain[b][0] / ahead[b][0] - 1):.1f} % | {idle} |")
    return lines


def part_summary(model):
    lines = ["| | published | the model | deviation |", "|---|---|---|---|"]
    (_, speed), (_, speed_after) = ORIGINAL_PREFILL
    ratio = speed_after / speed

    def prefill(n, batch):
        eager, pieces = (short_prompts(model, graphs, True, n)[batch][1] for graphs in (False, True))
        return eager / pieces

    short, long = prefill(1, 1), prefill(1, SHORT_BATCHES[-1])
    lines.append(f"| piecewise prefill, the original | {ratio:.3f} x | {short:.2f} x at 64 tokens, {long:.2f} x at 4,096 | "
                 f"{deviation(short, ratio)} at 64 tokens |")
    short, middle = prefill(5, 1), prefill(5, 4)
    lines.append(f"| the same with launches five times as expensive | {ratio:.3f} x | {short:.2f} x at 64, {middle:.2f} x "
                 f"at 256 | {deviation(short, ratio)} at 64 tokens |")
    for rates in READINGS:
        parts, fused = (static_steps(model, rates, on) for on in (False, True))
        gains = [parts[b][0] / (fused[b][0] - rotation_saving(model, rates, b)) for b, *_ in ORIGINAL_DECODE]
        theirs = [after / before for _, before, after, _ in ORIGINAL_DECODE]
        off = [deviation(g, t) for g, t in zip(gains, theirs)]
        lines.append(f"| both passes, Qwen3-32B W8A8 static, reading {rates} | {spread(theirs, '{:.3f}')} x | "
                     f"{spread(gains, '{:.3f}')} x | {', '.join(off)} |")
    for name, what in (("`add_rms_norm_quant_divided`, from two", "norm with static quantisation in one kernel"),
                       ("`add_rms_norm_quant_dynamic`, from two", "the same, dynamic form"),
                       ("two norms and a rotation (no such kernel)", "two norms and the rotation in one, no such kernel")):
        rows = [(fused / parts, original) for op, _, fused, parts, *_, original in op_rows(model) if op == name]
        ratios, original = [r for r, _ in rows], rows[0][1]
        lines.append(f"| {what} | {original:.3f} | {spread(ratios)} | "
                     f"{' to '.join(dict.fromkeys(deviation(r, original) for r in (min(ratios), max(ratios))))} |")
    return lines


def part_constants(model):
    lines = []
    for rates in READINGS:
        notes = [n for n in model.constants(rates) if rates == "model" or n.startswith("published rates")]
        assumed = [n for n in notes if "assumed" in n]
        lines += [f"Reading {rates}, {len(assumed)} assumed:", ""] if rates == "model" else ["", "Reading published:", ""]
        lines += [f"- {note}" for note in assumed + [n for n in notes if n not in assumed]]
    return lines


# Launches of a layer. What a checkpoint of DeepSeek-V3 says of itself, with fewer and narrower experts: the number of
# launches depends on neither, and memory for the real ones is no single device's.
DEEPSEEK_V3 = {
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "hidden_size": 7168,
    "intermediate_size": 18432, "moe_intermediate_size": 256, "num_attention_heads": 128, "num_key_value_heads": 128,
    "q_lora_rank": 1536, "n_routed_experts": 32, "n_shared_experts": 1, "num_experts_per_tok": 8, "n_group": 8,
    "topk_group": 4, "topk_method": "noaux_tc", "scoring_func": "sigmoid", "norm_topk_prob": True,
    "routed_scaling_factor": 2.5, "first_k_dense_replace": 1,
}
COUNTED = [  # name, folder, changes to its configuration, quantisation
    ("Llama-3.1-8B bf16", "llama-3.1-8b", {}, "none"),
    ("Qwen3-32B bf16", "qwen3-32b", {}, "none"),
    ("Qwen3-32B W8A8 dynamic", "qwen3-32b", {}, "w8a8_int8"),
    ("Qwen3-32B W8A8 static", "qwen3-32b-static", {}, "modelslim"),
    ("DeepSeek-V3 bf16, expert layer", "deepseek-v2-lite", DEEPSEEK_V3, "none"),
    ("DeepSeek-V3 W8A8 dynamic, expert layer", "deepseek-v2-lite", DEEPSEEK_V3, "w8a8_int8"),
]


# Kernels that the simulator's whole decode graph of one sequence launches, by name. The inner copies of an operator
# whose operand has gaps are launches of their own.
def kernels_of_decode(model, folder, changes, quantisation, layers, flags):
    config = json.loads((pathlib.Path(model.path(folder)) / "config.json").read_text()) | changes
    config |= {"num_hidden_layers": layers, "vocab_size": 2048}  # a head is no layer
    with tempfile.TemporaryDirectory() as made:
        (pathlib.Path(made) / "config.json").write_text(json.dumps(config))
        if (described := pathlib.Path(model.path(folder)) / "quant_model_description.json").is_file():
            shutil.copy(described, made)
        graphs = pathlib.Path(made) / "graphs"
        model.run_fresh(["graph", "explain", "--json", "--log-level", "error", "--load-format", "dummy", "--dtype",
                         "bfloat16", "--graph-warmups", "0", "--max-running-requests", "1", "--graph-prefill", "off",
                         "--chunked-prefill-size", "16", "--max-total-tokens", "1024", "--device", "ascend",
                         "--ascend-runtime", "sim", "--model-path", made, "--quantization", quantisation, *flags],
                        {"ASCEND_SIM_COMPUTE": "0", "ASCEND_SIM_SOC": model.args.soc,
                         "ASCEND_SIM_GRAPHS": str(graphs)})
        # The greedy program and the one with logits; the layers are the same.
        return json.loads(graphs.read_text().splitlines()[0])


def part_launches(model):
    lines = ["| model | launches of a layer | without fusions | kernels of a layer |", "|---|---|---|---|"]
    for name, folder, changes, quantisation in COUNTED:
        counts, kernels = [], {}
        for flags in ([], ["--passes", "none"]):
            few, more = (kernels_of_decode(model, folder, changes, quantisation, n, flags)
                         for n in (DEPTHS[0], DEPTHS[0] + 1))
            layer = {k: n - few.get(k, 0) for k, n in more.items() if n != few.get(k, 0)}
            counts.append(sum(layer.values()))
            kernels = kernels or layer
        text = ", ".join(f"{k.removeprefix('aclnn')}{f' x{n}' if n > 1 else ''}" for k, n in sorted(kernels.items()))
        lines.append(f"| {name} | {counts[0]} | {counts[1]} | {text} |")
        print(f"done: {lines[-1]}", file=sys.stderr, flush=True)
    return lines


PARTS = {"summary": part_summary, "kernels": part_kernels, "updates": part_updates, "steps": part_steps,
         "first": part_first, "speculation": part_speculation, "ranks": part_ranks,
         "shared-experts": part_shared_experts, "expert-ranks": part_expert_ranks, "passes": part_passes,
         "speeds": part_speeds, "end-to-end": part_end_to_end, "mla": part_mla, "modes": part_modes,
         "modes-a3": part_modes_a3, "readings": part_readings,
         "proof": part_proof, "prefill": part_prefill, "overlap": part_overlap, "decode": part_decode,
         "ops": part_ops, "experts": part_experts,
         "fia": part_fia, "launches": part_launches, "streams": part_streams,
         "prefetch": part_prefetch, "queues": part_queues, "constants": part_constants}


def put(page, name, lines):
    """Replaces what stands between the part's two comments."""
    text = page.read_text()
    begin, end = f"<!-- predicted: {name} -->\n", "<!-- end of what tools/predict_ascend.py makes -->"
    if begin not in text:
        return False
    at = text.index(begin) + len(begin)
    page.write_text(text[:at] + "\n" + "\n".join(lines) + "\n\n" + text[text.index(end, at):])
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=HERE.parent / "build/release/bin/reprise", type=pathlib.Path)
    parser.add_argument("--data", default=pathlib.Path(os.environ.get("REPRISE_TEST_DATA", HERE.parent.parent /
                                                                      "shared/data")), type=pathlib.Path)
    parser.add_argument("--soc", default="Ascend910B3")
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--batches", type=lambda s: [int(n) for n in s.split(",")], default=[1, 16, 64])
    parser.add_argument("--input-len", type=int, default=1024)
    parser.add_argument("--keep", type=pathlib.Path, help="a file that results are read from and added to")
    parser.add_argument("--into", type=pathlib.Path, help="a page whose tables are replaced instead of printed")
    args = parser.parse_args()
    for part in args.only.split(","):
        if part not in PARTS:
            parser.error(f'--only "{part}"; allowed: {", ".join(PARTS)}')
    model = Model(args)
    for part in args.only.split(","):
        lines = PARTS[part](model)
        if args.into and put(args.into, part, lines):
            continue
        print(f"### {part}, {args.soc}: predicted by a model of time, not measured\n")
        print("\n".join(lines), "\n", flush=True)


if __name__ == "__main__":
    main()
