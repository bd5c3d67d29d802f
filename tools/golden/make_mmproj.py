#!/usr/bin/env python3
"""Tiny random models with a vision tower as two GGUF files each, the text model and its tower (mmproj), and what HF
transformers makes of a prompt with two images, and answers to a conversation, in fp32.

    make_mmproj.py [NAME ...]

Writes tests/data/vision/<name>_gguf; see the README there. Metadata and names are those of llama.cpp's conversion/base.py,
qwen3vl.py and qwenvl.py, names of the text model those of the gguf package's map. Weights are numbers that bf16 has.
Versions: transformers 5.23.0, torch 2.15, gguf 0.19.0; seeds 320 and up.
"""

import json
import shutil
import sys

from common import DATA
from make_gguf_models import add_delta_net, gguf_name, of_delta_net
from make_vision import TEXT, TOKENS, golden_of, made
from make_vision_answers import ASKED, LAST, MARKS, OUT as TEXT_SIDE, RULES, TEMPLATE, answer, vocabulary

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as T
from safetensors.numpy import save_file
from transformers import (PreTrainedTokenizerFast, Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, Qwen3_5Config, Qwen3_5ForConditionalGeneration, Qwen3VLConfig,
                          Qwen3VLForConditionalGeneration, Qwen3VLMoeConfig, Qwen3VLMoeForConditionalGeneration)
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

OUT = DATA / "vision"


def models():
    text = dict(TEXT, hidden_size=36, intermediate_size=40, num_hidden_layers=3)
    rope = dict(rope_type="default", rope_theta=1e4, mrope_section=[3, 2, 1])
    turns = dict(head_dim=12, rope_parameters=dict(rope, mrope_section=[2, 2, 2], mrope_interleaved=True))
    tower = dict(depth=3, hidden_size=24, intermediate_size=26, num_heads=2, patch_size=4, out_hidden_size=36)
    learned = dict(tower, num_position_embeddings=25, deepstack_visual_indexes=[0, 2])
    old = Qwen2_5_VLConfig(text_config=dict(text, rope_parameters=rope, use_sliding_window=False),
                           vision_config=dict(tower, depth=4, window_size=16, fullatt_block_indexes=[1, 3], tokens_per_second=2), **TOKENS)
    wide = dict(learned, hidden_size=32, intermediate_size=64)  # whole blocks of Q8_0
    new = Qwen3VLConfig(text_config=dict(text, **turns), vision_config=wide, tie_word_embeddings=True, **TOKENS)
    moe = Qwen3VLMoeConfig(text_config=dict(text, **turns, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=14),
                           vision_config=dict(learned, deepstack_visual_indexes=[1]), tie_word_embeddings=False, **TOKENS)
    # Three heads of values of each of two key heads, which llama.cpp's converter reorders.
    states = dict(text, num_hidden_layers=4, head_dim=16, linear_num_key_heads=2, linear_num_value_heads=6, linear_key_head_dim=10, linear_value_head_dim=8,
                  linear_conv_kernel_dim=4, rope_parameters=dict(rope, partial_rotary_factor=0.75, mrope_section=[2, 2, 2], mrope_interleaved=True))
    hybrid = Qwen3_5Config(text_config=dict(states, tie_word_embeddings=True), vision_config=dict(tower, num_position_embeddings=25), tie_word_embeddings=True, **TOKENS)
    return [("qwen2_5_vl", "qwen2vl", Qwen2_5_VLForConditionalGeneration, old), ("qwen3_vl", "qwen3vl", Qwen3VLForConditionalGeneration, new),
            ("qwen3_vl_moe", "qwen3vlmoe", Qwen3VLMoeForConditionalGeneration, moe), ("qwen3_5_vl", "qwen35", Qwen3_5ForConditionalGeneration, hybrid)]


def is_in_blocks(name, data):
    return data.ndim == 2 and data.shape[1] % 32 == 0 and "pos" not in name


