#!/usr/bin/env python3
"""Tiny W8A8 checkpoints, ModelSlim and compressed-tensors, with the logits that their formulas give.

Writes tests/data/models_quantised/<name>/{config.json, *.safetensors, golden.safetensors} and, for ModelSlim,
quant_model_description.json. See tests/data/models_quantised/README.md.

ModelSlim has no public reference that runs on a CPU: its checkpoints are written by its documented rules, and their
logits come from HF transformers with every nn.Linear replaced by the integer formula (int64 sums, float64 scales).
compressed-tensors checkpoints are written and run by the compressed-tensors package, but for those with experts, whose
stacks it does not know: they are written by the rules of the format and run by the formulas.
"""

import json
import shutil
import sys
from types import SimpleNamespace

from common import DATA

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import (AutoModelForCausalLM, DeepseekV2Config, LlamaConfig, MixtralConfig, Qwen2Config, Qwen2MoeConfig,
                          Qwen3Config, Qwen3MoeConfig)

from make_tiny_models import check_lopsided, clear_tokens, randomise, relative, run

OUT = DATA / "models_quantised"
LENGTHS = (1, 7, 61)
ROPE = {"rope_type": "default", "rope_theta": 10000.0}
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def spec(name, cls, types, store="bf16", weights="model.safetensors", equal=True, biases=None, lopsided=None, ignore=None, **kw):
    for key, value in dict(num_hidden_layers=2, max_position_embeddings=128, bos_token_id=1, eos_token_id=2).items():
        kw.setdefault(key, value)
    return dict(name=name, cls=cls, types=types, store=store, weights=weights, equal=equal, biases=biases, lopsided=lopsided, ignore=ignore, kw=kw)


def all_static(name):
    return "FLOAT" if name == "lm_head" else "W8A8"


def all_dynamic(name):
    return "W8A8_DYNAMIC"


def mixed(name):
    if name == "lm_head" or ".layers.0.mlp" in name:
        return "FLOAT"
    return "W8A8_DYNAMIC" if "self_attn" in name else "W8A8"


def all_dynamic_but_gates(name):
    return "FLOAT" if name.endswith("shared_expert_gate") else "W8A8_DYNAMIC"


def experts_dynamic(name):
    """As published checkpoints have it: experts by token, the rest static; what latent attention folds in both ways."""
    if name.endswith("kv_b_proj"):
        return "W8A8" if ".layers.0." in name else "W8A8_DYNAMIC"
    return "W8A8_DYNAMIC" if "expert" in name or name == "lm_head" else "W8A8"


def layer_by_layer(name):
    if name == "lm_head":
        return "FLOAT"
    return "W8A8" if ".layers.0." in name else "W8A8_DYNAMIC"


def norm_biases(name):
    """Of every norm, but for zeros in one layer and nothing at its query and key norms."""
    if ".layers.2." in name:
        return "none" if "self_attn" in name else "zeros"
    return "random"


