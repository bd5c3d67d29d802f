#!/usr/bin/env python3
"""Times that the Ascend simulator's clock predicts for real model shapes, as Markdown tables.

  tools/predict_ascend.py                                   every table
  tools/predict_ascend.py --only modes --soc Ascend910B2
  tools/predict_ascend.py --keep results.json               what was run before is not run again

No NPU is involved and nothing is measured: kernels take time by a model (operations, bytes, start-up; host calls take
theirs) and compute nothing. Layers are alike, so two depths are run, and the whole model follows from them; `proof` runs
the whole model beside that.

  modes    eager, piecewise and whole steps of real shapes
  proof    a model of full depth beside what two depths say of it
  fia      FusedInferAttentionScore beside the pair before it, over contexts
  prefill  piecewise prefill over prompt lengths, where launches cost the host more
  decode   fused decode in whole graphs, where launches cost the host more
  ops      fused kernels beside their parts, and the original system's
  queues   queues that graphs hold, by layers, on older and newer drivers
  launches launches of a layer in a whole decode graph
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
DEPTHS = (2, 4)  # layers that stand for all
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


class Model:
    def __init__(self, args):
        self.args = args
        self.known = json.loads(args.keep.read_text()) if args.keep and args.keep.is_file() else {}

    def run(self, words, env):
        key = " ".join([f"{name}={value}" for name, value in sorted(env.items())] + words)
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
        return str(self.args.data / "shapes" / folder)

    def layers(self, folder):
        return json.loads((pathlib.Path(self.path(folder)) / "config.json").read_text())["num_hidden_layers"]

    def bench(self, folder, quantisation, batches, input_len, *flags, layers=None, env=None):
        """{batch: (decode step ms, prefill ms)}"""
        words = ["bench", "one-batch", "--json", "--device", "ascend", "--ascend-runtime", "sim", "--dtype", "bfloat16",
                 "--load-format", "dummy", "--repeat", "3", "--log-level", "error", "--output-len", "6",
                 "--chunked-prefill-size", str(CHUNK), "--model-path", self.path(folder), "--quantization", quantisation,
                 "--batch-size", ",".join(map(str, batches)), "--input-len", str(input_len), *map(str, flags)]
        if layers:
            words += ["--override", f"num_hidden_layers={layers}"]
        env = {"ASCEND_SIM_COMPUTE": "0", "ASCEND_SIM_SOC": self.args.soc, **(env or {})}
        rows = self.run(words, env)["rows"]
        return {r["batch_size"]: (r["step_ms_p50"], r["batch_size"] * r["input_len"] / r["prefill_tok_s"] * 1e3)
                for r in rows}

    def whole_model(self, folder, *args, **kwargs):
        """As bench(), for all layers, from two depths."""
        few, more = (self.bench(folder, *args, layers=n, **kwargs) for n in DEPTHS)
        scale = (self.layers(folder) - DEPTHS[0]) / (DEPTHS[1] - DEPTHS[0])
        return {b: tuple(x + (y - x) * scale for x, y in zip(few[b], more[b])) for b in few}


    def all_layers(self, folder, *args, **kwargs):
        """Likewise, of the layers alone: what one costs, times their number."""
        few, more = (self.bench(folder, *args, "--override", "vocab_size=2048", layers=n, **kwargs) for n in DEPTHS)
        scale = self.layers(folder) / (DEPTHS[1] - DEPTHS[0])
        return {b: tuple((y - x) * scale for x, y in zip(few[b], more[b])) for b in few}


def sizes_for(batches, input_len):
    """Flags that capture what these batches need and nothing else."""
    tokens = {min(CHUNK, b * input_len) for b in batches} | {b * input_len % CHUNK for b in batches} - {0}
    return ["--graph-decode-sizes", ",".join(map(str, batches)),
            "--graph-prefill-sizes", ",".join(map(str, sorted(tokens)))]


def part_modes(model):
    batches, length = model.args.batches, model.args.input_len
    lines = ["| model | batch | decode ms: eager | piecewise | whole | eager / whole | prefill ms: eager | piecewise | "
             "ratio |", "|---|---|---|---|---|---|---|---|---|"]
    for name, folder, quantisation in SHAPES:
        got = {mode: model.whole_model(folder, quantisation, batches, length, *flags,
                                       *([] if mode == "eager" else sizes_for(batches, length)))
               for mode, flags in MODES}
        for b in batches:
            (eager, prompt), (pieces, prompt_pieces), (whole, _) = (got[mode][b] for mode, _ in MODES)
            lines.append(f"| {name} | {b} | {eager:.2f} | {pieces:.2f} | {whole:.2f} | {eager / whole:.2f} | "
                         f"{prompt:.1f} | {prompt_pieces:.1f} | {prompt / prompt_pieces:.3f} |")
    return lines


def part_proof(model):
    name, folder, quantisation = SHAPES[0]
    batches, length = [16], 512
    lines = ["| mode | decode ms: two depths | all layers | prefill ms: two depths | all layers |", "|---|---|---|---|---|"]
    for mode, flags in (MODES[0], MODES[2]):
        flags = [*flags, *([] if mode == "eager" else sizes_for(batches, length))]
        short = model.whole_model(folder, quantisation, batches, length, *flags)[16]
        full = model.bench(folder, quantisation, batches, length, *flags)[16]
        lines.append(f"| {name}, {mode} | {short[0]:.3f} | {full[0]:.3f} | {short[1]:.2f} | {full[1]:.2f} |")
    return lines


def part_fia(model):
    lines = ["| context | decode ms: FIA | pair | pair / FIA | prefill ms: FIA | pair | pair / FIA |",
             "|---|---|---|---|---|---|---|"]
    for context in (128, 512, 2048, 8192, 32768, 65536):
        (step, prompt), (pair_step, pair_prompt) = (
            model.all_layers("llama-3.1-8b", "none", [1], context, "--graph", "required", *sizes_for([1], context),
                             env={"ASCEND_USE_FIA": fia})[1] for fia in ("true", "false"))
        lines.append(f"| {context} | {step:.2f} | {pair_step:.2f} | {pair_step / step:.2f} | {prompt:.1f} | "
                     f"{pair_prompt:.1f} | {pair_prompt / prompt:.2f} |")
    return lines


# Prompts of 64 tokens, so that a batch is a prefill of 64 tokens each and a decode step of one row each.
SHORT = 64
SHORT_BATCHES = [1, 2, 4, 8, 16, 32, 64]


def short_prompts(model, graphs, fused, n):
    name, folder, quantisation = SHAPES[0]
    flags = ["--graph", "required", *sizes_for(SHORT_BATCHES, SHORT)] if graphs else ["--graph", "off"]
    return model.all_layers(folder, quantisation, SHORT_BATCHES, SHORT, *flags, *([] if fused else ["--passes", "none"]),
                            env={"ASCEND_SIM_LAUNCH_FACTOR": str(n)})


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


def part_ops(model):
    lines = ["| kernel | tokens | graph us: fused | parts | ratio | eager us: fused | parts | ratio | original |",
             "|---|---|---|---|---|---|---|---|---|"]
    tokens = [1, 16, 64]

    def rows(op):
        report = model.run(["bench", "ops", "--json", "--device", "ascend", "--ascend-runtime", "sim", "--dtype",
                            "bfloat16", "--model", "B", "--tokens", ",".join(map(str, tokens)), "--filter", op],
                           {"ASCEND_SIM_COMPUTE": "0", "ASCEND_SIM_SOC": model.args.soc})
        return {r["tokens"]: r for r in report["rows"]}

    def line(name, n, fused, parts, eager, eager_parts, original):
        lines.append(f"| {name} | {n} | {fused:.2f} | {parts:.2f} | {fused / parts:.3f} | {eager:.2f} | {eager_parts:.2f} | "
                     f"{eager / eager_parts:.3f} | {original} |")

    for op in ("add_rms_norm", "silu_mul", "silu_mul_quant", "add_rms_norm_quant_dynamic"):
        for n, r in rows(op).items():
            line(f"`{op}`", n, r["fused_us"], r["unfused_us"], r["eager_fused_us"], r["eager_unfused_us"], "")
    # "From two": the original started from the fused sum and norm, and the quantising op.
    norm = rows("add_rms_norm")
    for op, quant in (("add_rms_norm_quant_dynamic", "quantize_dynamic"),
                      ("add_rms_norm_quant_divided", "quantize_static")):
        whole, alone = rows(op), rows(quant)
        for n in tokens:
            line(f"`{op}`, from two", n, whole[n]["fused_us"],
                 norm[n]["fused_us"] + alone[n]["fused_us"], whole[n]["eager_fused_us"],
                 norm[n]["eager_fused_us"] + alone[n]["eager_fused_us"], "0.655")
    # Two norms and a rotation in one kernel: no operator of the vendor does that. A launch of the norm stands for each.
    for n, r in rows("rms_norm").items():
        line("two norms and a rotation (no such kernel)", n, r["fused_us"], 3 * r["fused_us"],
             r["eager_fused_us"], 3 * r["eager_fused_us"], "0.403")
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


# Launches of a layer. What a checkpoint of DeepSeek-V3 says of itself, with fewer and narrower experts: the number of
# launches depends on neither, and memory for the real ones is no single device's.
DEEPSEEK_V3 = {
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "hidden_size": 7168,
    "intermediate_size": 18432, "moe_intermediate_size": 256, "num_attention_heads": 128, "num_key_value_heads": 128,
    "q_lora_rank": 1536, "n_routed_experts": 32, "n_shared_experts": 1, "num_experts_per_tok": 8, "n_group": 8,
    "topk_group": 4, "topk_method": "noaux_tc", "scoring_func": "sigmoid", "norm_topk_prob": True,
    "routed_scaling_factor": 2.5, "first_k_dense_replace": 1,
}
# Static W8A8 is not among them: its numbers belong to a checkpoint, and there are no dummy ones.
COUNTED = [  # name, folder, changes to its configuration, quantisation
    ("Llama-3.1-8B bf16", "llama-3.1-8b", {}, "none"),
    ("Qwen3-32B bf16", "qwen3-32b", {}, "none"),
    ("Qwen3-32B W8A8 dynamic", "qwen3-32b", {}, "w8a8_int8"),
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


PARTS = {"modes": part_modes, "proof": part_proof, "fia": part_fia, "prefill": part_prefill, "decode": part_decode,
         "ops": part_ops, "queues": part_queues, "launches": part_launches}


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
    args = parser.parse_args()
    for part in args.only.split(","):
        if part not in PARTS:
            parser.error(f'--only "{part}"; allowed: {", ".join(PARTS)}')
    model = Model(args)
    for part in args.only.split(","):
        print(f"### {part}, {args.soc}: predicted by a model of time, not measured\n")
        print("\n".join(PARTS[part](model)), "\n", flush=True)


if __name__ == "__main__":
    main()
