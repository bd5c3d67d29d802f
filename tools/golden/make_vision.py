#!/usr/bin/env python3
"""Tiny random models with a vision tower, and what HF transformers makes of prompts with two images in fp32.

    make_vision.py [NAME ...]

Writes tests/data/vision/<name>; see the README there.
"""

import shutil
import sys

from common import DATA, write_json

import numpy as np
import torch
import transformers
from safetensors.numpy import save_file
from safetensors.torch import save_file as torch_save_file
from transformers import (Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, Qwen3_5Config, Qwen3_5ForConditionalGeneration, Qwen3_5MoeConfig,
                          Qwen3_5MoeForConditionalGeneration, Qwen3VLConfig, Qwen3VLForConditionalGeneration, Qwen3VLMoeConfig,
                          Qwen3VLMoeForConditionalGeneration)

torch.set_num_threads(1)
torch.use_deterministic_algorithms(True)
transformers.logging.set_verbosity_error()

OUT = DATA / "vision"
VOCAB, IMAGE, START, END = 151, 147, 148, 149
GRIDS = [(4, 6), (10, 6)]  # of patches; the second has more than one window and partial ones
TOKENS = dict(image_token_id=IMAGE, video_token_id=146, vision_start_token_id=START, vision_end_token_id=END)
TEXT = dict(vocab_size=VOCAB, hidden_size=60, intermediate_size=70, num_hidden_layers=4, num_attention_heads=3, num_key_value_heads=1, rms_norm_eps=1e-6,
            max_position_embeddings=512, bos_token_id=1, eos_token_id=2, pad_token_id=0)


def has_states(net):
    return net.config.model_type.startswith("qwen3_5")


def randomise(net, seed, halved):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in sorted(net.named_parameters()):
            noise = torch.randn(p.shape, generator=generator)
            norm = "norm" in name.lower() or "ln_q" in name
            if has_states(net) and "visual" not in name and not name.endswith("linear_attn.norm.weight"):
                norm = False  # multiplies by 1 + weight
            if name.endswith("A_log"):  # states that fade within a few rows, and some that last
                p.copy_(1.3 * noise - 2)
            elif p.dim() == 1:
                p.copy_((1 + 0.2 * noise) if norm and name.endswith("weight") else 0.2 * noise)
            else:
                p.copy_(noise * (1.0 if "embed_tokens" in name else 0.5 if "pos_embed" in name else 1.2 / p[0].numel() ** 0.5))
            if halved:
                p.copy_(p.bfloat16().float())
    return net.float().eval()


def models():
    old = Qwen2_5_VLConfig(
        text_config=dict(TEXT, rope_parameters=dict(rope_type="default", rope_theta=1e4, mrope_section=[2, 3, 5]), use_sliding_window=False),
        vision_config=dict(depth=3, hidden_size=48, intermediate_size=50, num_heads=4, patch_size=4, window_size=16, out_hidden_size=60,
                           fullatt_block_indexes=[1]), **TOKENS)
    new = Qwen3VLConfig(
        text_config=dict(TEXT, head_dim=20, rope_parameters=dict(rope_type="default", rope_theta=1e4, mrope_section=[4, 3, 3], mrope_interleaved=True)),
        vision_config=dict(depth=4, hidden_size=48, intermediate_size=50, num_heads=3, patch_size=4, out_hidden_size=60, num_position_embeddings=49,
                           deepstack_visual_indexes=[0, 2]), tie_word_embeddings=True, **TOKENS)
    moe = Qwen3VLMoeConfig(
        text_config=dict(TEXT, head_dim=20, num_hidden_layers=3, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=22, mlp_only_layers=[1],
                         rope_parameters=dict(rope_type="default", rope_theta=1e4, mrope_section=[4, 3, 3], mrope_interleaved=True)),
        vision_config=dict(depth=2, hidden_size=32, intermediate_size=26, num_heads=2, patch_size=4, out_hidden_size=60, num_position_embeddings=25,
                           deepstack_visual_indexes=[0]), tie_word_embeddings=False, **TOKENS)
    # Behind states: a part of each head turns, the tower has no deepstack (models/qwen3_5/modular_qwen3_5.py).
    states = dict(head_dim=16, num_hidden_layers=5, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=12, linear_value_head_dim=10,
                  linear_conv_kernel_dim=4, rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.75, mrope_section=[2, 2, 2],
                                                                 mrope_interleaved=True))
    tower = dict(depth=2, hidden_size=32, intermediate_size=26, num_heads=2, patch_size=4, out_hidden_size=44, num_position_embeddings=25)
    hybrid = Qwen3_5Config(text_config=dict(TEXT, **states) | dict(hidden_size=44, intermediate_size=50, tie_word_embeddings=True), vision_config=tower, tie_word_embeddings=True, **TOKENS)
    hybrid_moe = Qwen3_5MoeConfig(text_config=dict(TEXT, **states) | dict(hidden_size=44, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=14,
                                                                            shared_expert_intermediate_size=18), vision_config=tower, **TOKENS)
    return [("qwen2_5_vl", Qwen2_5_VLForConditionalGeneration, old), ("qwen3_vl", Qwen3VLForConditionalGeneration, new),
            ("qwen3_vl_moe", Qwen3VLMoeForConditionalGeneration, moe), ("qwen3_5_vl", Qwen3_5ForConditionalGeneration, hybrid),
            ("qwen3_5_vl_moe", Qwen3_5MoeForConditionalGeneration, hybrid_moe)]