MODELSLIM = [
    # Odd widths; input scales of gate and up (and of q, k, v) differ in the second model.
    spec("modelslim_static", LlamaConfig, all_static, vocab_size=263, hidden_size=72, intermediate_size=101, head_dim=24,
         num_attention_heads=3, num_key_value_heads=1),
    spec("modelslim_static_bias", LlamaConfig, all_static, equal=False, vocab_size=257, hidden_size=54, intermediate_size=70,
         num_attention_heads=3, num_key_value_heads=1, attention_bias=True, mlp_bias=True),
    spec("modelslim_dynamic", Qwen2Config, all_dynamic, store="f32", vocab_size=281, hidden_size=56, intermediate_size=85,
         num_attention_heads=4, num_key_value_heads=2),
    spec("modelslim_mixed_f16", Qwen3Config, mixed, store="f16", weights="quant_model_weight_w8a8.safetensors", vocab_size=307,
         hidden_size=60, intermediate_size=95, num_attention_heads=6, num_key_value_heads=2, head_dim=16),
    spec("modelslim_norm_bias", Qwen3Config, layer_by_layer, biases=norm_biases, num_hidden_layers=3, vocab_size=251, hidden_size=52,
         intermediate_size=77, num_attention_heads=4, num_key_value_heads=2, head_dim=18),
]
# Odd numbers of experts and odd sizes. lopsided: (one that every token goes to, one that none does).
EXPERTS = [
    spec("modelslim_moe_dynamic", Qwen2MoeConfig, all_dynamic_but_gates, lopsided=(1, 4), vocab_size=277, hidden_size=48,
         intermediate_size=66, moe_intermediate_size=21, shared_expert_intermediate_size=45, num_attention_heads=4,
         num_key_value_heads=4, num_experts=5, num_experts_per_tok=2, norm_topk_prob=False),
    spec("modelslim_moe_static", Qwen3MoeConfig, all_static, equal=False, vocab_size=263, hidden_size=48, intermediate_size=61,
         moe_intermediate_size=23, num_attention_heads=4, num_key_value_heads=1, head_dim=16, num_experts=7,
         num_experts_per_tok=3, norm_topk_prob=True),
    spec("modelslim_mla_mixed", DeepseekV2Config, experts_dynamic, vocab_size=283, hidden_size=54, intermediate_size=70,
         num_attention_heads=3, num_key_value_heads=3, q_lora_rank=None, kv_lora_rank=20, qk_nope_head_dim=12,
         qk_rope_head_dim=8, v_head_dim=10, first_k_dense_replace=1, n_routed_experts=5, num_experts_per_tok=2,
         n_shared_experts=1, moe_intermediate_size=18, topk_method="greedy", n_group=1, topk_group=1),
    spec("compressed_moe_dynamic", MixtralConfig, all_dynamic, ignore=["re:.*block_sparse_moe.gate$"], vocab_size=257,
         hidden_size=48, intermediate_size=37, num_attention_heads=4, num_key_value_heads=2, num_local_experts=5,
         num_experts_per_tok=2, rms_norm_eps=1e-5),
    spec("compressed_moe_static", Qwen3MoeConfig, all_static, store="f32", ignore=["lm_head", "re:.*mlp\\.gate$"], vocab_size=269,
         hidden_size=44, intermediate_size=53, moe_intermediate_size=19, num_attention_heads=4, num_key_value_heads=2,
         head_dim=12, num_experts=6, num_experts_per_tok=4, norm_topk_prob=False),
]
COMPRESSED = [
    spec("compressed_dynamic", LlamaConfig, dict(dynamic=True, symmetric=True, strategy="channel", ignore=["lm_head"]),
         vocab_size=263, hidden_size=72, intermediate_size=101, head_dim=24, num_attention_heads=3, num_key_value_heads=1),
    spec("compressed_static", Qwen2Config, dict(dynamic=False, symmetric=True, strategy="tensor", ignore=["lm_head", "re:.*layers\\.1\\.mlp.*"]),
         store="f32", vocab_size=281, hidden_size=56, intermediate_size=85, num_attention_heads=4, num_key_value_heads=2),
    spec("compressed_static_zero_point", Qwen3Config, dict(dynamic=False, symmetric=False, strategy="channel", ignore=["lm_head"]),
         store="f32", vocab_size=307, hidden_size=60, intermediate_size=95, num_attention_heads=6, num_key_value_heads=2, head_dim=16),
]


class Integer(torch.nn.Module):
    """One W8A8 linear by its formula, from the tensors that are stored."""

    def __init__(self, kind, tensors):
        super().__init__()
        self.kind, self.t = kind, tensors

    def forward(self, x):
        t = self.t
        x = x.double()
        if self.kind == "W8A8":
            q = torch.clamp(torch.round(x / t["input_scale"].double() + t["input_offset"].double()), -128, 127)
        else:
            s = x.abs().amax(-1, keepdim=True) / 127
            q = torch.where(s > 0, torch.round(x / torch.where(s > 0, s, torch.ones_like(s))), torch.zeros_like(x)).clamp(-128, 127)
        acc = q.long() @ t["weight"].long().T
        if self.kind == "W8A8":
            scale = t["deq_scale"]
            if scale.dtype == torch.int64:
                scale = scale.to(torch.int32).view(torch.float32)
            return ((acc + t["quant_bias"].long()).double() * scale.double()).float()
        y = acc.double() * s * t["weight_scale"].double().reshape(-1)
        return (y + t["bias"].double() if "bias" in t else y).float()


