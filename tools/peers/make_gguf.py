#!/usr/bin/env python3
"""A GGUF file with the shape of a config.json and random bf16 weights, for timing alone.

  make_gguf.py CONFIG_FOLDER OUT.gguf        needs numpy and the gguf package

The vocabulary is made up, of the real size. Other formats are made from this file by the peer's own quantiser.
"""
import itertools
import json
import pathlib
import sys

import gguf
import numpy as np

ARCHITECTURES = {  # of config.json: name in GGUF, pre-tokeniser, has a norm on each query and key head
    "LlamaForCausalLM": ("llama", "smollm", False),
    "Qwen3ForCausalLM": ("qwen3", "qwen2", True),
    "Qwen3MoeForCausalLM": ("qwen3moe", "qwen2", True),
}


def vocabulary(size):
    """Bytes, pairs of letters and fillers: enough for a byte-level BPE tokeniser to load."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    tokens = [chr(b) for b in shown] + [chr(256 + i) for i in range(256 - len(shown))]
    letters = "abcdefghijklmnopqrstuvwxyz"
    merges = [f"{a} {b}" for a, b in itertools.product(letters, letters)]
    tokens += [m.replace(" ", "") for m in merges]
    return tokens + [f"<t{i}>" for i in range(size - len(tokens))], merges


def main():
    folder, out = sys.argv[1:]
    c = json.loads((pathlib.Path(folder) / "config.json").read_text())
    arch, pre, head_norms = ARCHITECTURES[c["architectures"][0]]
    hidden, layers, inner = c["hidden_size"], c["num_hidden_layers"], c["intermediate_size"]
    heads, kv_heads = c["num_attention_heads"], c["num_key_value_heads"]
    size = c.get("head_dim") or hidden // heads
    experts = c.get("num_experts")
    random = np.random.default_rng(1)
    w = gguf.GGUFWriter(out, arch)
    w.add_name("random weights")
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(hidden)
    w.add_block_count(layers)
    w.add_feed_forward_length(inner)
    if experts:
        w.add_expert_count(experts)
        w.add_expert_used_count(c["num_experts_per_tok"])
        w.add_expert_feed_forward_length(c["moe_intermediate_size"])
    w.add_head_count(heads)
    w.add_head_count_kv(kv_heads)
    w.add_key_length(size)
    w.add_value_length(size)
    w.add_rope_dimension_count(size)
    w.add_rope_freq_base(float(c.get("rope_theta", 1e4)))
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    w.add_vocab_size(c["vocab_size"])
    w.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    tokens, merges = vocabulary(c["vocab_size"])
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre(pre)
    w.add_token_list(tokens)
    w.add_token_types([1] * (len(tokens) - 1) + [3])
    w.add_token_merges(merges)
    w.add_bos_token_id(len(tokens) - 1)
    w.add_eos_token_id(len(tokens) - 1)
    w.add_add_bos_token(False)

    def norm(name, n):
        w.add_tensor(name, np.ones(n, np.float32))

    def bf16(rows, columns):
        x = random.standard_normal((rows, columns), np.float32) / np.float32(np.sqrt(columns))
        bits = x.view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16).view(np.uint8)

    def matrix(name, rows, columns):
        w.add_tensor(name, bf16(rows, columns), raw_dtype=gguf.GGMLQuantizationType.BF16)

    def stack(name, rows, columns):
        matrices = np.stack([bf16(rows, columns) for _ in range(experts)])
        w.add_tensor(name, matrices, raw_dtype=gguf.GGMLQuantizationType.BF16)

    matrix("token_embd.weight", c["vocab_size"], hidden)
    norm("output_norm.weight", hidden)
    if not c.get("tie_word_embeddings"):
        matrix("output.weight", c["vocab_size"], hidden)
    for i in range(layers):
        p = f"blk.{i}."
        norm(p + "attn_norm.weight", hidden)
        norm(p + "ffn_norm.weight", hidden)
        matrix(p + "attn_q.weight", heads * size, hidden)
        matrix(p + "attn_k.weight", kv_heads * size, hidden)
        matrix(p + "attn_v.weight", kv_heads * size, hidden)
        matrix(p + "attn_output.weight", hidden, heads * size)
        if head_norms:
            norm(p + "attn_q_norm.weight", size)
            norm(p + "attn_k_norm.weight", size)
        if experts:
            each = c["moe_intermediate_size"]
            router = random.standard_normal((experts, hidden), np.float32) / np.float32(np.sqrt(hidden))
            w.add_tensor(p + "ffn_gate_inp.weight", router)
            stack(p + "ffn_gate_exps.weight", each, hidden)
            stack(p + "ffn_up_exps.weight", each, hidden)
            stack(p + "ffn_down_exps.weight", hidden, each)
            continue
        matrix(p + "ffn_gate.weight", inner, hidden)
        matrix(p + "ffn_up.weight", inner, hidden)
        matrix(p + "ffn_down.weight", hidden, inner)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


if __name__ == "__main__":
    main()
