#!/usr/bin/env python3
"""The tiny Qwen3-VL with int8 linears in the text model and a tower of floats: compressed-tensors as published files have it.

    make_vision_quantised.py

Writes tests/data/vision/qwen3_vl_w8a8, and logits of tests/data/vision/qwen3_vl where it is quantised while it is loaded
(its head is int8 then). Logits are those of HF transformers with every linear of the text model replaced by the formula of
make_quantised_models.py.
"""

import json
import shutil

from common import DATA, write_json
from make_quantised_models import Integer

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import Qwen3VLForConditionalGeneration

torch.set_num_threads(1)

FROM, OUT = DATA / "vision" / "qwen3_vl", DATA / "vision" / "qwen3_vl_w8a8"
IMAGE = 147


def quantised(weight):
    scale = weight.abs().amax(-1, keepdim=True) / 127
    return dict(weight=torch.round(weight / scale).clamp(-127, 127).to(torch.int8), weight_scale=scale)


def logits_of(net, golden):
    ids = golden["tokens"].long()[None]
    grids = torch.cat([torch.ones(2, 1, dtype=torch.long), golden["grids"].long()], 1)
    pixels = torch.cat([golden["patches.0"], golden["patches.1"]])
    with torch.no_grad():
        return net(input_ids=ids, mm_token_type_ids=(ids == IMAGE).int(), pixel_values=pixels, image_grid_thw=grids).logits[0].float()


def main():
    golden = load_file(FROM / "golden.safetensors")
    net = Qwen3VLForConditionalGeneration.from_pretrained(FROM, dtype=torch.float32, attn_implementation="eager").eval()
    tensors = load_file(FROM / "model.safetensors")
    state = {}
    for name, module in list(net.named_modules()):
        if isinstance(module, torch.nn.Linear) and ".language_model." in name:
            parts = quantised(module.weight.data)
            for k, v in parts.items():
                state[f"{name}.{k}"] = v
            parent, last = name.rsplit(".", 1)
            setattr(net.get_submodule(parent), last, Integer("W8A8_DYNAMIC", parts))
    for name, t in tensors.items():
        state.setdefault(name, t)
    out = dict(golden, logits=logits_of(net, golden))
    net.lm_head = Integer("W8A8_DYNAMIC", quantised(net.lm_head.weight.data))
    out["logits_int8_head"] = logits_of(net, golden)
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    config = json.loads((FROM / "config.json").read_text())
    tower = sorted(n for n, m in net.named_modules() if isinstance(m, torch.nn.Linear) and ".visual." in n)
    group = dict(targets=["Linear"], output_activations=None, format="int-quantized",
                 weights=dict(num_bits=8, type="int", symmetric=True, strategy="channel", dynamic=False),
                 input_activations=dict(num_bits=8, type="int", symmetric=True, strategy="token", dynamic=True))
    # As the package writes it: modules by their names, whatever pattern asked for them.
    config["quantization_config"] = dict(quant_method="compressed-tensors", format="int-quantized", quantization_status="compressed",
                                         ignore=tower + ["lm_head"], config_groups=dict(group_0=group))
    write_json(OUT / "config.json", config)
    save_file({k: v.contiguous() for k, v in sorted(state.items())}, OUT / "model.safetensors", metadata={"format": "pt"})
    save_file({k: v.contiguous() for k, v in sorted(out.items())}, OUT / "golden.safetensors")
    spread = float(out["logits"].abs().max())
    print("int8 beside floats", float((out["logits"] - golden["logits"]).abs().max()) / spread,
          "int8 head", float((out["logits_int8_head"] - out["logits"]).abs().max()) / spread, tower[:2])


main()
