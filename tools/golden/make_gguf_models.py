#!/usr/bin/env python3
"""Tiny checkpoints with experts, and of families that differ by small ops, as GGUF files.

Writes tests/data/gguf/<name>.gguf for some models of tests/data/models, whose golden.safetensors is what the file must
give as well. Names, metadata and the order of rows are those of llama.cpp's files: all experts of a layer are one
tensor; the q and k of Mixtral have the halves of their heads interleaved; kv_b_proj is one tensor in older files and
two in newer ones, the keys' transposed. Names of the small families are those of the gguf package's own map; Gemma's norms
are stored with 1 added.

Metadata of families with experts are those of llama.cpp's conversion/: gpt_oss.py (blocks of MXFP4 laid out anew, biases in
float), glm.py (layers that predict further tokens are counted among the blocks), ernie.py, minimax.py.
"""

import json
import math

from common import DATA

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T
from safetensors import safe_open

# newer: kv_b_proj in two parts
MODELS = {"mixtral_top2": "llama", "qwen2_moe_shared": "qwen2moe", "qwen3_moe_norm": "qwen3moe",
          "deepseek_v2_lite": "deepseek2", "deepseek_v3_moe": "deepseek2"}
NEWER = {"deepseek_v2_lite"}
SMALL = {"phi3_longrope": "phi3", "gemma2": "gemma2", "gemma3_text_of_images": "gemma3", "phi3_partial": "phi3", "glm4": "glm4", "olmo2": "olmo2",
         "granite": "granite", "granite_moe": "granitemoe", "smollm3": "smollm3", "cohere": "command-r", "cohere2": "cohere2",
         "starcoder2": "starcoder2", "exaone4_window": "exaone4", "ernie": "ernie4_5", "seed_oss": "seed_oss",
         "hunyuan": "hunyuan-dense", "llama_gqa3_tied": "llama", "glm4_moe": "glm4moe", "ernie_moe": "ernie4_5-moe",
         "minimax_m2": "minimax-m2", "qwen3_next": "qwen3next", "qwen3_5": "qwen35",
         "qwen3_5_moe_text_of_images": "qwen35moe", "granite_hybrid": "granitehybrid", "nemotron_h": "nemotron_h",
         "nemotron_h_moe": "nemotron_h_moe", "ministral3": "mistral3", "hunyuan_moe": "hunyuan-moe",
         "llama4": "llama4", "olmoe": "olmoe", "gemma": "gemma",
         "arcee": "arcee"}
DELTA_NETS = {"qwen3next", "qwen35", "qwen35moe"}
INTERLEAVED = {"llama", "granite", "granitemoe", "granitehybrid", "nemotron_h", "nemotron_h_moe", "smollm3", "mistral3",
               "arcee"}

LAYER = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_a_proj": "attn_q_a", "self_attn.q_a_layernorm": "attn_q_a_norm",
    "self_attn.q_b_proj": "attn_q_b", "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa", "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "self_attn.kv_b_proj": "attn_kv_b", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "mlp.gate": "ffn_gate_inp", "block_sparse_moe.gate": "ffn_gate_inp", "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
}
for shared in ("mlp.shared_expert", "mlp.shared_experts"):
    for leaf in ("gate", "up", "down"):
        LAYER[f"{shared}.{leaf}_proj"] = f"ffn_{leaf}_shexp"
TOP = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}
EXPERT = {"gate_proj": "gate", "up_proj": "up", "down_proj": "down", "w1": "gate", "w3": "up", "w2": "down"}


def interleaved(w, heads):
    """The halves of every head's rows, one row of each in turn."""
    return w.reshape(heads, 2, -1, w.shape[-1]).swapaxes(1, 2).reshape(w.shape)


