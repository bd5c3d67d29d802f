#!/usr/bin/env python3
"""What Python and HF transformers make of configurations, in tests/data/config:

patterns.json       expressions as in quantisation configurations, and which names Python's re.match takes
rope.json           rope fields of every family: inverse frequencies and factors of transformers' modules, or "error"
windows.json        window fields of every family: the window of each layer (0: none), or "error"
architectures.json  small configurations of architectures that are not supported
"""
import json
import math
import re
import tempfile
import warnings

import torch
import transformers
from common import DATA
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

warnings.simplefilter("ignore")
transformers.logging.set_verbosity(transformers.logging.CRITICAL)
OUT = DATA / "config"

NAMES = ["lm_head", "model.layers.0.self_attn.q_proj", "model.layers.10.mlp.gate", "model.layers.1.mlp.gate_proj",
         "model.layers.12.mlp.experts.3.up_proj", "model.layers.2.block_sparse_moe.gate", "vision_tower.0", "a{}b", "a{,2}",
         "aaab", "a-b", "A_B", "", "]x"]
PATTERNS = [
    ".*lm_head", "lm_head$", "^lm_head\\Z", ".*self_attn.(q|k|v)_proj$", ".*mlp.gate$", "re", "model\\.layers\\.[0-9]+\\.mlp\\..*",
    "model.layers.1?[02]\\.", "(?i)MODEL", "(?i:LM)_head", "(?i-i:lm)", "(?s).*", "(?a)\\w+", "(?u)\\w+$", "(?im)^lm", "(?i)(?s)LM",
    "(?P<x>lm)_(?P<y>head)", "(?:lm|vision)_", "(?#comment)lm", "lm(?#c)+", "a{2,3}b", "a{,3}b", "a{,}b", "a{}b", "a{b", "a{,2}",
    "a{02}a", "a{3}b", "a{4}", "a\\{\\}", "[]x]+", "[^]x]+$", "[a\\-b]+$", "[a-]+", "[-a]+", "[\\w.]+$", "[[]*lm", "[a[:alpha:]]", "\\Alm",
    "\\blm\\b", ".*\\Bhead", "\\x6cm", "\\u006cm", "\\U0000006cm", "\\_", "lm\\_head", "\\.", "[^\\d]+$", "[\\s\\S]+", "\\D+\\d", "", "|x", "(|l)m?",
    "()*lm", "(lm)*_?", "(a|aa)+b", "(a+)+b$", "(a*)*b", "\u00e9|lm", "[\u00e0-\u00ff]|lm", "l.{2}e", "a{0}lm", "lm.*?d", "lm??_?", "[\\x41-\\x5a]_",
    "a--b", "[+--]*a", "\\t|lm", "[\\b]|lm", "x{1,2}{3}", "a**", "a*+", "a++b", "*a", "a|*", "(", ")", "(a", "[a", "[z-a]", "[\\w-z]", "a{3,2}",
    "\\", "\\q", "\\1", "(l)\\1", "\\p{L}", "\\Qa\\E", "(?P=x)", "(?<x>a)", "(?P<1>a)", "(?P<x>a)(?P<x>b)", "(?z)a", "a(?i)b", "(?-i)a", "(?i", "(?P<x",
    "(?#a", "^*", "\\b+", "$?", "\\x4", "\\N{DIGIT ONE}", "(?i-)a", "(?", "(?>a)", "(?=lm)lm", "(?!lm).*", "(?<=a)b", "(?<!a)b", "(?x) l m", "(l)?(?(1)m|x)",
    "a{99999}",
]


def patterns():
    cases = []
    for p in PATTERNS:
        try:
            compiled = re.compile(p)
        except (re.error, OverflowError, RecursionError):
            cases.append({"pattern": p, "error": True})
            continue
        cases.append({"pattern": p, "matches": [n for n in NAMES if compiled.match(n)]})
    return {"names": NAMES, "cases": cases}


FAMILIES = {"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "mixtral": "MixtralForCausalLM", "qwen2": "Qwen2ForCausalLM",
            "qwen3": "Qwen3ForCausalLM", "qwen2_moe": "Qwen2MoeForCausalLM", "qwen3_moe": "Qwen3MoeForCausalLM",
            "deepseek_v2": "DeepseekV2ForCausalLM", "deepseek_v3": "DeepseekV3ForCausalLM"}


