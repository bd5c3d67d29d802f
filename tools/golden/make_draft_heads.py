#!/usr/bin/env python3
"""Tiny random heads that draft from hidden states, with the logits of the original formulas in fp32.

Writes tests/data/heads/<name>/{config.json, model.safetensors, golden.safetensors}. Transformers drops these layers
while it loads, so the layer itself is the one of transformers and what is around it is written out here from SGLang
(sgl-project/sglang, python/sglang/srt/models):
  MTP of DeepSeek-V3   deepseek_nextn.py, DeepseekModelNextN.forward: eh_proj(cat(enorm(embedding), hnorm(hidden))),
                       the decoder layer, shared_head.norm; the model's lm_head (load_weights skips shared_head.head)
  MTP of GLM-4.5       glm4_moe_nextn.py, Glm4MoeModelNextN.forward: the same around its own layer
  MTP of Qwen3-Next    qwen3_next_mtp.py, Qwen3NextForCausalLMMTP.forward, and qwen3_5_mtp.py: fc(cat(pre_fc_norm_embedding(
  and Qwen3.5          embedding), pre_fc_norm_hidden(hidden))), a decoder layer with attention, norm, the model's lm_head; the
                       norms multiply by 1 + weight (GemmaRMSNorm). As in vLLM, qwen3_next_mtp.py and qwen3_5_mtp.py
  EAGLE                llama_eagle.py, LlamaModel.forward: fc(cat(embedding, hidden)), layers whose first one has no
                       input norm, no last norm; the model's lm_head
  EAGLE-3              llama_eagle3.py, LlamaDecoderLayer.forward and LlamaModel.forward: fc of three states,
                       cat(input_layernorm(embedding), hidden_norm(hidden)) into attention, the residual is the hidden
                       state before its norm; norm and lm_head of its own, d2t from its tokens to the model's; a chain
                       goes on from the row before the last norm. States by layer id i are those in front of layer
                       i + 1 (llama.py, set_eagle3_layers_to_capture)
The hidden state of a token is what the model's head reads of it (behind the last norm); a row has that of token i and
the embedding of token i + 1, and position i. A chain goes on from the head's own row.

Tensors of golden.safetensors: tokens [n]; logits [n - 1, vocabulary] of every row; chain [3] the tokens that the head
goes on with behind the last row, and chain_logits [3, vocabulary] what they were chosen by.
"""

import json
import sys

from common import DATA

import numpy as np
import torch
import transformers
from safetensors.numpy import save_file
from torch import nn
from transformers import AutoModelForCausalLM, DeepseekV3Config, Glm4MoeConfig, LlamaConfig, Qwen3_5TextConfig, Qwen3NextConfig
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaMLP, LlamaRMSNorm

from make_tiny_models import randomise

torch.set_num_threads(1)
OUT = DATA / "heads"
TOKENS, CHAIN = 23, 3
PLAIN = {"rope_type": "default", "rope_theta": 10000.0}


def bf16(net):
    with torch.no_grad():
        for name, p in list(net.named_parameters()) + list(net.named_buffers()):
            if "inv_freq" not in name:
                p.copy_(p.to(torch.bfloat16).to(torch.float32))


def make(config):
    torch.manual_seed(1)
    return AutoModelForCausalLM.from_config(config, attn_implementation="eager", experts_implementation="eager").float().eval()


def mask_of(n):
    return torch.full((n, n), float("-inf")).triu(1)[None, None]


def run_layer(layer, rotary, x):
    n = x.shape[1]
    positions = torch.arange(n)[None]
    out = layer(x, attention_mask=mask_of(n), position_ids=positions, position_embeddings=rotary(x, positions))
    return out[0] if isinstance(out, tuple) else out