class IntegerExperts(torch.nn.Module):
    """The experts of a layer, each matrix by its formula: matrices[e][name] is an Integer."""

    def __init__(self, matrices):
        super().__init__()
        self.matrices = matrices

    def forward(self, x, chosen, weights):
        out = torch.zeros_like(x)
        for e, m in enumerate(self.matrices):
            token, place = torch.where(chosen == e)
            if len(token) > 0:
                rows = x[token]
                y = m["down_proj"](torch.nn.functional.silu(m["gate_proj"](rows)) * m["up_proj"](rows))
                out.index_add_(0, token, y * weights[token, place, None])
        return out


class BiasedNorm(torch.nn.Module):
    """An RMS norm and the bias that smoothing leaves behind it."""

    def __init__(self, norm, bias):
        super().__init__()
        self.weight, self.bias, self.eps = norm.weight, torch.nn.Parameter(bias), norm.variance_epsilon

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight + self.bias


def add_norm_biases(net, how, store, seed):
    rng = np.random.Generator(np.random.PCG64(seed))
    norms = [n for n, m in net.named_modules() if n.endswith("norm") and hasattr(m, "variance_epsilon")]
    for name in norms:
        kind = how(name)
        if kind == "none":
            continue
        norm = net.get_submodule(name)
        bias = 0.5 * rng.standard_normal(norm.weight.shape[0]) if kind == "random" else np.zeros(norm.weight.shape[0])
        parent, leaf = name.rsplit(".", 1)
        setattr(net.get_submodule(parent), leaf, BiasedNorm(norm, torch.tensor(bias, dtype=torch.float32).to(store).float()))


def linears(net):
    return {n: m for n, m in net.named_modules() if isinstance(m, torch.nn.Linear)}


def expert_layers(net):
    return {n: m for n, m in net.named_modules() if type(m).__name__.endswith("Experts")}


def matrices_of(experts):
    """For every expert its matrices by name."""
    for e in range(experts.num_experts):
        gate, up = experts.gate_up_proj[e].detach().chunk(2)
        yield {"gate_proj": gate, "up_proj": up, "down_proj": experts.down_proj[e].detach()}


def observe_experts(net, tokens):
    """Smallest and largest input of every matrix, whatever the router says; those of one layer have one range."""
    inputs, hooks = {}, []
    for name, module in expert_layers(net).items():
        hooks.append(module.register_forward_pre_hook(lambda m, a, n=name: inputs.__setitem__(n, a[0].detach())))
    run(net, tokens)
    for h in hooks:
        h.remove()
    seen = {}
    for name, module in expert_layers(net).items():
        x, inner = inputs[name], []
        for m in matrices_of(module):
            inner.append(torch.nn.functional.silu(x @ m["gate_proj"].T) * (x @ m["up_proj"].T))
        inner = torch.stack(inner)
        for leaf, v in {"gate_proj": x, "up_proj": x, "down_proj": inner}.items():
            seen[name, leaf] = (v.min().item(), v.max().item())
    return seen


def observe(net, tokens):
    """Smallest and largest input of every linear."""
    seen, hooks = {}, []
    for name, module in linears(net).items():
        hooks.append(module.register_forward_pre_hook(lambda m, a, n=name: seen.__setitem__(n, (a[0].min().item(), a[0].max().item()))))
    run(net, tokens)
    for h in hooks:
        h.remove()
    return seen


def quantise(module, kind, store, lo, hi):
    """The tensors that ModelSlim keeps of one linear."""
    w = module.weight.detach().float()
    scale = (w.abs().amax(1, keepdim=True) / 127).to(store)
    q = torch.clamp(torch.round(w / scale.float()), -128, 127).to(torch.int8)
    t = {"weight": q, "weight_scale": scale, "weight_offset": torch.zeros_like(scale)}
    bias = module.bias.detach() if module.bias is not None else None
    if kind == "W8A8_DYNAMIC":
        if bias is not None:
            t["bias"] = bias.to(store)
        return t
    lo, hi = min(lo, 0.0), max(hi, 0.0)
    s = torch.tensor([(hi - lo) / 255]).to(store)
    o = torch.round(-128 - torch.tensor([lo]) / s.float()).to(store)
    deq = s.float() * scale.float().reshape(-1)
    folded = -o.double() * q.long().sum(1)
    if bias is not None:
        folded = folded + torch.round(bias.double() / deq.double())
    t.update(input_scale=s, input_offset=o, quant_bias=folded.to(torch.int32), deq_scale=deq)
    if store == torch.float16:
        t["deq_scale"] = deq.view(torch.int32).long()
    return t