def tensors_of(name, config, newer):
    """Tensors by their GGUF names."""
    out, experts = {}, {}
    with safe_open(DATA / "models" / name / "model.safetensors", framework="pt") as f:
        stored = {key: f.get_tensor(key).float().numpy() for key in f.keys()}
    for key, w in stored.items():
        if key in TOP:
            out[TOP[key]] = w
            continue
        _, _, layer, rest = key.split(".", 3)
        if ".experts." in rest:
            _, number, leaf, _ = rest.rsplit(".", 3)
            experts.setdefault(f"blk.{layer}.ffn_{EXPERT[leaf]}_exps.weight", {})[int(number)] = w
            continue
        if rest == "mlp.gate.e_score_correction_bias":
            out[f"blk.{layer}.exp_probs_b.bias"] = w
            continue
        module, leaf = rest.rsplit(".", 1)
        if module == "self_attn.kv_b_proj" and newer:
            heads, nope = config["num_attention_heads"], config["qk_nope_head_dim"]
            both = w.reshape(heads, -1, w.shape[-1])
            out[f"blk.{layer}.attn_k_b.weight"] = both[:, :nope].transpose(0, 2, 1)
            out[f"blk.{layer}.attn_v_b.weight"] = both[:, nope:]
            continue
        if config["model_type"] == "mixtral" and module.endswith((".q_proj", ".k_proj")):
            w = interleaved(w, config["num_attention_heads" if module.endswith("q_proj") else "num_key_value_heads"])
        if module == "mlp.shared_expert_gate":
            w = w.reshape(-1)
        out[f"blk.{layer}.{LAYER[module]}.{leaf}"] = w
    for key, of in experts.items():
        out[key] = np.stack([of[e] for e in range(len(of))])
    return out


def finish(w, name, tensors):
    """Norms, vectors and routers as they are, matrices in bf16; then the file."""
    for key, data in tensors:
        data = np.ascontiguousarray(data, dtype=np.float32)
        if data.ndim == 1 or key.endswith((".ssm_a", ".ssm_d")) or "gate_inp" in key or "norm" in key or key.endswith(".bias"):
            w.add_tensor(key, data)
        else:
            w.add_tensor(key, gguf.quants.quantize(data, T.BF16), raw_dtype=T.BF16)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    print(f"{name:20s} {(DATA / 'gguf' / f'{name}.gguf').stat().st_size / 1024:6.0f} KiB")


def write(name, arch):
    config = json.loads((DATA / "models" / name / "config.json").read_text())
    rope = {**config, **(config.get("rope_scaling") or {}), **(config.get("rope_parameters") or {})}
    newer = name in NEWER
    w = gguf.GGUFWriter(DATA / "gguf" / f"{name}.gguf", arch)
    w.add_block_count(config["num_hidden_layers"])
    w.add_context_length(config["max_position_embeddings"])
    w.add_embedding_length(config["hidden_size"])
    w.add_feed_forward_length(config["intermediate_size"])
    w.add_head_count(config["num_attention_heads"])
    w.add_layer_norm_rms_eps(config["rms_norm_eps"])
    w.add_rope_freq_base(rope["rope_theta"])
    w.add_expert_count(config.get("num_experts") or config.get("num_local_experts") or config["n_routed_experts"])
    w.add_expert_used_count(config["num_experts_per_tok"])
    if arch != "llama":
        w.add_expert_feed_forward_length(config["moe_intermediate_size"])
    if arch == "qwen2moe":
        w.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])
    if arch == "deepseek2":
        head, rotated, rank = config["qk_nope_head_dim"], config["qk_rope_head_dim"], config["kv_lora_rank"]
        w.add_head_count_kv(1 if newer else config["num_attention_heads"])
        w.add_rope_dimension_count(rotated)
        w.add_kv_lora_rank(rank)
        if config["q_lora_rank"]:
            w.add_q_lora_rank(config["q_lora_rank"])
        if newer:
            w.add_key_length(rank + rotated)
            w.add_value_length(rank)
            w.add_key_length_mla(head + rotated)
            w.add_value_length_mla(config["v_head_dim"])
        else:
            w.add_key_length(head + rotated)
            w.add_value_length(config["v_head_dim"])
        w.add_leading_dense_block_count(config["first_k_dense_replace"])
        w.add_expert_shared_count(config["n_shared_experts"])
        w.add_expert_weights_scale(config["routed_scaling_factor"])
        w.add_expert_weights_norm(config["norm_topk_prob"])
        if config["model_type"] == "deepseek_v3":
            w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
            w.add_expert_group_count(config["n_group"])
            w.add_expert_group_used_count(config["topk_group"])
        if rope.get("rope_type") == "yarn":
            w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
            w.add_rope_scaling_factor(rope["factor"])
            w.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
            w.add_rope_scaling_yarn_log_mul(0.1 * rope["mscale_all_dim"])
    else:
        w.add_head_count_kv(config["num_key_value_heads"])
        if config.get("head_dim"):
            w.add_key_length(config["head_dim"])
            w.add_value_length(config["head_dim"])
            w.add_rope_dimension_count(config["head_dim"])
    finish(w, name, tensors_of(name, config, newer).items())