class Prediction(nn.Module):
    """MTP of DeepSeek-V3 and GLM-4.5; `layer` is the family's own behind the last one."""

    def __init__(self, net, layer):
        super().__init__()
        n, eps = net.config.hidden_size, net.config.rms_norm_eps
        self.net, self.layer = [net], layer
        self.enorm, self.hnorm, self.norm = (LlamaRMSNorm(n, eps) for _ in range(3))
        self.eh_proj = nn.Linear(2 * n, n, bias=False)

    def forward(self, tokens, hidden):
        net = self.net[0]
        x = self.eh_proj(torch.cat((self.enorm(net.model.embed_tokens(tokens)), self.hnorm(hidden)), dim=-1))
        x = self.norm(run_layer(self.layer, net.model.rotary_emb, x))
        return net.lm_head(x), x


class QwenPrediction(nn.Module):
    """MTP of Qwen3-Next and Qwen3.5; `layer` is one of the family's with attention, `norm` its class of norms."""

    def __init__(self, net, layer, norm):
        super().__init__()
        n, eps = net.config.hidden_size, net.config.rms_norm_eps
        self.net, self.layers = [net], nn.ModuleList([layer])
        self.pre_fc_norm_embedding, self.pre_fc_norm_hidden, self.norm = (norm(n, eps) for _ in range(3))
        self.fc = nn.Linear(2 * n, n, bias=False)

    def forward(self, tokens, hidden):
        net = self.net[0]
        both = (self.pre_fc_norm_embedding(net.model.embed_tokens(tokens)), self.pre_fc_norm_hidden(hidden))
        x = self.fc(torch.cat(both, dim=-1))
        x = self.norm(run_layer(self.layers[0], net.model.rotary_emb, x))
        return net.lm_head(x), x


class Eagle(nn.Module):
    def __init__(self, net, config):
        super().__init__()
        n = config.hidden_size
        self.net, self.eps = [net], config.rms_norm_eps
        self.fc = nn.Linear(2 * n, n)
        self.attention, self.mlp, self.norm = LlamaAttention(config, 0), LlamaMLP(config), LlamaRMSNorm(n, self.eps)

    def forward(self, tokens, hidden):
        net = self.net[0]
        x = self.fc(torch.cat((net.model.embed_tokens(tokens), hidden), dim=-1))
        n, positions = x.shape[1], torch.arange(x.shape[1])[None]
        x = x + self.attention(x, position_embeddings=net.model.rotary_emb(x, positions), attention_mask=mask_of(n))[0]
        x = x + self.mlp(self.norm(x))
        return net.lm_head(x), x


class Eagle3(nn.Module):
    def __init__(self, net, config, draft_vocab):
        super().__init__()
        n, eps = config.hidden_size, config.rms_norm_eps
        self.net = [net]
        self.fc = nn.Linear(3 * n, n, bias=False)
        self.attention, self.mlp = LlamaAttention(config, 0), LlamaMLP(config)
        for name in ("q_proj", "k_proj", "v_proj"):
            setattr(self.attention, name, nn.Linear(2 * n, getattr(self.attention, name).out_features, bias=False))
        self.input_layernorm, self.hidden_norm, self.post, self.norm = (LlamaRMSNorm(n, eps) for _ in range(4))
        self.lm_head = nn.Linear(n, draft_vocab, bias=False)

    def forward(self, tokens, hidden):
        """`hidden` is a list of rows: of three states, or of one that the head has computed."""
        net = self.net[0]
        n = self.fc.out_features
        x = torch.stack([h if h.shape[-1] == n else self.fc(h) for h in hidden])[None]
        embedding = net.model.embed_tokens(tokens)
        both = torch.cat((self.input_layernorm(embedding), self.hidden_norm(x)), dim=-1)
        rows, positions = x.shape[1], torch.arange(x.shape[1])[None]
        x = x + self.attention(both, position_embeddings=net.model.rotary_emb(x, positions), attention_mask=mask_of(rows))[0]
        x = x + self.mlp(self.post(x))
        return self.lm_head(self.norm(x)), x


