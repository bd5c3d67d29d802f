#!/usr/bin/env python3
"""A tiny gpt-oss whose experts are in MXFP4, as published checkpoints have them, and the logits that HF transformers gives it
with the experts dequantised.

Writes tests/data/mxfp4/{config.json, model-*.safetensors, model.safetensors.index.json, golden.safetensors}.

The format is that of transformers 5.23.0, integrations/mxfp4.py: the table of numbers 29-46; a block is 16 bytes, the low nibble
first, and a byte of exponent with 127 added, 242-280. Blocks are random: every number, exponents of a small range, and one of the
smallest. Exponents lie in another file than the numbers, as shards may be cut anywhere.
"""

import json
import shutil

from common import DATA

import numpy as np
import torch
import transformers
from safetensors.numpy import save_file as save_numpy
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, GptOssConfig, Mxfp4Config
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from make_tiny_models import clear_tokens, randomise, relative, run

OUT = DATA / "mxfp4"
LENGTHS = (1, 7, 131, 203)
CONFIG = dict(vocab_size=149, hidden_size=64, intermediate_size=96, num_attention_heads=5, num_key_value_heads=1, head_dim=18,
              num_hidden_layers=3, sliding_window=24, num_local_experts=5, num_experts_per_tok=2, max_position_embeddings=512,
              bos_token_id=1, eos_token_id=2, pad_token_id=0,
              rope_parameters={"rope_type": "yarn", "rope_theta": 150000.0, "factor": 4.0, "original_max_position_embeddings": 64,
                               "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False})
NOT_CONVERTED = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]


def random_blocks(rng, experts, rows, depth):
    blocks = rng.integers(0, 256, (experts, rows, depth // 32, 16), dtype=np.uint8)
    scales = rng.integers(121, 124, (experts, rows, depth // 32), dtype=np.uint8)
    scales[0, 0, 0] = 0
    return torch.from_numpy(blocks), torch.from_numpy(scales)


def load(dtype):
    """The folder as transformers reads it on a machine without kernels for MXFP4."""
    net = AutoModelForCausalLM.from_pretrained(OUT, dtype=dtype, attn_implementation="eager", experts_implementation="eager",
                                               quantization_config=Mxfp4Config(dequantize=True)).eval()
    # It makes bf16 numbers, which hold every one of these exactly.
    return net.to(dtype)


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    config = GptOssConfig(**CONFIG)
    net = AutoModelForCausalLM.from_config(config, attn_implementation="eager", experts_implementation="eager")
    randomise(net, 1301, 1.0, None)
    rng = np.random.Generator(np.random.PCG64(1302))
    numbers, exponents, plain = {}, {}, {}
    for name, tensor in net.to(torch.bfloat16).state_dict().items():
        if not name.endswith(("gate_up_proj", "down_proj")):
            numbers[name] = tensor.contiguous()
            continue
        blocks, scales = random_blocks(rng, tensor.shape[0], tensor.shape[2], tensor.shape[1])
        numbers[name + "_blocks"], exponents[name + "_scales"] = blocks, scales
        plain[name] = convert_moe_packed_tensors(blocks, scales)
    shards = {"model-00001-of-00002.safetensors": numbers, "model-00002-of-00002.safetensors": exponents}
    for file, tensors in shards.items():
        save_file(tensors, OUT / file, metadata={"format": "pt"})
    (OUT / "model.safetensors.index.json").write_text(json.dumps(
        {"metadata": {}, "weight_map": {name: file for file, tensors in shards.items() for name in sorted(tensors)}}, indent=1) + "\n")
    c = json.loads(config.to_json_string())
    rope = c.pop("rope_parameters")
    c.update(architectures=["GptOssForCausalLM"], rope_theta=rope.pop("rope_theta"), rope_scaling=rope, dtype="bfloat16",
             experts_per_token=c["num_experts_per_tok"], quantization_config=dict(quant_method="mxfp4", modules_to_not_convert=NOT_CONVERTED))
    (OUT / "config.json").write_text(json.dumps(c, indent=2, sort_keys=True) + "\n")

    # From here on only what is in the folder counts.
    net = load(torch.float32)
    for name, tensor in plain.items():
        assert torch.equal(net.state_dict()[name], tensor.float()), name
    rng = np.random.Generator(np.random.PCG64(1303))
    golden = {}
    for n in LENGTHS:
        tokens = clear_tokens(net, rng, n)
        logits = run(net, tokens)
        positions = np.arange(n, dtype=np.int32) if n < 16 else np.arange(n - 3, n, dtype=np.int32)
        golden[f"tokens.{n}"], golden[f"positions.{n}"] = tokens, positions
        golden[f"logits.{n}"] = np.ascontiguousarray(logits[positions], dtype=np.float32)
        print(n, "bf16 error of transformers itself:", f"{relative(run(load(torch.bfloat16), tokens), logits):.3g}", flush=True)
    save_numpy(golden, OUT / "golden.safetensors", metadata={
        "made_with": f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}"})


if __name__ == "__main__":
    main()