def prompt(rng, between=7):
    text = lambda n: [int(x) for x in rng.integers(3, 140, n)]
    ids = text(5)
    for (high, wide), behind in zip(GRIDS, (between, 9)):
        ids += [START] + [IMAGE] * (high * wide // 4) + [END] + text(behind)
    return ids


def golden_of(net, seed, width, between=7):
    """What transformers makes of a prompt with two images."""
    rng = np.random.default_rng(seed)
    patches = [rng.normal(0, 1, (h * w, width)).astype(np.float32) for h, w in GRIDS]
    for p in patches:  # the frame twice
        three = p.reshape(len(p), 3, 2, 16)
        three[:, :, 1] = three[:, :, 0]
    grids = torch.tensor([[1, h, w] for h, w in GRIDS])
    ids = prompt(rng, between)
    golden = {"tokens": np.asarray(ids, dtype=np.int32), "grids": np.asarray(GRIDS, dtype=np.int32)}
    with torch.no_grad():
        for i, p in enumerate(patches):
            golden[f"patches.{i}"] = p
            out = net.model.visual(torch.tensor(p), grid_thw=grids[i:i + 1])
            golden[f"rows.{i}"] = out.pooler_output.numpy()
            for k, rows in enumerate(getattr(out, "deepstack_features", None) or []):
                golden[f"deep.{i}.{k}"] = rows.numpy()
        kinds = (torch.tensor([ids]) == IMAGE).int()
        positions, _ = net.model.get_rope_index(torch.tensor([ids]), mm_token_type_ids=kinds, image_grid_thw=grids)
        golden["positions"] = positions[:, 0].T.numpy().astype(np.int32)
        out = net(input_ids=torch.tensor([ids]), mm_token_type_ids=kinds, pixel_values=torch.tensor(np.concatenate(patches)), image_grid_thw=grids)
        golden["logits"] = out.logits[0].float().numpy()
    return golden


def made(cls, config, seed, halved=False):
    """The model with random weights; halved: those that bf16 has."""
    config.architectures = [cls.__name__]
    config.dtype = "float32"
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    return randomise(cls(config), seed, halved)


def with_prediction(state):
    """And a layer that predicts a further token, which transformers does not read: the layer that attends once more."""
    prefix, out = "model.language_model.layers.3.", dict(state)
    width = state["model.language_model.norm.weight"].shape[0]
    rng = np.random.default_rng(7)
    for key, data in state.items():
        if key.startswith(prefix):
            out["mtp.layers.0." + key.removeprefix(prefix)] = data
    out["mtp.fc.weight"] = rng.normal(0, 0.5 * width ** -0.5, (width, 2 * width)).astype(np.float32)
    for name in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"):
        out[f"mtp.{name}.weight"] = rng.normal(0, 0.2, width).astype(np.float32)
    return out


def main():
    for seed, (name, cls, config) in enumerate(models()):
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        states = name.startswith("qwen3_5")
        net = made(cls, config, 300 + seed, halved=states)
        # States are computed in chunks of 64 rows: the second image lies over the border.
        golden = golden_of(net, seed, 3 * 2 * 4 * 4, 39 if states else 7)
        folder = OUT / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        write_json(folder / "config.json", config.to_dict())
        # Names as transformers writes them.
        state = {k: v.numpy() for k, v in net.state_dict().items() if not (k == "lm_head.weight" and config.tie_word_embeddings)}
        if states:
            state = with_prediction(state) if name == "qwen3_5_vl" else state
            torch_save_file({k: torch.tensor(v).bfloat16() for k, v in sorted(state.items())}, folder / "model.safetensors", metadata={"format": "pt"})
        else:
            # Published stacks of experts have rows and columns swapped, and transformers turns them where it reads them.
            state = {k: v.transpose(0, 2, 1) if ".experts." in k else v for k, v in state.items()}
            save_file({k: np.ascontiguousarray(v) for k, v in sorted(state.items())}, folder / "model.safetensors", metadata={"format": "pt"})
        again = cls.from_pretrained(folder, dtype=torch.float32).state_dict()
        assert all(torch.equal(v, again[k]) for k, v in net.state_dict().items()), name
        save_file({k: np.ascontiguousarray(v) for k, v in sorted(golden.items())}, folder / "golden.safetensors")
        print(name, sum(v.nbytes for v in state.values()) // 1024, "KB", sorted(state)[:3])


if __name__ == "__main__":
    main()