@torch.no_grad()
def golden(head, tokens, hidden, ids=None):
    """Rows of the text, then the chain; `hidden` [n, width] by token."""
    text, rows = torch.from_numpy(tokens.astype(np.int64)), list(hidden[:-1])
    three = isinstance(head, Eagle3)
    ahead = list(text[1:])
    chain, chain_logits = [], []
    for step in range(CHAIN):
        given = rows if three else torch.stack(rows)[None]
        logits, own = head(torch.stack(ahead)[None], given)
        if step == 0:
            first = logits[0]
        chain_logits.append(logits[0, -1])
        best = int(logits[0, -1].argmax())
        chain.append(int(ids[best]) if ids is not None else best)
        ahead.append(torch.tensor(chain[-1]))
        rows.append(own[0, -1])
    return {"tokens": tokens.astype(np.int32), "logits": first.numpy(), "chain": np.asarray(chain, dtype=np.int32),
            "chain_logits": torch.stack(chain_logits).numpy()}


def save_tensors(path, tensors):
    """As bf16, which the weights were rounded to."""
    import safetensors.torch
    safetensors.torch.save_file({k: v.detach().to(torch.bfloat16).contiguous() if v.dtype == torch.float32 else v
                                 for k, v in tensors.items()}, path, metadata={"format": "pt"})


