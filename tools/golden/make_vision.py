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
from transformers import (Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, Qwen3VLConfig, Qwen3VLForConditionalGeneration,
                          Qwen3VLMoeConfig, Qwen3VLMoeForConditionalGeneration)

torch.set_num_threads(1)
torch.use_deterministic_algorithms(True)
transformers.logging.set_verbosity_error()

OUT = DATA / "vision"
VOCAB, IMAGE, START, END = 151, 147, 148, 149
GRIDS = [(4, 6), (10, 6)]  # of patches; the second has more than one window and partial ones
TOKENS = dict(image_token_id=IMAGE, video_token_id=146, vision_start_token_id=START, vision_end_token_id=END)
TEXT = dict(vocab_size=VOCAB, hidden_size=60, intermediate_size=70, num_hidden_layers=4, num_attention_heads=3, num_key_value_heads=1, rms_norm_eps=1e-6,
            max_position_embeddings=512, bos_token_id=1, eos_token_id=2, pad_token_id=0)


def randomise(net, seed):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in sorted(net.named_parameters()):
            noise = torch.randn(p.shape, generator=generator)
            norm = "norm" in name.lower() or "ln_q" in name
            if p.dim() == 1:
                p.copy_((1 + 0.2 * noise) if norm and name.endswith("weight") else 0.2 * noise)
            else:
                p.copy_(noise * (1.0 if "embed_tokens" in name else 0.5 if "pos_embed" in name else 1.2 / p[0].numel() ** 0.5))
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
    return [("qwen2_5_vl", Qwen2_5_VLForConditionalGeneration, old), ("qwen3_vl", Qwen3VLForConditionalGeneration, new),
            ("qwen3_vl_moe", Qwen3VLMoeForConditionalGeneration, moe)]


def prompt(rng):
    text = lambda n: [int(x) for x in rng.integers(3, 140, n)]
    ids = text(5)
    for (high, wide), behind in zip(GRIDS, (7, 9)):
        ids += [START] + [IMAGE] * (high * wide // 4) + [END] + text(behind)
    return ids


def main():
    for seed, (name, cls, config) in enumerate(models()):
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        config.architectures = [cls.__name__]
        config.dtype = "float32"
        config._attn_implementation = "eager"
        config._experts_implementation = "eager"
        net = randomise(cls(config), 300 + seed)
        rng = np.random.default_rng(seed)
        width = 3 * 2 * 4 * 4
        patches = [rng.normal(0, 1, (h * w, width)).astype(np.float32) for h, w in GRIDS]
        for p in patches:  # the frame twice
            three = p.reshape(len(p), 3, 2, 16)
            three[:, :, 1] = three[:, :, 0]
        grids = torch.tensor([[1, h, w] for h, w in GRIDS])
        ids = prompt(rng)
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
        folder = OUT / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        write_json(folder / "config.json", config.to_dict())
        # Names as transformers writes them.
        state = {k: v.numpy() for k, v in net.state_dict().items() if not (k == "lm_head.weight" and config.tie_word_embeddings)}
        # Published stacks of experts have rows and columns swapped, and transformers turns them where it reads them.
        state = {k: v.transpose(0, 2, 1) if ".experts." in k else v for k, v in state.items()}
        save_file({k: np.ascontiguousarray(v) for k, v in sorted(state.items())}, folder / "model.safetensors", metadata={"format": "pt"})
        again = cls.from_pretrained(folder, dtype=torch.float32).state_dict()
        assert all(torch.equal(v, again[k]) for k, v in net.state_dict().items()), name
        save_file({k: np.ascontiguousarray(v) for k, v in sorted(golden.items())}, folder / "golden.safetensors")
        print(name, sum(v.nbytes for v in state.values()) // 1024, "KB", sorted(state)[:3])


main()
