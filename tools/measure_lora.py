#!/usr/bin/env python3
"""What LoRA adapters cost while decoding: tokens per second by batch, without slots, with slots that no row uses, with
one adapter for all rows, and with as many adapters as rows (at most --adapters).

  tools/measure_lora.py --library build/release/lib/libreprise.so.0 NAME=MODEL_FOLDER ...

Weights are random (load_format="dummy"), and so are the adapters, which this script writes: of every linear layer of a
decoder block, as PEFT's `save_pretrained` names them. The ways take turns, --rounds times, in one process, and each
figure is the median; nothing else should run. Prints a table in markdown for each model, and the rows as JSON with
--json FILE.
"""
import argparse
import json
import os
import pathlib
import random
import statistics
import struct
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def linears(config):
    """Inputs and outputs of the linear layers of a block, by their names in Llama's and Qwen's checkpoints."""
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    size = config.get("head_dim") or hidden // heads
    queries, keys, wide = heads * size, config["num_key_value_heads"] * size, config["intermediate_size"]
    return {"self_attn.q_proj": (hidden, queries), "self_attn.k_proj": (hidden, keys), "self_attn.v_proj": (hidden, keys),
            "self_attn.o_proj": (queries, hidden), "mlp.gate_proj": (hidden, wide), "mlp.up_proj": (hidden, wide),
            "mlp.down_proj": (wide, hidden)}


def write_adapter(folder, config, rank, seed):
    """bf16 numbers of both signs near 2^-7: what they are does not change how long a product takes."""
    draw = random.Random(seed)
    some = b"".join(struct.pack("<H", 0x3C00 | draw.getrandbits(7) | draw.getrandbits(1) << 15) for _ in range(4093))
    shapes = {}
    for layer in range(config["num_hidden_layers"]):
        for name, (inputs, outputs) in linears(config).items():
            base = f"base_model.model.model.layers.{layer}.{name}"
            shapes[f"{base}.lora_A.weight"] = [rank, inputs]
            shapes[f"{base}.lora_B.weight"] = [outputs, rank]
    head, end = {}, 0
    for name, (rows, columns) in shapes.items():
        head[name] = {"dtype": "BF16", "shape": [rows, columns], "data_offsets": [end, end + 2 * rows * columns]}
        end += 2 * rows * columns
    text = json.dumps(head).encode()
    folder.mkdir(parents=True)
    numbers = (some * (end // len(some) + 1))[:end]
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + numbers)
    (folder / "adapter_config.json").write_text(json.dumps({
        "peft_type": "LORA", "r": rank, "lora_alpha": rank, "bias": "none",
        "target_modules": sorted({name.split(".")[1] for name in linears(config)})}))


def decode_rate(llm, batch, adapters, options):
    from reprise import SamplingParams
    params = SamplingParams(temperature=0, max_tokens=options.output_len, ignore_eos=True)
    prompts = [{"prompt_token_ids": [(7 * row + i) % 200 + 10 for i in range(options.input_len)]} for row in range(batch)]
    used = [adapters[row % len(adapters)] for row in range(batch)] if adapters else None
    answers = llm.generate(prompts, params, use_tqdm=False, lora_request=used)
    first = max(a.metrics.first_token_s for a in answers)
    return batch * (options.output_len - 1) / (max(a.metrics.total_s for a in answers) - first)


def measure(folder, options, held):
    from reprise import LLM, LoRARequest
    config = json.loads((folder / "config.json").read_text())
    adapters = []
    for i in range(options.adapters):
        place = pathlib.Path(held) / f"{folder.name}-{i}"
        write_adapter(place, config, options.rank, i)
        adapters.append(LoRARequest(f"a{i}", i + 1, str(place)))
    common = {"load_format": "dummy", "dtype": "bfloat16", "max_num_seqs": max(options.batch_sizes),
              "enable_prefix_caching": False, "max_model_len": 2 * (options.input_len + options.output_len)}
    plain = LLM(model=str(folder), **common)
    slots = LLM(model=str(folder), enable_lora=True, max_loras=options.adapters, max_lora_rank=options.rank, **common)
    ways = [("no slots", plain, lambda b: None), ("slots, none used", slots, lambda b: None),
            ("one adapter", slots, lambda b: adapters[:1]), ("an adapter a row", slots, lambda b: adapters[:b])]
    rows = []
    for batch in options.batch_sizes:
        rates = {name: [] for name, _, _ in ways}
        for _ in range(options.rounds + 1):  # the first also captures and loads
            for name, llm, chosen in ways:
                rates[name].append(decode_rate(llm, batch, chosen(batch), options))
        rows.append({"batch": batch, **{name: statistics.median(found[1:]) for name, found in rates.items()}})
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="NAME=MODEL_FOLDER")
    parser.add_argument("--library", default="build/release/lib/libreprise.so.0")
    parser.add_argument("--batch-sizes", default="1,4,8,16", type=lambda text: [int(n) for n in text.split(",")])
    parser.add_argument("--adapters", type=int, default=8)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--input-len", type=int, default=32)
    parser.add_argument("--output-len", type=int, default=33)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    os.environ["REPRISE_LIBRARY"] = str(pathlib.Path(options.library).resolve())
    sys.path.insert(0, str(ROOT / "python"))
    found = {}
    with tempfile.TemporaryDirectory() as held:
        for model in options.models:
            name, _, folder = model.partition("=")
            found[name] = measure(pathlib.Path(folder).resolve(), options, held)
            columns = list(found[name][0])[1:]
            print(f"{name}, tok/s\n| batch | " + " | ".join(columns) + " |\n|" + "---|" * (len(columns) + 1))
            for row in found[name]:
                cells = [f"{row[c]:.1f}" + (f" ({100 * row[c] / row['no slots'] - 100:+.0f} %)" if c != "no slots" else "")
                         for c in columns]
                print(f"| {row['batch']} | " + " | ".join(cells) + " |", flush=True)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