def finish(w, tensors, kept=(), matrices=T.BF16):
    """Matrices in bf16, or as asked, vectors and tables of positions in float, as llama.cpp's files have them."""
    for name, data in sorted(tensors.items()):
        data = np.ascontiguousarray(data, dtype=np.float32)
        if data.ndim < 2 or name in kept:
            w.add_tensor(name, data)
        else:
            kind = matrices if is_in_blocks(name, data) else T.BF16
            w.add_tensor(name, gguf.quants.quantize(data, kind), raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def text_tensors(arch, c, state):
    kind = next(k for k, v in gguf.MODEL_ARCH_NAMES.items() if v == arch)
    names = gguf.get_tensor_name_map(kind, c.num_hidden_layers)
    out = {}
    for key, data in state.items():
        if ".visual." in key:
            continue
        key = key.replace("model.language_model.", "model.")
        if ".experts." in key:  # [experts, rows, columns]
            layer, leaf = key.split(".")[2], key.rsplit(".", 1)[1]
            half = data.shape[1] // 2
            for part, rows in {"gate_up_proj": {"gate": slice(half), "up": slice(half, None)}}.get(leaf, {"down": slice(None)}).items():
                out[f"blk.{layer}.ffn_{part}_exps.weight"] = data[:, rows]
            continue
        if arch == "qwen35":
            key, data = of_delta_net(key, data, c.to_dict(), True)
        out[gguf_name(names, key)] = data
    if c.tie_word_embeddings:
        out.pop("output.weight", None)
    return out


def write_text(path, arch, config, state):
    c = config.text_config
    w = gguf.GGUFWriter(path, arch)
    w.add_block_count(c.num_hidden_layers)
    w.add_context_length(c.max_position_embeddings)
    w.add_embedding_length(c.hidden_size)
    w.add_feed_forward_length(c.intermediate_size)
    w.add_head_count(c.num_attention_heads)
    w.add_head_count_kv(c.num_key_value_heads)
    w.add_layer_norm_rms_eps(c.rms_norm_eps)
    w.add_rope_freq_base(c.rope_parameters["rope_theta"])
    w.add_rope_dimension_sections([*c.rope_parameters["mrope_section"], 0])
    if arch != "qwen2vl":
        w.add_key_length(c.head_dim)
        w.add_value_length(c.head_dim)
    if hasattr(config.vision_config, "deepstack_visual_indexes"):
        w.add_num_deepstack_layers(len(config.vision_config.deepstack_visual_indexes))
    if arch == "qwen35":
        w.add_rope_dimension_count(int(c.head_dim * c.rope_parameters["partial_rotary_factor"]))
        add_delta_net(w, c.to_dict())
    if arch == "qwen3vlmoe":
        w.add_expert_count(c.num_experts)
        w.add_expert_used_count(c.num_experts_per_tok)
        w.add_expert_feed_forward_length(c.moe_intermediate_size)
    tokens = vocabulary()
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen2")
    w.add_token_list(list(tokens))
    w.add_token_types([gguf.TokenType.CONTROL if i in MARKS else gguf.TokenType.NORMAL for i in tokens.values()])
    w.add_token_merges([])
    w.add_eos_token_id(2)
    w.add_chat_template(TEMPLATE)
    c.tie_word_embeddings = config.tie_word_embeddings
    finish(w, text_tensors(arch, c, state))


def has_places(config):
    return hasattr(config.vision_config, "num_position_embeddings")


def tower_tensors(config, state):
    deep = getattr(config.vision_config, "deepstack_visual_indexes", [])
    out = {}
    for key, data in state.items():
        if not key.startswith("model.visual."):
            continue
        key = key.removeprefix("model.visual.")
        stem, leaf = key.rsplit(".", 1)
        if stem == "patch_embed.proj" and leaf == "weight":  # of either frame
            out["v.patch_embd.weight"], out["v.patch_embd.weight.1"] = data[:, :, 0], data[:, :, 1]
            continue
        parts = stem.split(".")
        if parts[0] == "deepstack_merger_list":
            out[f"v.deepstack.{deep[int(parts[1])]}.{ {'norm': 'norm', 'linear_fc1': 'fc1', 'linear_fc2': 'fc2'}[parts[2]]}.{leaf}"] = data
            continue
        if parts[-1] == "qkv" and not has_places(config):  # Qwen2.5-VL's are three tensors
            for i, p in enumerate("qkv"):
                out[f"v.blk.{parts[1]}.attn_{p}.{leaf}"] = data[i * len(data) // 3:(i + 1) * len(data) // 3]
            continue
        of_block = {"norm1": "ln1", "norm2": "ln2", "attn.qkv": "attn_qkv", "attn.proj": "attn_out", "mlp.linear_fc1": "ffn_up", "mlp.linear_fc2": "ffn_down",
                    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
        top = {"patch_embed.proj": "v.patch_embd", "pos_embed": "v.position_embd", "merger.norm": "v.post_ln", "merger.ln_q": "v.post_ln",
               "merger.linear_fc1": "mm.0", "merger.linear_fc2": "mm.2", "merger.mlp.0": "mm.0", "merger.mlp.2": "mm.2"}
        name = f"v.blk.{parts[1]}.{of_block['.'.join(parts[2:])]}" if parts[0] == "blocks" else top[stem]
        out[f"{name}.{leaf}"] = data
    return out


def write_tower(path, config, state, matrices=T.BF16):
    c = config.vision_config
    w = gguf.GGUFWriter(path, "clip")
    w.add_type(gguf.GGUFType.MMPROJ)
    w.add_clip_has_vision_encoder(True)
    w.add_vision_projection_dim(config.text_config.hidden_size)
    w.add_vision_patch_size(c.patch_size)
    w.add_vision_embedding_length(c.hidden_size)
    w.add_vision_feed_forward_length(c.intermediate_size)
    w.add_vision_block_count(c.depth)
    w.add_vision_head_count(c.num_heads)
    w.add_vision_image_mean(RULES["image_mean"])
    w.add_vision_image_std(RULES["image_std"])
    w.add_vision_min_pixels(RULES["size"]["shortest_edge"])
    w.add_vision_max_pixels(RULES["size"]["longest_edge"])
    w.add_vision_attention_layernorm_eps(1e-6)
    if has_places(config):
        w.add_clip_projector_type(gguf.VisionProjectorType.QWEN3VL)
        w.add_vision_use_gelu(True)
        w.add_vision_image_size(int(c.num_position_embeddings ** 0.5) * c.patch_size)
        w.add_vision_spatial_merge_size(c.spatial_merge_size)
        w.add_vision_is_deepstack_layers([i in getattr(c, "deepstack_visual_indexes", []) for i in range(c.depth)])
    else:
        w.add_clip_projector_type(gguf.VisionProjectorType.QWEN25VL)
        w.add_vision_use_silu(True)
        w.add_vision_image_size(560)
        w.add_vision_n_wa_pattern(c.fullatt_block_indexes[0] + 1)
        w.add_vision_window_size(c.window_size)
    finish(w, tower_tensors(config, state), kept={"v.position_embd.weight"}, matrices=matrices)


def rows_in_blocks(net, golden, kind):
    """What the tower makes of the pictures where its matrices are what blocks of that kind hold."""
    with torch.no_grad():
        for name, p in net.model.visual.named_parameters():
            if is_in_blocks(name, p):
                p.copy_(torch.tensor(gguf.quants.dequantize(gguf.quants.quantize(p.numpy(), kind), kind)))
        return [net.model.visual(torch.tensor(golden[f"patches.{i}"]), grid_thw=torch.tensor([[1, *grid]])).pooler_output.numpy()
                for i, grid in enumerate(golden["grids"].tolist())]


# Words for which no two tokens are nearly as likely.
QUESTIONS = {"qwen2_5_vl": "what is it?", "qwen3_vl": "which is larger?", "qwen3_vl_moe": "which is larger?", "qwen3_5_vl": "which is larger?"}


def asked(words):
    return [{"role": "user", "content": [*ASKED[2][0]["content"][:2], {"type": "text", "text": words}]}]


def main():
    for seed, (name, arch, cls, config) in enumerate(models()):
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        net = made(cls, config, 320 + seed, halved=True)
        golden = golden_of(net, 20 + seed, 3 * 2 * 4 * 4, 39 if arch == "qwen35" else 7)  # as in make_vision.py
        folder = OUT / f"{name}_gguf"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        state = {k: v.numpy().copy() for k, v in net.state_dict().items()}
        write_text(folder / "model.gguf", arch, config, state)
        write_tower(folder / "mmproj.gguf", config, state)
        # Two pictures in front of a question.
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(TEXT_SIDE / "tokenizer.json"), eos_token=MARKS[LAST], chat_template=TEMPLATE)
        said = answer(net, tokenizer, Qwen2VLImageProcessorPil(**RULES), asked(QUESTIONS[name]))
        (folder / "answers.json").write_text(json.dumps([said]) + "\n")
        if name == "qwen3_vl":
            write_tower(folder / "mmproj-q8_0.gguf", config, state, T.Q8_0)
            for i, rows in enumerate(rows_in_blocks(net, golden, T.Q8_0)):
                golden[f"rows_q8_0.{i}"] = rows
        save_file({k: np.ascontiguousarray(v) for k, v in sorted(golden.items())}, folder / "golden.safetensors")
        for path in sorted(folder.iterdir()):
            path.chmod(0o644)
            print(path.relative_to(DATA), path.stat().st_size // 1024, "KB")


if __name__ == "__main__":
    main()