def goldens(net, vocab, seed, plain, folder, how, lopsided=None):
    rng = np.random.Generator(np.random.PCG64(seed))
    golden, worst = {}, 0.0
    for n in LENGTHS:
        tokens = clear_tokens(net, rng, n) if expert_layers(net) else rng.integers(0, vocab, n, dtype=np.int32)
        if lopsided:
            check_lopsided(net, tokens, lopsided)
        logits = run(net, tokens)
        golden[f"tokens.{n}"] = torch.from_numpy(tokens)
        golden[f"logits.{n}"] = torch.from_numpy(np.ascontiguousarray(logits, dtype=np.float32))
        difference = logits - run(plain, tokens)
        worst = max(worst, float(np.sqrt((difference**2).mean()) / np.abs(logits).max()))
    assert worst > 1e-3, f"{folder.name}: quantisation must show, or the test would not"
    save_file(golden, folder / "golden.safetensors", metadata={"made_with": how})
    size = sum(f.stat().st_size for f in folder.glob("*"))
    print(f"{folder.name:32s} {size / 1024:6.0f} KiB  rms to the float model {worst:.4f}", flush=True)


def fresh(s, index):
    folder = OUT / s["name"]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    config = s["cls"](**s["kw"], rope_parameters=dict(ROPE))
    net = AutoModelForCausalLM.from_config(config, attn_implementation="eager", experts_implementation="eager").eval()
    randomise(net, 9000 + index, 0.7, s["lopsided"])
    # What is stored in a short type has those values in the answer, too (parameters only: not the rotary frequencies).
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(p.to(DTYPES[s["store"]]).float())
    return folder, config, net


def write_config(folder, config, s, extra=None):
    c = json.loads(config.to_json_string(use_diff=False))
    keep = ("architectures", "model_type", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
            "num_key_value_heads", "head_dim", "vocab_size", "max_position_embeddings", "rms_norm_eps", "tie_word_embeddings",
            "hidden_act", "attention_bias", "mlp_bias", "bos_token_id", "eos_token_id", "rope_parameters")
    c = {k: c[k] for k in keep if c.get(k) is not None}
    c["dtype"] = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}[s["store"]]
    (folder / "config.json").write_text(json.dumps({**c, **(extra or {})}, indent=2, sort_keys=True) + "\n")


def modelslim(s, index):
    folder, config, net = fresh(s, index)
    store = DTYPES[s["store"]]
    config.architectures = [type(net).__name__]
    plain = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    plain.load_state_dict(net.state_dict())
    tokens = np.random.Generator(np.random.PCG64(77)).integers(0, config.vocab_size, 64, dtype=np.int32)
    if s["biases"]:
        without = run(net, tokens)
        for n in (net, plain):
            add_norm_biases(n, s["biases"], store, 8000 + index)
        assert relative(run(net, tokens), without) > 0.1, "the biases must show"
        assert relative(run(net, tokens), run(plain, tokens)) == 0
    seen = observe(net, tokens)
    tensors, types = {}, {"model_quant_type": "W8A8", "version": "1.0.0"}
    replaced = linears(net)
    for name, p in net.named_parameters():
        module = name.rsplit(".", 1)[0]
        if module not in replaced:
            tensors[name], types[name] = p.detach().to(store), "FLOAT"
    for i, (name, module) in enumerate(replaced.items()):
        kind = s["types"](name)
        if kind == "FLOAT":
            part = {leaf: p.detach().to(store) for leaf, p in module.named_parameters()}
        else:
            lo, hi = seen[name]
            # What one x is quantised with is the same for all that read it, unless the model says otherwise.
            stretch = 1 if s["equal"] else 1 + 0.05 * (i % 3)
            part = quantise(module, kind, store, lo * stretch, hi * stretch)
        tensors.update({f"{name}.{leaf}": v.contiguous() for leaf, v in part.items()})
        types.update({f"{name}.{leaf}": kind for leaf in part})
        if kind != "FLOAT":
            parent, leaf = name.rsplit(".", 1) if "." in name else ("", name)
            setattr(net.get_submodule(parent), leaf, Integer(kind, part))
    save_file(tensors, folder / s["weights"], metadata={"format": "pt"})
    (folder / "quant_model_description.json").write_text(json.dumps(types, indent=1) + "\n")
    write_config(folder, config, s)
    goldens(net, config.vocab_size, 6000 + index, plain, folder, "the formulas in int64 and float64")