def config_of(kind, extra):
    c = {"model_type": kind, "architectures": [FAMILIES[kind]], "hidden_size": 48, "intermediate_size": 40, "num_hidden_layers": 3,
         "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 16, "vocab_size": 64, "max_position_embeddings": 64}
    if kind.startswith("deepseek"):
        c.update(q_lora_rank=None, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=16, v_head_dim=8, first_k_dense_replace=1,
                 n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=8, num_key_value_heads=3, n_group=2, topk_group=1)
    if "moe" in kind:
        c.update(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=8, shared_expert_intermediate_size=8)
    if kind == "qwen3_moe":
        del c["shared_expert_intermediate_size"]
    if kind == "mixtral":
        c.update(num_local_experts=4, num_experts_per_tok=2)
    return {**c, **extra}


def build(config):
    with tempfile.TemporaryDirectory() as folder:
        with open(folder + "/config.json", "w") as f:
            json.dump(config, f)
        loaded = AutoConfig.from_pretrained(folder)
    torch.manual_seed(0)
    net = AutoModelForCausalLM.from_config(loaded, attn_implementation="eager").eval()
    for p in net.parameters():
        if p.dim() > 1:
            torch.nn.init.normal_(p, std=0.3)
    return net


def run(net, length=20):
    """Logits of a whole prompt; an error when a cache makes them others (then the fields mean nothing definite)."""
    tokens = torch.arange(length)[None]
    with torch.no_grad():
        whole = net(tokens, use_cache=False).logits[0]
        past, one_by_one = None, []
        for i in range(length):
            step = net(tokens[:, i:i + 1], past_key_values=past, use_cache=True)
            past = step.past_key_values
            one_by_one.append(step.logits[0, 0])
    if (torch.stack(one_by_one) - whole).abs().max() > 1e-2:
        raise ValueError("a cache changes the logits")
    return whole


LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
ROPE = [
    {}, {"rope_theta": 500.0}, {"rope_scaling": None, "rope_parameters": {"rope_type": "default", "rope_theta": 700.0}},
    # Both objects: the older one counts, with its own base or the default.
    {"rope_scaling": {"type": "linear", "factor": 2.0}, "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
    {"rope_theta": 700.0, "rope_scaling": {"type": "linear", "factor": 3.0}, "rope_parameters": {"rope_type": "yarn", "factor": 4.0}},
    {"rope_scaling": {"type": "default", "rope_theta": 300.0}, "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0}},
    {"rope_scaling": {}, "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0}},
    {"rope_theta": 900.0, "rope_parameters": {"rope_type": "default"}},
    {"rope_scaling": {"type": "linear", "rope_type": "default", "factor": 2.0}}, {"rope_scaling": {"factor": 2.0}},
    # Partial rotation.
    {"partial_rotary_factor": 0.5}, {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.25}},
    {"partial_rotary_factor": 0.5, "rope_scaling": {"type": "linear", "factor": 2.0}},
    {"partial_rotary_factor": 0.75, "rope_scaling": YARN}, {"partial_rotary_factor": 1.0, "rope_scaling": YARN},
    # Two original lengths, or none.
    {"rope_scaling": YARN, "original_max_position_embeddings": 32}, {"rope_scaling": {"type": "yarn", "factor": 4.0}},
    {"rope_scaling": {"type": "yarn", "factor": 4.0}, "original_max_position_embeddings": 32},
    {"rope_scaling": {**LLAMA3, "original_max_position_embeddings": 16}, "original_max_position_embeddings": 32},
    {"rope_scaling": {**LLAMA3, "original_max_position_embeddings": 16}}, {"rope_scaling": LLAMA3},
    {"rope_scaling": {"type": "linear", "factor": 2.0, "original_max_position_embeddings": 16}},
    # YaRN's factor absent, null; its other fields.
    {"rope_scaling": {"type": "yarn", "original_max_position_embeddings": 16}},
    {"rope_scaling": {**YARN, "factor": None}}, {"rope_scaling": {**YARN, "factor": None, "mscale": 1.0, "mscale_all_dim": 0.7}},
    {"rope_scaling": {**YARN, "truncate": None}}, {"rope_scaling": {**YARN, "truncate": False}},
    {"rope_scaling": {**YARN, "attention_factor": 1.5, "beta_fast": 8, "beta_slow": 2}},
    {"rope_scaling": {**YARN, "beta_fast": 1, "beta_slow": 1}}, {"rope_scaling": {**YARN, "mscale": 0.7}},
    {"rope_scaling": {**YARN, "mscale_all_dim": 0.7}}, {"rope_scaling": {**YARN, "mscale": 1.0, "mscale_all_dim": 0.7}},
    {"rope_scaling": {**YARN, "mscale": 0.0, "mscale_all_dim": 0.7}},
    # mscale_all_dim with the other kinds: DeepSeek scales its scores all the same.
    {"rope_scaling": {"type": "linear", "factor": 4.0, "mscale_all_dim": 0.7}},
    {"rope_scaling": {"type": "dynamic", "factor": 4.0, "mscale_all_dim": 0.9}},
    {"rope_scaling": {**LLAMA3, "mscale_all_dim": 0.7}}, {"rope_scaling": {"rope_type": "default", "factor": 4.0, "mscale_all_dim": 0.7}},
    {"rope_scaling": {"type": "linear"}}, {"rope_scaling": {"type": "linear", "factor": None}}, {"rope_scaling": {"type": "longrope", "factor": 2.0}},
]
# The base that dynamic scaling has behind its window, which is max_position_embeddings whatever the original is.
DYNAMIC = [{"rope_scaling": {"type": "dynamic", "factor": 2.0}},
           {"rope_scaling": {"type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 16}},
           {"rope_scaling": {"type": "dynamic", "factor": 3.0}, "original_max_position_embeddings": 16}]
LATE = 100  # a position behind the window


def rope():
    cases = []
    for kind in FAMILIES:
        cases_of = ROPE if kind in ("llama", "mixtral", "deepseek_v2", "deepseek_v3") else ROPE[:12]  # one code in all
        for extra in cases_of + (DYNAMIC if kind in ("llama", "deepseek_v3") else []):
            case = {"config": config_of(kind, extra)}
            try:
                net = build(case["config"])
                module = next(m for name, m in net.named_modules() if name.endswith("rotary_emb"))
                tokens = torch.zeros((1, LATE + 1), dtype=torch.int64) if extra in DYNAMIC else torch.arange(20)[None]
                with torch.no_grad():
                    net(tokens)
                case["inv_freq"] = [float(f"{x:.7g}") for x in module.inv_freq.tolist()]
                case["scale"] = float(module.attention_scaling)
                if extra in DYNAMIC:
                    case["late"] = LATE
                if kind.startswith("deepseek"):
                    case["score_scale"] = next(m for name, m in net.named_modules() if name.endswith("self_attn")).scaling
            except Exception:
                case["error"] = True
            cases.append(case)
    return cases


MIXED, SLIDING, FULL = ["full_attention", "sliding_attention", "full_attention"], ["sliding_attention"] * 3, ["full_attention"] * 3
WINDOWS = [{}, {"sliding_window": 4}, {"sliding_window": None}, {"sliding_window": 0}, {"sliding_window": 4, "layer_types": MIXED},
           {"sliding_window": 4, "layer_types": FULL}, {"sliding_window": 4, "layer_types": SLIDING}, {"layer_types": SLIDING},
           {"sliding_window": None, "layer_types": SLIDING}, {"sliding_window": None, "layer_types": FULL},
           {"sliding_window": 4, "layer_types": ["attention"] * 3}, {"sliding_window": 5, "use_sliding_window": True},
           {"sliding_window": 5, "use_sliding_window": True, "max_window_layers": 1},
           {"sliding_window": 5, "use_sliding_window": True, "max_window_layers": 0},
           {"sliding_window": 5, "use_sliding_window": True, "layer_types": MIXED},
           {"sliding_window": 5, "use_sliding_window": False, "layer_types": MIXED},
           {"sliding_window": None, "use_sliding_window": True}, {"sliding_window": None, "use_sliding_window": True, "layer_types": MIXED},
           {"sliding_window": 0, "use_sliding_window": True, "max_window_layers": 0}, {"layer_types": None, "sliding_window": 4},
           {"layer_types": ["full_attention"]}, {"layer_types": ["linear_attention"] * 3}]


def window_of(net, layer):
    attention = net.model.layers[layer].self_attn
    if net.config.model_type in ("mistral", "mixtral"):
        return net.config.sliding_window or 0
    return getattr(attention, "sliding_window", None) or 0


def windows():
    cases = []
    for kind in FAMILIES:
        for extra in WINDOWS:
            case = {"config": config_of(kind, extra)}
            try:
                net = build(case["config"])
                run(net)
                case["windows"] = [window_of(net, layer) for layer in range(3)]
            except Exception:
                case["error"] = True
            cases.append(case)
    return cases


UNLISTED = """afmoe apertus bamba bitnet bloom codegen dbrx diffllama doge dots1 falcon falcon_h1 flex_olmo gpt2 gpt_bigcode
 gpt_neo gpt_neox helium jamba jetmoe lfm2 mamba minimax ministral mpt nemotron olmo opt persimmon phi
 phimoe recurrent_gemma rwkv stablelm vaultgemma xglm zamba2""".split()


def scalar(value):
    if isinstance(value, list):
        return len(value) <= 4 and all(scalar(v) and not isinstance(v, list) for v in value)
    return isinstance(value, (bool, int, str)) or (isinstance(value, float) and math.isfinite(value))


def architectures():
    cases = []
    for kind in UNLISTED:
        try:
            config = AutoConfig.for_model(kind)
        except Exception:
            continue
        fields = {k: v for k, v in config.to_dict().items() if scalar(v) and k not in ("transformers_version", "architectures")}
        cases.append({**fields, "model_type": kind, "architectures": [MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[kind]]})
    return cases


def write(name, value):
    rows = value if isinstance(value, list) else value["cases"]
    body = ",\n".join(json.dumps(row, sort_keys=True, ensure_ascii=True) for row in rows)
    text = f"[\n{body}\n]" if isinstance(value, list) else f'{{"names": {json.dumps(value["names"])}, "cases": [\n{body}\n]}}'
    (OUT / name).write_text(text + "\n")
    print(name, len(rows), "cases")


if __name__ == "__main__":
    OUT.mkdir(parents=True, exist_ok=True)
    write("patterns.json", patterns())
    write("rope.json", rope())
    write("windows.json", windows())
    write("architectures.json", architectures())