def write(folder, config, tensors, values):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    save_tensors(folder / "model.safetensors", tensors)
    if values:
        made = f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}"
        save_file({k: np.ascontiguousarray(v) for k, v in values.items()}, folder / "golden.safetensors", metadata={"made_with": made})
    print(folder.name, sum(f.stat().st_size for f in folder.glob("*")) // 1024, "KiB", flush=True)


def checkpoint_tensors(net):
    """By the names of published files."""
    import tempfile
    import safetensors.torch
    with tempfile.TemporaryDirectory() as folder:
        net.save_pretrained(folder)
        config = json.loads(open(f"{folder}/config.json").read())
        return config, safetensors.torch.load_file(f"{folder}/model.safetensors")


@torch.no_grad()
def states(net, tokens, layers):
    """Behind the last norm, and in front of the layers named."""
    seen = {}
    hooks = [net.model.layers[i].register_forward_pre_hook(lambda _, args, kwargs, i=i: seen.__setitem__(i, (args[0] if args else kwargs["hidden_states"])[0]),
                                                           with_kwargs=True) for i in layers]
    last = net.model(input_ids=torch.from_numpy(tokens.astype(np.int64))[None], use_cache=False).last_hidden_state[0]
    for h in hooks:
        h.remove()
    return last, [seen[i] for i in layers]


def prediction(name, config, seed):
    """The model has one layer more than its configuration will say."""
    layers = config.num_hidden_layers
    net = make(config)
    randomise(net, seed, 0.8, None)
    head = Prediction(net, net.model.layers[-1])
    rng = np.random.Generator(np.random.PCG64(seed + 1))
    with torch.no_grad():
        for p in (head.enorm, head.hnorm, head.norm):
            p.weight.copy_(torch.from_numpy(1 + 0.2 * rng.standard_normal(p.weight.shape, dtype=np.float32)))
        head.eh_proj.weight.copy_(torch.from_numpy(rng.standard_normal(tuple(head.eh_proj.weight.shape), dtype=np.float32) / np.sqrt(2 * config.hidden_size)))
    bf16(net)
    bf16(head)
    saved, tensors = checkpoint_tensors(net)
    p = f"model.layers.{layers - 1}."
    tensors |= {p + "enorm.weight": head.enorm.weight, p + "hnorm.weight": head.hnorm.weight, p + "eh_proj.weight": head.eh_proj.weight,
                p + "shared_head.norm.weight": head.norm.weight, p + "shared_head.head.weight": net.lm_head.weight,
                p + "embed_tokens.weight": net.model.embed_tokens.weight}
    saved |= {"num_hidden_layers": layers - 1, "num_nextn_predict_layers": 1}
    saved.pop("layer_types", None)
    saved.pop("mlp_layer_types", None)
    tokens = rng.integers(3, config.vocab_size, TOKENS)
    whole = net.model.layers
    net.model.layers = whole[: layers - 1]
    net.config.num_hidden_layers = layers - 1
    last, _ = states(net, tokens, [])
    write(OUT / name, saved, {k: v.clone() for k, v in tensors.items()}, golden(head, tokens, last))


def single_experts(name, tensor):
    """As published: a tensor for each expert's gate, up and down."""
    if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
        return {name: tensor}
    scope, leaf = name.rsplit(".", 1)
    out = {}
    for e, matrix in enumerate(tensor):
        parts = zip(("gate_proj", "up_proj"), matrix.chunk(2)) if leaf == "gate_up_proj" else [("down_proj", matrix)]
        out |= {f"{scope}.{e}.{part}.weight": rows for part, rows in parts}
    return out


def qwen(name, config, seed):
    """Layers with a state and one with attention; behind them a layer of its own names."""
    net = make(config)
    randomise(net, seed, 0.8, None)
    one = type(config)(**{**config.to_dict(), "num_hidden_layers": 1, "layer_types": ["full_attention"]})
    one._attn_implementation = one._experts_implementation = "eager"
    head = QwenPrediction(net, type(net.model.layers[0])(one, 0), type(net.model.norm)).float().eval()
    rng = np.random.Generator(np.random.PCG64(seed + 1))
    with torch.no_grad():
        for key, p in sorted(head.named_parameters()):
            x = rng.standard_normal(tuple(p.shape), dtype=np.float32)
            p.copy_(torch.from_numpy(0.2 * x if "norm" in key else np.asarray(1.1 * x / np.sqrt(p.shape[-1]), dtype=np.float32)))
    bf16(net)
    bf16(head)
    saved, tensors = checkpoint_tensors(net)
    for key, p in head.named_parameters():
        tensors |= single_experts(f"mtp.{key}", p)
    if config.model_type != "qwen3_next":
        saved["mtp_num_hidden_layers"] = 1
    tokens = rng.integers(3, config.vocab_size, TOKENS)
    last, _ = states(net, tokens, [])
    write(OUT / name, saved, {k: v.clone() for k, v in tensors.items()}, golden(head, tokens, last))


def eagle3_tensors(head):
    """Those that every file has."""
    names = {"fc.weight": head.fc.weight, "norm.weight": head.norm.weight, "midlayer.input_layernorm.weight": head.input_layernorm.weight,
             "midlayer.hidden_norm.weight": head.hidden_norm.weight, "midlayer.post_attention_layernorm.weight": head.post.weight}
    names |= {f"midlayer.self_attn.{k}": v for k, v in head.attention.named_parameters()}
    return names | {f"midlayer.mlp.{k}": v for k, v in head.mlp.named_parameters()}


def eagles(seed):
    config = LlamaConfig(vocab_size=131, hidden_size=40, intermediate_size=56, num_attention_heads=4, num_key_value_heads=2, head_dim=10,
                         num_hidden_layers=4, max_position_embeddings=512, rope_parameters=dict(PLAIN), bos_token_id=1, eos_token_id=2)
    net = make(config)
    randomise(net, seed, 0.8, None)
    bf16(net)
    rng = np.random.Generator(np.random.PCG64(seed + 1))
    tokens = rng.integers(3, config.vocab_size, TOKENS)
    saved, tensors = checkpoint_tensors(net)
    write(OUT / "llama", saved, tensors, None)
    one = LlamaConfig(**{**config.to_dict(), "num_hidden_layers": 1})
    one._attn_implementation = "eager"

    def draw(head):
        for name, p in sorted(head.named_parameters()):
            x = rng.standard_normal(tuple(p.shape), dtype=np.float32)
            if name.endswith("norm.weight") or name == "post.weight":
                x = 1 + 0.2 * x
            elif name.endswith(".bias"):
                x = 0.3 * x
            else:
                x = (2.0 if "lm_head" in name else 0.9) * x / np.sqrt(p.shape[-1])
            with torch.no_grad():
                p.copy_(torch.from_numpy(np.asarray(x, dtype=np.float32)))
        bf16(head)
        return head.eval()

    base = {k: v for k, v in saved.items() if k != "layer_types"} | {"num_hidden_layers": 1}
    head = draw(Eagle(net, one))
    last, front = states(net, tokens, [1, 2, 3])
    names = {"fc.weight": head.fc.weight, "fc.bias": head.fc.bias, "layers.0.post_attention_layernorm.weight": head.norm.weight}
    names |= {f"layers.0.self_attn.{k}": v for k, v in head.attention.named_parameters()}
    names |= {f"layers.0.mlp.{k}": v for k, v in head.mlp.named_parameters()}
    write(OUT / "llama_eagle", base | {"architectures": ["LlamaForCausalLMEagle"]}, names, golden(head, tokens, last))

    draft_vocab = 60
    ids = np.sort(rng.choice(config.vocab_size, draft_vocab, replace=False)).astype(np.int64)
    head = draw(Eagle3(net, one, draft_vocab))
    names = eagle3_tensors(head) | {"lm_head.weight": head.lm_head.weight, "d2t": torch.from_numpy(ids - np.arange(draft_vocab)),
                                    "t2d": torch.from_numpy(np.isin(np.arange(config.vocab_size), ids))}
    own = base | {"architectures": ["LlamaForCausalLMEagle3"], "eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 1, 2]}}
    write(OUT / "llama_eagle3", own | {"draft_vocab_size": draft_vocab}, names, golden(head, tokens, torch.cat(front, dim=-1), ids))

    # Without draft_vocab_size the model's lm_head is read (load_lm_head_from_target), and its tokens need no d2t.
    head = draw(Eagle3(net, one, config.vocab_size))
    head.lm_head = net.lm_head
    write(OUT / "llama_full_eagle3", own, eagle3_tensors(head), golden(head, tokens, torch.cat(front, dim=-1)))


def main():
    common = dict(bos_token_id=1, eos_token_id=2, max_position_embeddings=512)
    prediction("deepseek_v3", DeepseekV3Config(
        vocab_size=149, hidden_size=40, intermediate_size=52, num_attention_heads=4, num_key_value_heads=4, num_hidden_layers=3,
        q_lora_rank=20, kv_lora_rank=24, qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=12, first_k_dense_replace=1,
        n_routed_experts=6, n_group=2, topk_group=1, num_experts_per_tok=2, n_shared_experts=1, moe_intermediate_size=14,
        rope_parameters=dict(PLAIN), **common), 301)
    prediction("glm4_moe", Glm4MoeConfig(
        vocab_size=139, hidden_size=36, intermediate_size=44, num_attention_heads=4, num_key_value_heads=2, head_dim=12,
        num_hidden_layers=3, moe_intermediate_size=14, n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=1,
        use_qk_norm=True, attention_bias=True, rope_parameters={**PLAIN, "partial_rotary_factor": 0.5}, pad_token_id=0, **common), 311)
    eagles(321)
    kinds = ["linear_attention", "full_attention", "linear_attention"]
    qwen("qwen3_next", Qwen3NextConfig(
        vocab_size=143, hidden_size=40, intermediate_size=44, num_attention_heads=4, num_key_value_heads=2, head_dim=20, num_hidden_layers=3,
        layer_types=kinds, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=10, linear_value_head_dim=12,
        linear_conv_kernel_dim=4, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=14, shared_expert_intermediate_size=18,
        rope_parameters={**PLAIN, "partial_rotary_factor": 0.5}, pad_token_id=0, tie_word_embeddings=False, **common), 331)
    qwen("qwen3_5", Qwen3_5TextConfig(
        vocab_size=147, hidden_size=38, intermediate_size=46, num_attention_heads=3, num_key_value_heads=1, head_dim=16, num_hidden_layers=3,
        layer_types=kinds, linear_num_key_heads=2, linear_num_value_heads=2, linear_key_head_dim=12, linear_value_head_dim=18,
        linear_conv_kernel_dim=3, rope_parameters={**PLAIN, "partial_rotary_factor": 0.5, "mrope_section": [2, 1, 1], "mrope_interleaved": True},
        pad_token_id=0, tie_word_embeddings=True, **common), 341)


if __name__ == "__main__":
    sys.exit(main())
