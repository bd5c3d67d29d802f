#!/usr/bin/env python3
"""Tiny random checkpoints of every model family, with the logits HF transformers gives them in fp32.

Writes tests/data/models/<name>/{config.json, *.safetensors, golden.safetensors} and
tests/data/models/hf_bf16_error.json. See tests/data/models/README.md for the formats.
"""

import json
import shutil
import sys

from common import DATA, write_json
from small_families import FAMILIES

import numpy as np
import torch
import transformers
from safetensors.numpy import save_file
from transformers import (AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, DeepseekV2Config, DeepseekV3Config, LlamaConfig, MistralConfig,
                          MixtralConfig, Qwen2Config, Qwen2MoeConfig, Qwen3Config, Qwen3MoeConfig)

torch.set_num_threads(1)
torch.use_deterministic_algorithms(True)
transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

OUT = DATA / "models"
LENGTHS = (1, 7, 131)
STEPS = 5  # rows of recurrent models that are computed one by one
LATE = (64, 127, 128, 129, 130)  # positions kept of the long sequences, with the last three

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def model(cls, name, *, store="bf16", style="new", lengths=LENGTHS, shard=None, rope=None, gain=0.7, lopsided=None,
          stacked=False, seed=None, without=None, bias_scale=0.2, post_norm=1.0,
          clear_choice=False, recurrent=False, beyond=(), published_type=None, **kw):
    """seed: for weights and tokens, else the place in the list. without: changes of the configuration that must move
    the logits, by what they leave out, or functions that change the model. clear_choice: tokens by what experts are chosen by, the router's bias included.
    beyond: lengths behind the border where frequencies change; their logits are in golden_long.safetensors.
    recurrent: long sequences also have the logits of their last rows one by one, behind the others at once.
    published_type: model_type of config.json where it is not the one that transformers runs."""
    kw.setdefault("num_hidden_layers", 2)
    kw.setdefault("max_position_embeddings", 512)
    kw.setdefault("bos_token_id", 1)
    kw.setdefault("eos_token_id", 2)
    return dict(cls=cls, name=name, store=store, style=style, lengths=lengths, shard=shard, rope=rope, gain=gain,
                lopsided=lopsided, stacked=stacked, seed=seed, without=without or {}, bias_scale=bias_scale,
                post_norm=post_norm, clear_choice=clear_choice, recurrent=recurrent, beyond=beyond,
                published_type=published_type, kw=kw)


LONG = LENGTHS + (203,)

