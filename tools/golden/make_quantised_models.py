#!/usr/bin/env python3
"""Tiny W8A8 checkpoints, ModelSlim and compressed-tensors, with the logits that their formulas give.

Writes tests/data/models_quantised/<name>/{config.json, *.safetensors, golden.safetensors} and, for ModelSlim,
quant_model_description.json. See tests/data/models_quantised/README.md.

ModelSlim has no public reference that runs on a CPU: its checkpoints are written by its documented rules, and their
logits come from HF transformers with every nn.Linear replaced by the integer formula (int64 sums, float64 scales).
compressed-tensors checkpoints are written and run by the compressed-tensors package.
"""

import json
import shutil
import sys

from common import DATA

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

from make_tiny_models import randomise, relative, run

OUT = DATA / "models_quantised"
LENGTHS = (1, 7, 61)
ROPE = {"rope_type": "default", "rope_theta": 10000.0}
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def spec(name, cls, types, store="bf16", weights="model.safetensors", equal=True, biases=None, **kw):
    for key, value in dict(num_hidden_layers=2, max_position_embeddings=128, bos_token_id=1, eos_token_id=2).items():
        kw.setdefault(key, value)
    return dict(name=name, cls=cls, types=types, store=store, weights=weights, equal=equal, biases=biases, kw=kw)


def all_static(name):
    return "FLOAT" if name == "lm_head" else "W8A8"


def all_dynamic(name):
    return "W8A8_DYNAMIC"


def mixed(name):
    if name == "lm_head" or ".layers.0.mlp" in name:
        return "FLOAT"
    return "W8A8_DYNAMIC" if "self_attn" in name else "W8A8"


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


def goldens(net, vocab, seed, plain, folder, how):
    rng = np.random.Generator(np.random.PCG64(seed))
    golden, worst = {}, 0.0
    for n in LENGTHS:
        tokens = rng.integers(0, vocab, n, dtype=np.int32)
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
    net = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    randomise(net, 9000 + index, 0.7)
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
    for i, s in enumerate(COMPRESSED):
        if not only or s["name"] in only:
            compressed(s, 100 + i)


if __name__ == "__main__":
    main()