def tiled(key, w, config):
    """Heads of values as ggml repeats those of keys: conversion/qwen.py, _LinearAttentionVReorderBase."""
    keys, heads, key_size, size = (config[f"linear_{k}"] for k in (
        "num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim"))

    def of(w, axis, size):
        apart = w.reshape(*w.shape[:axis], keys, heads // keys, size, *w.shape[axis + 1:])
        return apart.swapaxes(axis, axis + 1).reshape(w.shape)

    if keys == heads or ".linear_attn." not in key:
        return w
    if ".in_proj_qkv." in key or ".conv1d." in key:
        first = 2 * keys * key_size
        return np.concatenate([w[:first], of(w[first:], 0, size)])
    if ".in_proj_z." in key:
        return of(w, 0, size)
    if ".out_proj." in key:
        return of(w, 1, size)
    return of(w, 0, 1) if ".norm." not in key else w


def of_delta_net(key, w, config, is_tiled):
    """Qwen3NextModel.modify_tensors of conversion/qwen.py, in front of which _LinearAttentionVReorderBase has its turn."""
    if "conv1d" in key or key.endswith("shared_expert_gate.weight"):
        w = w.squeeze()
    w = tiled(key, w, config) if is_tiled else w
    if key.endswith(".A_log"):
        w = -np.exp(w)
    if key.endswith("norm.weight") and not key.endswith("linear_attn.norm.weight"):
        w = w + np.float32(1)
    return key.replace(".dt_bias", ".dt_proj.bias"), w


def gguf_name(names, key):
    if key.endswith(".A_log"):
        return names.get_name(key)
    module, leaf = key.rsplit(".", 1)
    return f"{names.get_name(module) or {'lm_head': 'output'}[module]}.{leaf}"


def add_delta_net(w, config):
    w.add_ssm_conv_kernel(config["linear_conv_kernel_dim"])
    w.add_ssm_state_size(config["linear_key_head_dim"])
    w.add_ssm_group_count(config["linear_num_key_heads"])
    w.add_ssm_time_step_rank(config["linear_num_value_heads"])
    w.add_ssm_inner_size(config["linear_value_head_dim"] * config["linear_num_value_heads"])
    w.add_full_attention_interval(config.get("full_attention_interval", 4))


def small_tensors(name, arch, config):
    """Tensors of a small family by the names of the gguf package."""
    kind = next(k for k, v in gguf.MODEL_ARCH_NAMES.items() if v == arch)
    names = gguf.get_tensor_name_map(kind, config["num_hidden_layers"])
    with safe_open(DATA / "models" / name / "model.safetensors", framework="pt") as f:
        stored = {key: f.get_tensor(key).float().numpy() for key in f.keys()}
    experts = {}
    for key, w in stored.items():
        key = key.removeprefix("language_model.").replace("model.language_model.", "model.")
        if key.endswith(".experts.gate_up_proj"):  # [experts, in, gate and up behind it]
            for leaf, half in zip(("gate", "up"), np.split(w.swapaxes(1, 2), 2, axis=1)):
                yield f"blk.{key.split('.')[2]}.ffn_{leaf}_exps.weight", half
            continue
        if key.endswith(".experts.down_proj"):
            yield f"blk.{key.split('.')[2]}.ffn_down_exps.weight", w.swapaxes(1, 2)
            continue
        if ".experts." in key:
            module, number, leaf, _ = key.rsplit(".", 3)
            experts.setdefault(f"blk.{module.split('.')[2]}.ffn_{EXPERT[leaf]}_exps.weight", {})[int(number)] = w
            continue
        if key.endswith("e_score_correction_bias"):
            yield f"{names.get_name(key.removesuffix('_bias'))}.bias", w.reshape(-1)
            continue
        if "vision" in key or "visual." in key or "multi_modal" in key:
            continue
        if arch in INTERLEAVED and key.endswith(("q_proj.weight", "k_proj.weight")):
            w = interleaved(w, config["num_attention_heads" if "q_proj" in key else "num_key_value_heads"])
        if arch.startswith("gemma") and key.endswith("norm.weight"):
            w = w + np.float32(1)
        if key.endswith("block_sparse_moe.input_linear.weight"):
            gate, up = np.split(w, 2, axis=1)
            layer = key.split(".")[2]
            yield f"blk.{layer}.ffn_gate_exps.weight", gate
            yield f"blk.{layer}.ffn_up_exps.weight", up
            continue
        if key.endswith("shared_mlp.input_linear.weight"):
            gate, up = np.split(w, 2)
            for leaf, half in (("gate", gate), ("up", up)):
                yield f"blk.{key.split('.')[2]}.ffn_{leaf}_shexp.weight", half
            continue
        if arch == "nemotron_h" and key.startswith("model."):  # as they are published
            key = key.replace("model.", "backbone.", 1)
        if ".mamba." in key or ".mixer." in key:  # conversion/mamba.py, Mamba2Model
            if key.endswith("A_log"):
                w = -np.exp(w)
            if key.endswith(("A_log", ".D")):
                yield names.get_name(key), w.reshape(-1, 1)
                continue
            if key.endswith("norm.weight"):
                w = w.reshape(config.get("mamba_n_groups") or config["n_groups"], -1)
            if key.endswith("conv1d.weight"):
                w = w.squeeze()
            key = key.replace(".dt_bias", ".dt_proj.bias")
        if arch in DELTA_NETS:  # conversion/qwen.py, Qwen3NextModel
            if key.endswith("in_proj_qkvz.weight"):
                heads, size, value = (config[f"linear_{k}"] for k in ("num_key_heads", "key_head_dim", "value_head_dim"))
                each = config["linear_num_value_heads"] // heads * value
                parts = np.split(w.reshape(heads, -1, w.shape[-1]), np.cumsum([size, size, each]), axis=1)
                q, k, v, z = (p.reshape(-1, w.shape[-1]) for p in parts)
                yield f"blk.{key.split('.')[2]}.attn_qkv.weight", np.concatenate([q, k, v])
                yield f"blk.{key.split('.')[2]}.attn_gate.weight", z
                continue
            key, w = of_delta_net(key, w, config, arch != "qwen3next")
            parts = key.split(".")
            if arch == "qwen3next" and ".mlp." in key and len(parts) == 6 and parts[4] in EXPERT:  # a dense layer, for which the package has no names here
                yield f"blk.{parts[2]}.ffn_{EXPERT[parts[4]]}.weight", w
                continue
        yield gguf_name(names, key), w
    for key, of in experts.items():
        yield key, np.stack([of[e] for e in range(len(of))])


def prediction_layer(config, stored):
    """A layer behind the last one that predicts a further token, as _Qwen35MtpMixin of conversion/qwen.py has it: a copy of one
    that attends, and what stands in front of it."""
    n, hidden = config["num_hidden_layers"], config["hidden_size"]
    source = config["layer_types"].index("full_attention")
    for key, w in stored.items():
        if key.startswith(f"blk.{source}."):
            yield key.replace(f"blk.{source}.", f"blk.{n}."), w
    yield f"blk.{n}.nextn.eh_proj.weight", np.full((hidden, 2 * hidden), 0.25, np.float32)
    for norm in ("enorm", "hnorm", "shared_head_norm"):
        yield f"blk.{n}.nextn.{norm}.weight", np.ones(hidden, np.float32)


def nemotron_prediction_layer(config, stored):
    """The block behind the last one that NemotronHModel of conversion/nemotron.py folds the two layers of mtp.* into: attention and
    experts, here copies of the model's own."""
    n, hidden, types = config["num_hidden_layers"], config["hidden_size"], config["layers_block_type"]
    attends, routes = types.index("full_attention"), types.index("moe")
    for key, w in stored.items():
        if key.startswith(f"blk.{attends}."):
            yield key.replace(f"blk.{attends}.", f"blk.{n}."), w
        elif key.startswith(f"blk.{routes}."):
            yield key.replace(f"blk.{routes}.", f"blk.{n}.").replace("attn_norm", "ffn_norm"), w
    yield f"blk.{n}.nextn.eh_proj.weight", np.full((hidden, 2 * hidden), 0.25, np.float32)
    for norm in ("enorm", "hnorm", "shared_head_norm"):
        yield f"blk.{n}.nextn.{norm}.weight", np.ones(hidden, np.float32)


def llama3_factors(rope, size):
    """What frequencies are divided by: LlamaModel.generate_extra_tensors of conversion/llama.py."""
    old, low, high, factor = (rope[k] for k in ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor", "factor"))
    out = []
    for i in range(0, size, 2):
        length = 2 * math.pi * rope["rope_theta"] ** (i / size)
        smooth = lambda: (old / length - low) / (high - low)
        out.append(1 if length < old / high else factor if length > old / low else 1 / ((1 - smooth()) / factor + smooth()))
    return np.array(out, dtype=np.float32)


def add_of_family(w, arch, config, rope):
    """What llama.cpp's converters write for single families."""
    if arch.startswith("gemma") or arch in ("olmo2", "exaone4", "cohere2", "phi3", "starcoder2"):
        if config.get("sliding_window"):
            w.add_sliding_window(config["sliding_window"])
    if arch == "exaone4":
        w.add_sliding_window_pattern([t == "sliding_attention" for t in config["layer_types"]])
    if arch == "phi3" and rope.get("rope_type") == "longrope":  # conversion/phi.py: no type, and lists as tensors
        old = rope["original_max_position_embeddings"]
        w.add_rope_scaling_orig_ctx_len(old)
        w.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(config["max_position_embeddings"] / old) / math.log(old)))
        w.add_sliding_window(config["sliding_window"] or 0)
        for which in ("long", "short"):
            w.add_tensor(f"rope_factors_{which}.weight", np.array(rope[f"{which}_factor"], dtype=np.float32))
    if arch == "gemma2":
        w.add_attn_logit_softcapping(config["attn_logit_softcapping"])
        w.add_final_logit_softcapping(config["final_logit_softcapping"])
    if arch in ("command-r", "cohere2"):
        w.add_logit_scale(config["logit_scale"])
        w.add_rope_scaling_type(gguf.RopeScalingType.NONE)
    if arch.startswith("granite"):
        w.add_attention_scale(config["attention_multiplier"])
        w.add_embedding_scale(config["embedding_multiplier"])
        w.add_residual_scale(config["residual_multiplier"])
        w.add_logit_scale(config["logits_scaling"])
    if arch == "granitehybrid":  # conversion/granite.py, GraniteHybridModel: no heads of keys in the other layers, no rotation
        w.add_head_count_kv([config["num_key_value_heads"] if t == "attention" else 0 for t in config["layer_types"]])
        w.add_expert_shared_feed_forward_length(config["shared_intermediate_size"])
        w.add_ssm_conv_kernel(config["mamba_d_conv"])
        w.add_ssm_state_size(config["mamba_d_state"])
        w.add_ssm_group_count(config["mamba_n_groups"])
        w.add_ssm_inner_size(config["mamba_expand"] * config["hidden_size"])
        w.add_ssm_time_step_rank(config["mamba_n_heads"])
        w.add_rope_scaling_finetuned(False)
    if arch.startswith("nemotron_h"):  # conversion/nemotron.py, NemotronHModel
        letters = {"linear_attention": "M", "full_attention": "*", "moe": "E"}
        pattern = config.get("hybrid_override_pattern") or [letters[t] for t in config["layers_block_type"]] + ["*E"]
        size = config["intermediate_size" if arch == "nemotron_h" else "moe_intermediate_size"]
        w.add_head_count_kv([config["num_key_value_heads"] if "*" in m else 0 for m in pattern])
        w.add_feed_forward_length([size if m[-1] in "-E" else 0 for m in pattern])
        w.add_ssm_conv_kernel(config["conv_kernel"])
        w.add_ssm_state_size(config["ssm_state_size"])
        w.add_ssm_group_count(config["n_groups"])
        w.add_ssm_inner_size(config["mamba_num_heads"] * config["mamba_head_dim"])
        w.add_ssm_time_step_rank(config["mamba_num_heads"])
        w.add_rope_scaling_finetuned(False)
    if arch == "nemotron_h_moe":
        w.add_expert_count(config["n_routed_experts"])
        w.add_expert_used_count(config["num_experts_per_tok"])
        w.add_expert_feed_forward_length(config["moe_intermediate_size"])
        w.add_expert_shared_feed_forward_length(config["moe_shared_expert_intermediate_size"])
        w.add_expert_shared_count(config["n_shared_experts"])
        w.add_expert_weights_norm(config["norm_topk_prob"])
        w.add_expert_weights_scale(config["routed_scaling_factor"])
        w.add_expert_group_count(config["n_group"])
        w.add_expert_group_used_count(config["topk_group"])  # the converter leaves it out: published models have one group
        w.add_moe_latent_size(config["moe_latent_size"])
        w.add_nextn_predict_layers(1)
    if arch in ("granitemoe", "granitehybrid"):
        w.add_expert_count(config["num_local_experts"])
        w.add_expert_used_count(config["num_experts_per_tok"])
    if arch == "glm4moe":
        w.add_expert_count(config["n_routed_experts"])
        w.add_expert_used_count(config["num_experts_per_tok"])
        w.add_expert_feed_forward_length(config["moe_intermediate_size"])
        w.add_expert_shared_count(config["n_shared_experts"])
        w.add_leading_dense_block_count(config["first_k_dense_replace"])
        w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
        w.add_expert_weights_scale(config["routed_scaling_factor"])
        w.add_expert_weights_norm(config["norm_topk_prob"])
        w.add_nextn_predict_layers(config["num_nextn_predict_layers"])
    if arch == "ernie4_5-moe":
        w.add_expert_count(config["moe_num_experts"])
        w.add_expert_used_count(config["moe_k"])
        w.add_interleave_moe_layer_step(config["moe_layer_interval"])
        w.add_leading_dense_block_count(config["moe_layer_start_index"])
        w.add_expert_feed_forward_length(config["moe_intermediate_size"])
        w.add_expert_shared_count(config["moe_num_shared_experts"])
        w.add_expert_shared_feed_forward_length(config["intermediate_size"] // config["num_key_value_heads"])
    if arch in ("qwen3next", "qwen35moe"):
        w.add_expert_count(config["num_experts"])
        w.add_expert_used_count(config["num_experts_per_tok"])
        w.add_expert_feed_forward_length(config["moe_intermediate_size"])
        w.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])
    if arch in DELTA_NETS:
        add_delta_net(w, config)
    if arch in ("qwen35", "qwen35moe"):  # conversion/qwen.py, _Qwen35MRopeMixin
        w.add_rope_dimension_sections([*rope["mrope_section"], 0])
    if arch == "mistral3":  # conversion/mistral3.py, Ministral3Model
        w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        w.add_rope_scaling_factor(rope["factor"])
        w.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        w.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
        w.add_rope_scaling_yarn_beta_slow(rope["beta_slow"])
        w.add_rope_scaling_yarn_log_mul(rope["mscale_all_dim"])
        w.add_attn_temperature_scale(rope["llama_4_scaling_beta"])
    if arch == "hunyuan-moe":  # conversion/hunyuan.py, HunYuanMoEModel
        w.add_expert_count(config["num_experts"])
        w.add_expert_used_count(config["moe_topk"])
        w.add_expert_feed_forward_length(config["intermediate_size"])
        w.add_expert_shared_count(1)
        w.add_expert_shared_feed_forward_length(config["intermediate_size"])
        w.add_rope_scaling_type(gguf.RopeScalingType.NONE)
        w.add_rope_scaling_factor(1)
    if arch == "llama4":  # conversion/llama4.py, Llama4Model, and the factors of frequencies of LlamaModel
        w.add_expert_count(config["num_local_experts"])
        w.add_expert_used_count(config["num_experts_per_tok"])
        w.add_interleave_moe_layer_step(config["interleave_moe_layer_step"])
        w.add_expert_feed_forward_length(config["intermediate_size"])
        w.add_tensor("rope_freqs.weight", llama3_factors(rope, config["head_dim"]))
    if arch == "arcee":  # conversion/arcee.py, ArceeModel, which is LlamaModel
        w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        w.add_rope_scaling_factor(rope["factor"])
        w.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if arch == "olmoe":
        w.add_expert_count(config["num_experts"])
        w.add_expert_used_count(config["num_experts_per_tok"])
    if arch == "minimax-m2":
        w.add_expert_count(config["num_local_experts"])
        w.add_expert_used_count(config["num_experts_per_tok"])
        w.add_expert_feed_forward_length(config["intermediate_size"])
        w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)