def with_experts(s, index):
    """A checkpoint with experts, in ModelSlim's names or, where there is a list to ignore, in compressed-tensors'."""
    folder, config, net = fresh(s, index)
    store, slim = DTYPES[s["store"]], s["ignore"] is None
    config.architectures = [type(net).__name__]
    plain = AutoModelForCausalLM.from_config(config, attn_implementation="eager", experts_implementation="eager").eval()
    plain.load_state_dict(net.state_dict())
    tokens = np.random.Generator(np.random.PCG64(77)).integers(0, config.vocab_size, 64, dtype=np.int32)
    seen, seen_experts = observe(net, tokens), observe_experts(net, tokens)
    tensors, description = {}, {"model_quant_type": "W8A8", "version": "1.0.0"}

    def in_file(name):
        if config.model_type != "mixtral":
            return name
        name = name.replace(".mlp.", ".block_sparse_moe.")
        for leaf, short in (("gate_proj", "w1"), ("down_proj", "w2"), ("up_proj", "w3")):
            name = name.replace(leaf, short)
        return name

    def keep(name, kind, part):
        """Writes one linear; the Integer that computes it."""
        if slim or kind == "FLOAT":
            written = part
        else:
            written = {leaf: part[leaf] for leaf in ("weight", "weight_scale", "input_scale", "bias") if leaf in part}
            if kind == "W8A8":
                written["input_zero_point"] = part["input_offset"].to(torch.int8)
        tensors.update({f"{in_file(name)}.{leaf}": v.contiguous() for leaf, v in written.items()})
        description.update({f"{in_file(name)}.{leaf}": kind for leaf in written})
        return Integer(kind, part)

    layers, replaced = expert_layers(net), linears(net)
    for name, p in net.named_parameters():
        module = name.rsplit(".", 1)[0]
        if module not in replaced and module not in layers:
            tensors[in_file(name)], description[in_file(name)] = p.detach().to(store).contiguous(), "FLOAT"
    for name, module in replaced.items():
        kind = s["types"](name)
        if kind == "FLOAT":
            keep(name, kind, {leaf: p.detach().to(store) for leaf, p in module.named_parameters()})
            continue
        part = quantise(module, kind, store, *seen[name])
        integer = keep(name, kind, part)
        parent, leaf = name.rsplit(".", 1) if "." in name else ("", name)
        if leaf == "kv_b_proj":  # folded into other products, as floats
            with torch.no_grad():
                module.weight.copy_(part["weight"].float() * part["weight_scale"].float())
        else:
            setattr(net.get_submodule(parent), leaf, integer)
    for name, experts in layers.items():
        made = []
        for e, matrices in enumerate(matrices_of(experts)):
            made.append({})
            for leaf, weight in matrices.items():
                stretch = 1 if s["equal"] else 1 + 0.05 * (e % 3)
                lo, hi = (stretch * v for v in seen_experts[name, leaf])
                one = f"{name}.{e}.{leaf}"
                part = quantise(SimpleNamespace(weight=weight, bias=None), s["types"](one), store, lo, hi)
                made[e][leaf] = keep(one, s["types"](one), part)
        parent, leaf = name.rsplit(".", 1)
        setattr(net.get_submodule(parent), leaf, IntegerExperts(made))

    c = json.loads(config.to_json_string())
    if c["model_type"].startswith("qwen") and "num_local_experts" in c:
        c["num_experts"] = c.pop("num_local_experts")
    c["dtype"] = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}[s["store"]]
    if slim:
        (folder / "quant_model_description.json").write_text(json.dumps(description, indent=1) + "\n")
    else:
        dynamic = s["types"]("model.layers.0.mlp.experts.0.up_proj") == "W8A8_DYNAMIC"
        activations = dict(num_bits=8, type="int", symmetric=dynamic, dynamic=dynamic, strategy="token" if dynamic else "tensor")
        weights = dict(num_bits=8, type="int", symmetric=True, dynamic=False, strategy="channel")
        group = dict(targets=["Linear"], weights=weights, input_activations=activations, output_activations=None)
        c["quantization_config"] = dict(quant_method="compressed-tensors", format="int-quantized", quantization_status="compressed",
                                        ignore=s["ignore"], kv_cache_scheme=None, config_groups={"group_0": group})
    (folder / "config.json").write_text(json.dumps(c, indent=2, sort_keys=True) + "\n")
    save_file(tensors, folder / s["weights"], metadata={"format": "pt"})
    goldens(net, config.vocab_size, 6800 + index, plain, folder, "the formulas in int64 and float64", s["lopsided"])