MODELS = [
    model(LlamaConfig, "llama_mha_untied", store="f32", vocab_size=263, hidden_size=50, intermediate_size=75,
          num_attention_heads=5, num_key_value_heads=5, rms_norm_eps=1e-5, rope={"rope_type": "default", "rope_theta": 10000.0}),
    model(LlamaConfig, "llama_gqa3_tied", style="old", vocab_size=263, hidden_size=72, intermediate_size=100, head_dim=24,
          num_attention_heads=9, num_key_value_heads=3, rms_norm_eps=1e-5, tie_word_embeddings=True,
          rope={"rope_type": "default", "rope_theta": 100000.0}),
    model(LlamaConfig, "llama_gqa4_sharded", style="old", shard="70KB", vocab_size=311, hidden_size=64, intermediate_size=90,
          num_attention_heads=8, num_key_value_heads=2, num_hidden_layers=3, rope={"rope_type": "default", "rope_theta": 500000.0}),
    model(LlamaConfig, "llama_bias", vocab_size=257, hidden_size=54, intermediate_size=70, num_attention_heads=3,
          num_key_value_heads=1, attention_bias=True, mlp_bias=True, rope={"rope_type": "default", "rope_theta": 10000.0}),
    model(LlamaConfig, "llama_rope_linear", style="old", lengths=LONG, vocab_size=259, hidden_size=64, intermediate_size=90,
          num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
          rope={"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}),
    model(LlamaConfig, "llama_rope_dynamic", style="old", lengths=(1, 7, 61, 131, 203), vocab_size=259, hidden_size=64,
          intermediate_size=90, num_attention_heads=4, num_key_value_heads=1, max_position_embeddings=64,
          rope={"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}),
    model(LlamaConfig, "llama_rope_dynamic_new", lengths=(1, 7, 61, 131), vocab_size=271, hidden_size=48, intermediate_size=75,
          num_attention_heads=3, num_key_value_heads=3, max_position_embeddings=64, tie_word_embeddings=True,
          rope={"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}),
    model(LlamaConfig, "llama_rope_llama3", style="old", lengths=LONG, vocab_size=283, hidden_size=80, intermediate_size=110,
          num_attention_heads=4, num_key_value_heads=1, head_dim=32, tie_word_embeddings=True, rms_norm_eps=1e-5,
          rope={"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
                "high_freq_factor": 4.0, "original_max_position_embeddings": 64}),
    model(LlamaConfig, "llama_rope_yarn", lengths=LONG, vocab_size=269, hidden_size=64, intermediate_size=90,
          num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
          rope={"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64}),
    model(LlamaConfig, "llama_rope_yarn_options", style="old", lengths=LONG, vocab_size=269, hidden_size=64, intermediate_size=90,
          num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=256,
          rope={"rope_type": "yarn", "rope_theta": 5000.0, "factor": 4.0, "original_max_position_embeddings": 64,
                "attention_factor": 1.25, "beta_fast": 8.0, "beta_slow": 0.5, "truncate": False}),
    model(MistralConfig, "mistral_full", store="f16", style="old", vocab_size=277, hidden_size=64, intermediate_size=90,
          num_attention_heads=4, num_key_value_heads=1, sliding_window=None, rms_norm_eps=1e-5,
          rope={"rope_type": "default", "rope_theta": 1000000.0}),
    model(MistralConfig, "mistral_window24", vocab_size=277, hidden_size=64, intermediate_size=90, num_attention_heads=4,
          num_key_value_heads=2, head_dim=20, sliding_window=24, rms_norm_eps=1e-5,
          rope={"rope_type": "default", "rope_theta": 10000.0}),
    model(Qwen2Config, "qwen2_tied", style="old", vocab_size=281, hidden_size=56, intermediate_size=85, num_attention_heads=7,
          num_key_value_heads=1, tie_word_embeddings=True, rope={"rope_type": "default", "rope_theta": 1000000.0}),
    model(Qwen2Config, "qwen2_untied", store="f32", vocab_size=281, hidden_size=48, intermediate_size=85, num_attention_heads=4,
          num_key_value_heads=1, rope={"rope_type": "default", "rope_theta": 1000000.0}),
    model(Qwen2Config, "qwen25_yarn", style="old", lengths=LONG, vocab_size=293, hidden_size=64, intermediate_size=90,
          num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=3, max_position_embeddings=64,
          rope={"rope_type": "yarn", "rope_theta": 1000000.0, "factor": 4.0, "original_max_position_embeddings": 64}),
    model(Qwen3Config, "qwen3_tied", vocab_size=307, hidden_size=60, intermediate_size=95, num_attention_heads=6,
          num_key_value_heads=2, head_dim=16, tie_word_embeddings=True, rope={"rope_type": "default", "rope_theta": 1000000.0}),
    model(Qwen3Config, "qwen3_untied", style="old", vocab_size=307, hidden_size=56, intermediate_size=95, num_attention_heads=4,
          num_key_value_heads=1, head_dim=24, num_hidden_layers=3, rope={"rope_type": "default", "rope_theta": 1000000.0}),
    # Latent attention; every layer dense.
    model(DeepseekV2Config, "deepseek_v2_dense", seed=60, vocab_size=283, hidden_size=54, intermediate_size=70,
          num_attention_heads=3, num_key_value_heads=3, q_lora_rank=None, kv_lora_rank=20, qk_nope_head_dim=12,
          qk_rope_head_dim=8, v_head_dim=10, first_k_dense_replace=2, n_routed_experts=4, num_experts_per_tok=2,
          moe_intermediate_size=16, rope={"rope_type": "default", "rope_theta": 10000.0}),
    model(DeepseekV3Config, "deepseek_v3_dense", seed=61, style="old", gain=0.9, lengths=LONG, vocab_size=291, hidden_size=60,
          intermediate_size=85, num_attention_heads=5, num_key_value_heads=5, num_hidden_layers=3, q_lora_rank=28,
          kv_lora_rank=35, qk_nope_head_dim=16, qk_rope_head_dim=12, v_head_dim=20, first_k_dense_replace=3,
          attention_bias=True, n_routed_experts=4, n_group=2, topk_group=1, num_experts_per_tok=2, moe_intermediate_size=16,
          max_position_embeddings=256,
          rope={"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64,
                "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 0.7, "mscale_all_dim": 1.0}),
    # And with experts, all of them in groups: V2 by the best of a group, V3 by the best two.
    model(DeepseekV2Config, "deepseek_v2_moe", seed=62, style="old", vocab_size=277, hidden_size=48, intermediate_size=70,
          num_attention_heads=4, num_key_value_heads=4, num_hidden_layers=3, q_lora_rank=20, kv_lora_rank=24,
          qk_nope_head_dim=10, qk_rope_head_dim=6, v_head_dim=14, first_k_dense_replace=1, n_routed_experts=9, n_group=3,
          topk_group=2, topk_method="group_limited_greedy", num_experts_per_tok=4, n_shared_experts=2, routed_scaling_factor=3.0,
          moe_intermediate_size=20, rope={"rope_type": "default", "rope_theta": 10000.0}),
    model(DeepseekV2Config, "deepseek_v2_lite", seed=63, vocab_size=279, hidden_size=46, intermediate_size=70,
          num_attention_heads=2, num_key_value_heads=2, q_lora_rank=None, kv_lora_rank=32, qk_nope_head_dim=16,
          qk_rope_head_dim=8, v_head_dim=16, first_k_dense_replace=1, n_routed_experts=7, topk_method="greedy", n_group=1,
          topk_group=1, num_experts_per_tok=3, n_shared_experts=1, moe_intermediate_size=18, max_position_embeddings=256,
          lengths=LONG, rope={"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64,
                              "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 0.707, "mscale_all_dim": 0.707}),
    model(DeepseekV3Config, "deepseek_v3_moe", seed=64, style="old", vocab_size=289, hidden_size=50, intermediate_size=70,
          num_attention_heads=5, num_key_value_heads=5, num_hidden_layers=3, q_lora_rank=24, kv_lora_rank=28,
          qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=12, first_k_dense_replace=1, n_routed_experts=12, n_group=4,
          topk_group=2, num_experts_per_tok=5, n_shared_experts=1, moe_intermediate_size=20, norm_topk_prob=True,
          routed_scaling_factor=2.5, rope={"rope_type": "default", "rope_theta": 10000.0}),
    # Experts. lopsided: (one that every token goes to, one that none does).
    model(MixtralConfig, "mixtral_top2", seed=17, style="old", vocab_size=257, hidden_size=48, intermediate_size=37, num_attention_heads=4,
          num_key_value_heads=2, num_local_experts=5, num_experts_per_tok=2, rms_norm_eps=1e-5,
          rope={"rope_type": "default", "rope_theta": 1000000.0}),
    model(MixtralConfig, "mixtral_one_expert", seed=18, lopsided=(2, 0), stacked=True, store="f32", vocab_size=251, hidden_size=40,
          intermediate_size=29, num_attention_heads=5, num_key_value_heads=1, num_local_experts=3, num_experts_per_tok=1,
          rms_norm_eps=1e-5, rope={"rope_type": "default", "rope_theta": 10000.0}),
    model(Qwen3MoeConfig, "qwen3_moe_norm", seed=19, style="old", vocab_size=263, hidden_size=48, intermediate_size=61,
          moe_intermediate_size=23, num_attention_heads=4, num_key_value_heads=1, head_dim=16, num_hidden_layers=3,
          num_experts=7, num_experts_per_tok=3, norm_topk_prob=True, decoder_sparse_step=2, tie_word_embeddings=True,
          rope={"rope_type": "default", "rope_theta": 1000000.0}),
    model(Qwen3MoeConfig, "qwen3_moe_top8", seed=20, vocab_size=269, hidden_size=44, intermediate_size=53, moe_intermediate_size=19,
          num_attention_heads=4, num_key_value_heads=2, head_dim=12, num_experts=13, num_experts_per_tok=8, norm_topk_prob=False,
          mlp_only_layers=[0], num_hidden_layers=3, rope={"rope_type": "default", "rope_theta": 1000000.0}),
    model(Qwen3MoeConfig, "qwen3_moe_top1", seed=21, stacked=True, vocab_size=271, hidden_size=40, intermediate_size=50,
          moe_intermediate_size=27, num_attention_heads=2, num_key_value_heads=1, head_dim=20, num_experts=5,
          num_experts_per_tok=1, norm_topk_prob=False, rope={"rope_type": "default", "rope_theta": 10000.0}),
    model(Qwen2MoeConfig, "qwen2_moe_shared", seed=22, style="old", vocab_size=277, hidden_size=48, intermediate_size=66,
          moe_intermediate_size=21, shared_expert_intermediate_size=45, num_attention_heads=4, num_key_value_heads=4,
          num_experts=5, num_experts_per_tok=2, norm_topk_prob=False, rope={"rope_type": "default", "rope_theta": 1000000.0}),
    model(Qwen2MoeConfig, "qwen2_moe_lopsided", seed=23, lopsided=(1, 4), vocab_size=281, hidden_size=56, intermediate_size=66,
          moe_intermediate_size=17, shared_expert_intermediate_size=34, num_attention_heads=4, num_key_value_heads=2,
          num_experts=6, num_experts_per_tok=3, norm_topk_prob=True, rope={"rope_type": "default", "rope_theta": 1000000.0}),
    # Of model_type mistral; transformers loads it as Ministral, where only the layers that say so slide.
    model(MistralConfig, "mistral_layer_types", vocab_size=149, hidden_size=48, intermediate_size=52, num_attention_heads=4,
          num_key_value_heads=2, num_hidden_layers=3, sliding_window=24, rms_norm_eps=1e-5,
          layer_types=["sliding_attention", "full_attention", "sliding_attention"],
          rope={"rope_type": "default", "rope_theta": 10000.0}),
]
# Sizes of heads that published models have, beside the odd ones above, with one to eight queries for a key.
MODELS += [
    model(LlamaConfig, "llama_head80_gqa8", seed=200, vocab_size=131, hidden_size=32, intermediate_size=37, head_dim=80, num_attention_heads=8,
          num_key_value_heads=1, num_hidden_layers=1, rms_norm_eps=1e-5, rope={"rope_type": "default", "rope_theta": 10000.0}),
    model(Qwen3Config, "qwen3_head96", seed=201, vocab_size=127, hidden_size=30, intermediate_size=41, head_dim=96, num_attention_heads=3,
          num_key_value_heads=3, tie_word_embeddings=True, rope={"rope_type": "default", "rope_theta": 1000000.0}),
    model(MistralConfig, "mistral_head192_gqa2", seed=202, vocab_size=137, hidden_size=28, intermediate_size=35, head_dim=192,
          num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=1, sliding_window=24, rms_norm_eps=1e-5,
          rope={"rope_type": "default", "rope_theta": 10000.0}),
    model(LlamaConfig, "llama_head256_gqa8", seed=203, vocab_size=139, hidden_size=32, intermediate_size=33, head_dim=256,
          num_attention_heads=8, num_key_value_heads=1, num_hidden_layers=1, rms_norm_eps=1e-5, rope={"rope_type": "default", "rope_theta": 500000.0}),
]
MODELS += [model(**row) for row in FAMILIES]
# Kimi K2: DeepSeek-V3 with one group of experts and a ramp of YaRN of width one. The published file names a type of its
# own, for which transformers would run the code that comes with the weights, so the name is written behind all runs.
KIMI_ROPE = {"rope_type": "yarn", "rope_theta": 5000.0, "factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 1.0, "beta_slow": 1.0,
             "mscale": 1.0, "mscale_all_dim": 1.0}
MODELS += [
    model(DeepseekV3Config, "deepseek_v3_kimi_k2", seed=65, style="old", lengths=LONG, clear_choice=True, vocab_size=271, hidden_size=46,
          intermediate_size=62, num_attention_heads=3, num_key_value_heads=3, num_hidden_layers=3, q_lora_rank=22,
          kv_lora_rank=26, qk_nope_head_dim=12, qk_rope_head_dim=10, v_head_dim=14, first_k_dense_replace=1, n_routed_experts=11,
          n_group=1, topk_group=1, num_experts_per_tok=4, n_shared_experts=1, moe_intermediate_size=18, norm_topk_prob=True,
          routed_scaling_factor=2.827, num_nextn_predict_layers=0, published_type="kimi_k2", max_position_embeddings=256, rope=KIMI_ROPE,
          without={"narrow_ramp": {"rope_parameters": {**KIMI_ROPE, "beta_fast": 32.0}}}),
]


def is_centred(net):
    """Whether norms multiply with 1 + weight."""
    return net.config.model_type.startswith(("gemma", "qwen3_next", "qwen3_5"))


def randomise(net, seed, gain, lopsided, bias_scale=0.2, post_norm=1.0):
    """Weights drawn in the sorted order of their names: matrices gain / sqrt(fan_in) N (queries and
    keys a little larger, so that positions matter), the embedding N (tied: 0.6 N), norms 1 + 0.2 N, biases 0.3 N.
    Where experts are lopsided, every token has the same first number, which speaks for one expert and against one."""
    rng = np.random.Generator(np.random.PCG64(seed))
    tied = net.config.get_text_config().tie_word_embeddings and net.config.tie_word_embeddings
    with torch.no_grad():
        for name, p in sorted(net.named_parameters()):
            x = rng.standard_normal(tuple(p.shape), dtype=np.float32)
            if name.endswith(("norm.weight", ".norm_f.weight")):
                x = (post_norm if "post_" in name else 1.0) * (1 + 0.2 * x)
                x = x - 1 if is_centred(net) and not name.endswith("linear_attn.norm.weight") else x
            elif name.endswith(".A_log"):  # states that fade within a few rows, and some that last
                x = 1.3 * x - 2
            elif name.endswith("e_score_correction_bias"):
                x = bias_scale * x
            elif name.endswith((".bias", "_bias")):
                x = 0.3 * x
            elif name.endswith(".sinks"):
                x = 1 + x
            elif "embed_tokens" in name or name == "model.embeddings.weight":
                x = (0.6 if tied else 1.0) * x
            else:
                scale = {"q_proj": 1.2, "k_proj": 1.2, "lm_head": 2.0, "gate": 2.0, "router": 2.0}.get(name.split(".")[-2], gain)
                x = scale / np.sqrt(p.shape[-1]) * x
            if lopsided and "embed_tokens" in name:
                x[:, 0] = 4
            if lopsided and name.endswith(".gate.weight"):
                x[lopsided[0], 0], x[lopsided[1], 0] = 8, -8
            p.copy_(torch.from_numpy(np.asarray(x, dtype=np.float32)))
        for name, b in sorted(net.named_buffers()):  # what shifts the choice of DeepSeek-V3's experts
            if name.endswith("e_score_correction_bias"):
                b.copy_(torch.from_numpy(bias_scale * rng.standard_normal(tuple(b.shape), dtype=np.float32)))


def rewrite_config(path, style, spec):
    """save_pretrained writes the new spelling (rope_parameters, dtype); the old one is what most published
    checkpoints still have (rope_theta, rope_scaling, torch_dtype)."""
    c = json.loads(path.read_text())
    if style == "old":
        rope = dict(c.pop("rope_parameters"))
        if "sliding_attention" in rope:
            if rope["sliding_attention"]["rope_theta"] != rope["full_attention"]["rope_theta"]:
                c["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
            rope = dict(rope["full_attention"])
        if rope.get("partial_rotary_factor") is not None:
            c["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
        c["rope_theta"] = rope.pop("rope_theta")
        kind = rope.pop("rope_type")
        if kind == "default":
            c["rope_scaling"] = None
        elif kind in ("linear", "dynamic"):
            c["rope_scaling"] = {"type": kind, **rope}
        elif spec["published_type"]:
            c["rope_scaling"] = {**rope, "type": kind}
        elif spec["name"] == "qwen25_yarn":
            c["rope_scaling"] = {"factor": rope["factor"], "original_max_position_embeddings": rope["original_max_position_embeddings"], "type": "yarn"}
        else:
            c["rope_scaling"] = {**rope, "rope_type": kind}
        c["torch_dtype"] = c.pop("dtype")
        c["transformers_version"] = "4.40.0"
        types = c.pop("layer_types", None)
        if c["model_type"] == "granitemoehybrid":
            c["layer_types"] = ["mamba" if t == "linear_attention" else "attention" for t in types]
            c.pop("time_step_limit")  # newer than the published files
        if c["model_type"] == "nemotron_h":  # with what is no JSON, as it is published
            letters = {"linear_attention": "M", "full_attention": "*", "mlp": "-", "moe": "E"}
            c["hybrid_override_pattern"] = "".join(letters[t] for t in c.pop("layers_block_type"))
            c["time_step_limit"], c["num_hidden_layers"] = [0.0, float("inf")], len(c["hybrid_override_pattern"])
        if c["model_type"] == "internlm3":
            c["architectures"] = ["InternLM3ForCausalLM"]
            c["qkv_bias"], c["bias"] = c.pop("attention_bias"), c.pop("mlp_bias")
        if "num_experts" not in c and c["model_type"].startswith("qwen") and "num_local_experts" in c:
            c["num_experts"] = c.pop("num_local_experts")
        if c["model_type"] == "qwen3_next":
            c["full_attention_interval"] = 4
        if c["model_type"] == "llama" and c.get("head_dim") == c["hidden_size"] // c["num_attention_heads"]:
            c.pop("head_dim")
    path.write_text(json.dumps(c, indent=2, sort_keys=True) + "\n")


def load(folder, dtype):
    auto = AutoModelForCausalLM
    if "text_config" in json.loads((folder / "config.json").read_text()):
        auto = AutoModelForImageTextToText
    return auto.from_pretrained(folder, dtype=dtype, attn_implementation="eager", experts_implementation="eager").eval()


@torch.no_grad()
def run(net, tokens, stepwise=False):
    ids = torch.from_numpy(tokens.astype(np.int64))[None]
    if not stepwise:
        return net(input_ids=ids, use_cache=False).logits[0].float().numpy()
    cache, rows = None, []
    for i in range(len(tokens)):
        out = net(input_ids=ids[:, i : i + 1], past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        rows.append(out.logits[0, 0].float().numpy())
    return np.stack(rows)


@torch.no_grad()
def run_last_rows(net, tokens, count):
    """Logits of the last rows: one by one, behind all others at once."""
    ids = torch.from_numpy(tokens.astype(np.int64))[None]
    cache = net(input_ids=ids[:, :-count], use_cache=True).past_key_values
    rows = []
    for i in range(len(tokens) - count, len(tokens)):
        rows.append(net(input_ids=ids[:, i : i + 1], past_key_values=cache, use_cache=True).logits[0, 0].float().numpy())
    return np.stack(rows)


def per_position_dynamic(net):
    """The rule of our engine, as a whole prefill: position p is rotated with the base of length max(p+1, window)."""
    rope = net.model.rotary_emb
    c = net.config

    def forward(x, position_ids):
        rows = []
        for p in position_ids[0].tolist():
            n = max(p + 1, c.max_position_embeddings)
            f = c.rope_parameters["factor"]
            base = c.rope_parameters["rope_theta"] * ((f * n / c.max_position_embeddings) - (f - 1)) ** (c.head_dim / (c.head_dim - 2))
            inv = 1.0 / (base ** (torch.arange(0, c.head_dim, 2, dtype=torch.float32) / c.head_dim))
            rows.append(torch.cat([p * inv, p * inv]))
        emb = torch.stack(rows)[None]
        return emb.cos().to(x.dtype), emb.sin().to(x.dtype)

    rope.forward = forward


class RouterWatch:
    """What the routers say while it is open: logits and choices of each layer with experts."""

    def __init__(self, net):
        self.seen = []
        routers = [(n, m) for n, m in net.named_modules()
                   if n.endswith((".gate", ".router")) and type(m).__name__.endswith(("Router", "V1Gate"))]
        self.names = [n for n, _ in routers]
        # Llama 4's gives the scores of those that are chosen in front of its logits.
        self.hooks = [m.register_forward_hook(lambda m, _, out: self.seen.append(out[1:] if type(m).__name__ == "Llama4Router" else out))
                      for _, m in routers]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for h in self.hooks:
            h.remove()


def choice_of(net, name, logits):
    """What the best are taken of: scores and the bias on them."""
    tensors = dict(net.named_parameters()) | dict(net.named_buffers())
    ending = "e_score_correction_bias"
    for known in (f"{name}.{ending}", f"{name.rpartition('.')[0]}.{ending}", f"{name}.moe_statics.{ending}"):
        if known in tensors:
            soft = net.config.model_type.startswith("ernie")
            return (logits.float().softmax(-1) if soft else logits.float().sigmoid()) + tensors[known].flatten()
    return logits


@torch.no_grad()
def clear_tokens(net, rng, n, clear_choice=False):
    """Tokens whose experts are chosen clearly: of a dozen candidates in each place the one with the largest gap between
    the logits of the last expert that is taken and the first that is not. Rounding to bf16 then changes no choice."""
    config, tries = net.config.get_text_config(), 12
    k = config.num_experts_per_tok
    tokens = np.zeros((tries, 0), dtype=np.int64)
    for _ in range(n):
        tokens = np.concatenate([tokens, rng.choice(config.vocab_size, (tries, 1), replace=False)], axis=1)
        with RouterWatch(net) as watch:
            net(input_ids=torch.from_numpy(tokens), use_cache=False)
        gaps = []
        for name, (logits, *_) in zip(watch.names, watch.seen):
            logits = choice_of(net, name, logits) if clear_choice else logits
            ranked = logits.reshape(tries, -1, logits.shape[-1])[:, -1].float().sort(dim=-1, descending=True).values
            gaps.append((ranked[:, k - 1] - ranked[:, k]).numpy())
        tokens = np.repeat(tokens[np.argmax(np.min(gaps, axis=0))][None], tries, axis=0)
    return tokens[0].astype(np.int32)


def check_lopsided(net, tokens, lopsided):
    with RouterWatch(net) as watch, torch.no_grad():
        net(input_ids=torch.from_numpy(tokens.astype(np.int64))[None], use_cache=False)
    for _, _, chosen in watch.seen:
        assert (chosen == lopsided[0]).any(dim=-1).all() and not (chosen == lopsided[1]).any(), chosen


def write_beyond(net, folder, spec, rng, made):
    """Logits of sequences that are rotated by other frequencies than shorter ones: at their first rows as well, where
    the shorter ones give others."""
    golden = {}
    border = net.config.original_max_position_embeddings
    for n in spec["beyond"]:
        assert n > border
        tokens = rng.integers(0, net.config.vocab_size, n, dtype=np.int32)
        logits = run(net, tokens)
        positions = np.array(sorted({0, 5, 40, *LATE, border - 1, border, n - 2, n - 1}), dtype=np.int32)
        golden[f"tokens.{n}"], golden[f"positions.{n}"] = tokens, positions
        golden[f"logits.{n}"] = np.ascontiguousarray(logits[positions], dtype=np.float32)
        short = run(net, tokens[:border])
        assert relative(short, logits[:border]) > 0.02, (spec["name"], n)
    save_file(golden, folder / "golden_long.safetensors", metadata={"made_with": made})


def relative(a, b):
    return float(np.abs(a - b).max() / np.abs(b).max())


def main():
    only = set(sys.argv[1:])
    OUT.mkdir(parents=True, exist_ok=True)
    report_path = OUT / "hf_bf16_error.json"
    report = json.loads(report_path.read_text())["models"] if report_path.exists() and only else {}
    for index, spec in enumerate(MODELS):
        name = spec["name"]
        if only and name not in only:
            continue
        seed = index if spec["seed"] is None else spec["seed"]
        folder = OUT / name
        shutil.rmtree(folder, ignore_errors=True)
        if "text_config" in spec["kw"]:
            config = spec["cls"](**{k: v for k, v in spec["kw"].items() if not k.startswith(("num_h", "max_p"))})
        else:
            config = spec["cls"](**spec["kw"], rope_parameters=dict(spec["rope"]))
        auto = AutoModelForImageTextToText if "text_config" in spec["kw"] else AutoModelForCausalLM
        net = auto.from_config(config, attn_implementation="eager", experts_implementation="eager")
        config = config.get_text_config()
        randomise(net, 1000 + seed, spec["gain"], spec["lopsided"], spec["bias_scale"], spec["post_norm"])
        net = net.to(DTYPES[spec["store"]])
        net.config.dtype = DTYPES[spec["store"]]
        net.save_pretrained(folder, **({"max_shard_size": spec["shard"]} if spec["shard"] else {}),
                            **({"save_original_format": False} if spec["stacked"] else {}))
        for extra in folder.glob("generation_config.json"):
            extra.unlink()
        if "text_config" not in spec["kw"]:
            rewrite_config(folder / "config.json", spec["style"], spec)

        # From here on only what is in the folder counts.
        net = load(folder, torch.float32)
        rope_of = lambda r: r.get("full_attention", r)
        kind = rope_of(net.config.get_text_config().rope_parameters or spec["rope"])["rope_type"]  # none where nothing turns
        assert kind == rope_of(spec["rope"])["rope_type"], (name, net.config.rope_parameters)
        rng = np.random.Generator(np.random.PCG64(5000 + seed))
        golden, meta, full = {}, {}, {}
        for n in spec["lengths"]:
            experts = any(type(m).__name__.endswith(("Router", "V1Gate")) for m in net.modules())
            tokens = clear_tokens(net, rng, n, spec["clear_choice"]) if experts else rng.integers(0, config.vocab_size, n, dtype=np.int32)
            if spec["lopsided"]:
                check_lopsided(net, tokens, spec["lopsided"])
            stepwise = kind == "dynamic" and "alpha" not in spec["rope"] and n > config.max_position_embeddings
            logits = run(net, tokens, stepwise)
            positions = np.arange(n, dtype=np.int32) if n < 16 else np.array(
                sorted({p for p in LATE if p < n} | {n - 3, n - 2, n - 1}), dtype=np.int32)
            golden[f"tokens.{n}"] = tokens
            golden[f"positions.{n}"] = positions
            golden[f"logits.{n}"] = np.ascontiguousarray(logits[positions], dtype=np.float32)
            full[n] = (tokens, stepwise, logits)
            if spec["recurrent"] and n > STEPS:
                golden[f"stepped.{n}"] = np.ascontiguousarray(run_last_rows(net, tokens, STEPS), dtype=np.float32)
                assert relative(golden[f"stepped.{n}"], logits[-STEPS:]) < 2e-5, (name, n)
            if kind == "dynamic" and stepwise:
                check = load(folder, torch.float32)
                per_position_dynamic(check)
                drift = relative(run(check, tokens), logits)
                assert drift < 2e-5, (name, n, drift)
        # one key: the order of several is not fixed
        made = f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}"
        save_file(golden, folder / "golden.safetensors", metadata={"made_with": made})
        if spec["beyond"]:
            write_beyond(net, folder, spec, rng, made)

        entry = {"max_abs_logit": round(float(max(np.abs(l).max() for *_, l in full.values())), 4)}
        for label in ("bf16", "f16"):
            low = load(folder, DTYPES[label])
            entry[label] = float(f"{max(relative(run(low, t, s), l) for t, s, l in full.values()):.3g}")
        cached = max(relative(run(net, t, True), l) for t, _, l in full.values())
        entry["f32_cached_vs_whole"] = float(f"{cached:.3g}")
        for label, changes in spec["without"].items():
            plain_config = AutoConfig.from_pretrained(folder)
            for key, value in (changes.items() if isinstance(changes, dict) else ()):
                setattr(plain_config, key, value)
            plain = AutoModelForCausalLM.from_pretrained(folder, config=plain_config, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager").eval()
            if not isinstance(changes, dict):
                with torch.no_grad():
                    changes(plain)
            t, s, l = full[131]
            entry[f"without_{label}"] = round(relative(run(plain, t), l), 4)
            assert entry[f"without_{label}"] > 0.02, (name, entry)
        if kind != "default" and "full_attention" not in spec["rope"]:  # the scaling has to matter: the same weights without it
            plain_config = AutoConfig.from_pretrained(folder)
            plain_config.rope_parameters = {"rope_type": "default", "rope_theta": spec["rope"]["rope_theta"],
                                            **{k: v for k, v in spec["rope"].items() if k == "partial_rotary_factor"
                                               or (name == "ministral3" and k in ("llama_4_scaling_beta", "original_max_position_embeddings"))}}
            plain = AutoModelForCausalLM.from_pretrained(folder, config=plain_config, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager").eval()
            t, s, l = full[131]
            entry["without_rope_scaling"] = round(relative(run(plain, t), l), 4)
            assert entry["without_rope_scaling"] > 0.05, (name, entry)
        if name in ("mistral_window24", "mistral_layer_types"):
            # Without windows, or with one in every layer.
            plain_config = AutoConfig.from_pretrained(folder)
            if "layer_types" in spec["kw"]:
                assert plain_config.model_type == "ministral", plain_config.model_type
                plain_config.layer_types = ["sliding_attention"] * len(plain_config.layer_types)
            else:
                plain_config.sliding_window = None
            plain = AutoModelForCausalLM.from_pretrained(folder, config=plain_config, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager").eval()
            t, s, l = full[131]
            entry["without_window"] = round(relative(run(plain, t), l), 4)
            assert entry["without_window"] > 0.05, (name, entry)
        report[name] = entry
        if spec["published_type"]:
            written = json.loads((folder / "config.json").read_text()) | {"model_type": spec["published_type"]}
            (folder / "config.json").write_text(json.dumps(written, indent=2, sort_keys=True) + "\n")
        size = sum(f.stat().st_size for f in folder.glob("*"))
        print(f"{name:26s} {size / 1024:6.0f} KiB  {entry}", flush=True)
    write_json(report_path, {
        "what": "error of HF transformers itself on these models, largest |difference| over largest |logit| against its own fp32 run, "
                "over all positions of all golden sequences; f32_cached_vs_whole: fp32, one token at a time with a KV cache against the golden; "
                "without_rope_scaling / without_window: how far the logits of the 131 token sequence move when that feature is left out",
        "models": report,
    })


if __name__ == "__main__":
    main()