def write_gpt_oss():
    """tests/data/mxfp4, whose experts are in blocks of 16 bytes with exponents beside them, numbers 2 j and 2 j + 1 in byte j,
    and whose rows of gate and up take turns."""
    folder = DATA / "mxfp4"
    config = json.loads((folder / "config.json").read_text())
    rope = config["rope_scaling"]
    stored = {}
    for path in sorted(folder.glob("model-*.safetensors")):
        with safe_open(path, framework="pt") as f:
            for key in f.keys():
                t = f.get_tensor(key)
                stored[key] = t.numpy() if "_blocks" in key or "_scales" in key else t.float().numpy()
    w = gguf.GGUFWriter(DATA / "gguf" / "gpt_oss_mxfp4.gguf", "gpt-oss")
    w.add_block_count(config["num_hidden_layers"])
    w.add_context_length(config["max_position_embeddings"])
    w.add_embedding_length(config["hidden_size"])
    w.add_feed_forward_length(config["intermediate_size"])
    w.add_head_count(config["num_attention_heads"])
    w.add_head_count_kv(config["num_key_value_heads"])
    w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    w.add_rope_scaling_factor(rope["factor"])
    w.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    w.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
    w.add_rope_scaling_yarn_beta_slow(rope["beta_slow"])
    w.add_rope_freq_base(config["rope_theta"])
    w.add_layer_norm_rms_eps(config["rms_norm_eps"])
    w.add_expert_count(config["num_local_experts"])
    w.add_expert_used_count(config["num_experts_per_tok"])
    w.add_key_length(config["head_dim"])
    w.add_value_length(config["head_dim"])
    w.add_sliding_window(config["sliding_window"])
    w.add_expert_feed_forward_length(config["intermediate_size"])
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.GPT_OSS, config["num_hidden_layers"])
    plain = {}
    for key, data in stored.items():
        stem, _, leaf = key.rpartition(".")
        if leaf.endswith("_scales"):
            continue
        if leaf == "sinks":
            plain[f"{names.get_name(key)}.weight"] = data
        elif ".experts." not in key:
            plain[f"{names.get_name(stem) or {'lm_head': 'output'}[stem]}.{leaf}"] = data
        else:
            for part, every in {"gate_up": {"gate": slice(0, None, 2), "up": slice(1, None, 2)}}.get(
                    leaf.split("_proj")[0], {"down": slice(None)}).items():
                name = f"blk.{key.split('.')[2]}.ffn_{part}_exps"
                if leaf.endswith("_bias"):
                    plain[f"{name}.bias"] = data[:, every]
                    continue
                blocks, scales = data[:, every], stored[key.replace("_blocks", "_scales")][:, every]
                numbers = np.stack([blocks & 15, blocks >> 4], axis=-1).reshape(*blocks.shape[:-1], 32)
                laid = np.concatenate([scales[..., None], numbers[..., :16] | numbers[..., 16:] << 4], axis=-1)
                w.add_tensor(f"{name}.weight", laid.reshape(*laid.shape[:2], -1), raw_dtype=T.MXFP4)
                # What the package reads of it is what transformers' table gives.
                table = np.array([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6], dtype=np.float32)
                want = table[numbers] * np.ldexp(np.float32(1), scales.astype(np.int32) - 127)[..., None]
                read = gguf.quants.dequantize(laid.reshape(*laid.shape[:2], -1), T.MXFP4)
                assert np.array_equal(read, want.reshape(read.shape)), name
    finish(w, "gpt_oss_mxfp4", plain.items())