def compressed(s, index):
    import compressed_tensors
    from compressed_tensors.compressors import ModelCompressor
    from compressed_tensors.quantization import QuantizationConfig, apply_quantization_config

    folder, config, net = fresh(s, index)
    t = s["types"]
    config.architectures = [type(net).__name__]
    plain = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    plain.load_state_dict(net.state_dict())
    tokens = np.random.Generator(np.random.PCG64(77)).integers(0, config.vocab_size, 64, dtype=np.int32)
    seen = observe(net, tokens)
    activations = dict(num_bits=8, type="int", symmetric=t["symmetric"], dynamic=t["dynamic"], strategy="token" if t["dynamic"] else "tensor")
    group = dict(targets=["Linear"], weights=dict(num_bits=8, type="int", symmetric=True, strategy=t["strategy"], dynamic=False),
                 input_activations=activations)
    apply_quantization_config(net, QuantizationConfig(config_groups={"group_0": group}, ignore=t["ignore"], format="int-quantized",
                                                      quantization_status="frozen"))
    for name, m in net.named_modules():
        if not hasattr(m, "weight_scale"):
            continue
        w = m.weight.detach()
        amax = w.abs().amax(1, keepdim=True) if t["strategy"] == "channel" else w.abs().amax().reshape(1)
        m.weight_scale.data.copy_((amax / 127.5).reshape(m.weight_scale.shape))
        if hasattr(m, "input_scale"):
            lo, hi = min(seen[name][0], 0.0), max(seen[name][1], 0.0)
            scale = (hi - lo) / 255 if not t["symmetric"] else max(-lo, hi) / 127.5
            m.input_scale.data.fill_(scale)
            if not t["symmetric"]:
                m.input_zero_point.data.fill_(round(-128 - lo / scale))
    compressor = ModelCompressor.from_pretrained_model(net, quantization_format="int-quantized")
    compressor.compress_model(net)
    stored = {k: v for k, v in net.state_dict().items()}
    half = DTYPES[s["store"]]
    save_file({k: (v if v.dtype in (torch.int8, torch.int32) or "scale" in k else v.to(half)).contiguous() for k, v in stored.items()},
              folder / "model.safetensors", metadata={"format": "pt"})
    write_config(folder, config, s)
    compressor.update_config(str(folder))
    # From here on only what is in the folder counts.
    net = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    how = f"compressed-tensors {compressed_tensors.__version__}"
    if t["dynamic"]:
        # The package divides the largest number of a token by 127.5, kernels (and we) by 127: near, but not the same.
        theirs = run(net, tokens)
        net = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
        net.load_state_dict(plain.state_dict())
        stored = load_file(folder / "model.safetensors")
        for name in linears(net):
            part = {k[len(name) + 1 :]: v for k, v in stored.items() if k.startswith(name + ".")}
            if "weight_scale" in part:
                parent, leaf = name.rsplit(".", 1)
                setattr(net.get_submodule(parent), leaf, Integer("W8A8_DYNAMIC", part))
        drift = relative(run(net, tokens), theirs)
        assert drift < 5e-2, drift
        how = f"the formulas in int64 and float64; checkpoint by {how}"
    goldens(net, config.vocab_size, 6500 + index, plain, folder, how)


def main():
    only = set(sys.argv[1:])
    for i, s in enumerate(MODELSLIM):
        if not only or s["name"] in only:
            modelslim(s, i)
    for i, s in enumerate(EXPERTS):
        if not only or s["name"] in only:
            with_experts(s, 200 + i)
    for i, s in enumerate(COMPRESSED):
        if not only or s["name"] in only:
            compressed(s, 100 + i)


if __name__ == "__main__":
    main()