def write_small(name, arch):
    config = json.loads((DATA / "models" / name / "config.json").read_text())
    config = config.get("text_config", config)
    if "layers_block_type" in config:
        config["num_hidden_layers"] = len(config["layers_block_type"])
    rope = {**config, **(config.get("rope_scaling") or {}), **(config.get("rope_parameters") or {})}
    rope = {**rope, **rope.get("full_attention", {})}
    head = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    w = gguf.GGUFWriter(DATA / "gguf" / f"{name}.gguf", arch)
    w.add_block_count(config["num_hidden_layers"] + (1 if arch in ("qwen35", "nemotron_h_moe") else config.get("num_nextn_predict_layers", 0)))
    w.add_context_length(config["max_position_embeddings"])
    w.add_embedding_length(config["hidden_size"])
    if "intermediate_size" in config:
        w.add_feed_forward_length(config.get("intermediate_size_mlp") or config["intermediate_size"])
    w.add_head_count(config["num_attention_heads"])
    w.add_head_count_kv(config["num_key_value_heads"])
    if "rms_norm_eps" in config or "layer_norm_epsilon" in config:
        w.add_layer_norm_rms_eps(config.get("rms_norm_eps") or config["layer_norm_epsilon"])
    else:
        w.add_layer_norm_eps(config.get("layer_norm_eps") or config["norm_epsilon"])
    alpha = rope.get("alpha")
    w.add_rope_freq_base(rope["rope_theta"] * alpha ** (head / (head - 2)) if alpha else rope["rope_theta"])
    w.add_key_length(head)
    w.add_value_length(head)
    w.add_rope_dimension_count(int(head * (rope.get("partial_rotary_factor") or 1)))
    add_of_family(w, arch, config, rope)
    tensors = dict(small_tensors(name, arch, config))
    if arch == "qwen35":
        w.add_nextn_predict_layers(1)
        tensors |= dict(prediction_layer(config, tensors))
    if arch == "nemotron_h_moe":
        tensors |= dict(nemotron_prediction_layer(config, tensors))
    finish(w, name, tensors.items())


def write_joined(name, joined):
    """The file again with the gate and up of all experts in one tensor, gate first, as llama.cpp's
    create_tensor_gate_up_exps reads it and its graph cuts it."""
    reader = gguf.GGUFReader(DATA / "gguf" / f"{name}.gguf")
    tensors = {t.name: t for t in reader.tensors}
    arch = reader.fields["general.architecture"].contents()
    w = gguf.GGUFWriter(DATA / "gguf" / f"{joined}.gguf", arch)
    for key, field in reader.fields.items():
        if not key.startswith("GGUF.") and key != "general.architecture":
            w.add_key_value(key, field.contents(), field.types[0], field.types[-1] if len(field.types) > 1 else None)
    for key, t in tensors.items():
        if ".ffn_up_exps." in key:
            continue
        data = np.asarray(t.data)
        if ".ffn_gate_exps." in key:
            data = np.concatenate([data, tensors[key.replace("gate", "up")].data], axis=1)
            key = key.replace("gate", "gate_up")
        w.add_tensor(key, np.ascontiguousarray(data), raw_dtype=t.tensor_type)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def main():
    for name, arch in MODELS.items():
        write(name, arch)
    write_joined("qwen3_moe_norm", "qwen3_moe_joined")
    for name, arch in SMALL.items():
        write_small(name, arch)
    write_gpt_oss()


if __name__ == "__main__":
    main()
