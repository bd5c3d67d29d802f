#!/usr/bin/env python3
"""LoRA adapters of two tiny checkpoints, made and applied by PEFT, with the logits it gives in fp32.

Writes tests/data/lora/<base>.<adapter>/{adapter_config.json, adapter_model.safetensors, golden.safetensors} for bases of
tests/data/models. See tests/data/lora/README.md for the formats. Needs peft (requirements.txt) besides the rest.
"""

import json
import shutil

from common import DATA

import numpy as np
import peft
import torch
import transformers
from peft import LoraConfig, get_peft_model
from safetensors.numpy import save_file
from transformers import AutoModelForCausalLM

torch.set_num_threads(1)
torch.use_deterministic_algorithms(True)
transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

OUT = DATA / "lora"
LENGTHS = (1, 7, 131)
LATE = (64, 127, 128, 129, 130)

# Different ranks, scalings, spellings of the targets, and dtypes of the files; the factor is of B.
ADAPTERS = [
    ("llama_gqa3_tied", "style", torch.float32, 0.25, dict(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"])),
    ("llama_gqa3_tied", "tone", torch.bfloat16, 0.05, dict(
        r=8, lora_alpha=12, use_rslora=True, target_modules="all-linear",
        rank_pattern={"down_proj": 2, r"layers\.0\.self_attn\.k_proj": 5}, alpha_pattern={"o_proj": 20})),
    ("qwen3_tied", "style", torch.float32, 0.2, dict(
        r=3, lora_alpha=6, target_modules=r".*\.(gate_proj|down_proj|o_proj)")),
    ("qwen3_tied", "tone", torch.float16, 0.8, dict(
        r=6, lora_alpha=3, target_modules=["q_proj", "k_proj", "v_proj", "up_proj"], layers_to_transform=[1])),
]


@torch.no_grad()
def run(net, tokens):
    return net(input_ids=torch.from_numpy(tokens.astype(np.int64))[None], use_cache=False).logits[0].float().numpy()


def relative(a, b):
    return float(np.abs(a - b).max() / np.abs(b).max())


def main():
    shutil.rmtree(OUT, ignore_errors=True) if not (OUT / "README.md").exists() else None
    for index, (base, name, store, strength, spec) in enumerate(ADAPTERS):
        folder = OUT / f"{base}.{name}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)

        def load(dtype=torch.float32):
            return AutoModelForCausalLM.from_pretrained(DATA / "models" / base, dtype=dtype,
                                                        attn_implementation="eager").eval()

        plain, net = load(), get_peft_model(load(), LoraConfig(task_type="CAUSAL_LM", **spec))
        rng = np.random.Generator(np.random.PCG64(7000 + index))
        with torch.no_grad():
            for key, p in sorted(net.named_parameters()):
                if "lora_" in key:
                    # Strong enough to be told from none, and weak enough for bf16 to be near fp32.
                    gain = strength if "lora_B" in key else 1.0
                    x = gain * rng.standard_normal(tuple(p.shape), dtype=np.float32) / np.sqrt(p.shape[-1])
                    p.copy_(torch.from_numpy(np.asarray(x)).to(store))
        net.save_pretrained(folder, save_embedding_layers=False)
        (folder / "README.md").unlink(missing_ok=True)
        tensors = {k: v.to(store) for k, v in peft.utils.load_peft_weights(str(folder), device="cpu").items()}
        from safetensors.torch import save_file as save_torch
        save_torch(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
        # What names this machine, or comes in an order of its own.
        config = json.loads((folder / "adapter_config.json").read_text())
        config["base_model_name_or_path"] = base
        if isinstance(config["target_modules"], list):
            config["target_modules"].sort()
        (folder / "adapter_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")

        # From here on only what is in the folder counts.
        net = peft.PeftModel.from_pretrained(load(), folder).eval()
        low = peft.PeftModel.from_pretrained(load(torch.bfloat16), folder, autocast_adapter_dtype=False).eval()
        golden = {}
        for n in LENGTHS:
            tokens = rng.integers(0, plain.config.vocab_size, n, dtype=np.int32)
            logits = run(net, tokens)
            moved = relative(run(plain, tokens), logits)
            off = relative(run(low, tokens), logits)  # what bf16 costs PEFT itself
            assert moved > 0.1 and off < 0.01, (base, name, moved, off)
            positions = np.arange(n, dtype=np.int32) if n < 16 else np.array(
                sorted({p for p in LATE if p < n} | {n - 3, n - 2, n - 1}), dtype=np.int32)
            golden[f"tokens.{n}"] = tokens
            golden[f"positions.{n}"] = positions
            golden[f"logits.{n}"] = np.ascontiguousarray(logits[positions], dtype=np.float32)
        save_file(golden, folder / "golden.safetensors", metadata={
            "made_with": f"peft {peft.__version__}, transformers {transformers.__version__}, "
                         f"torch {torch.__version__.split('+')[0]}"})
        size = sum(f.stat().st_size for f in folder.glob("*"))
        print(f"{folder.name:28s} {size / 1024:5.0f} KiB, moves logits by {moved:.2f} of the largest, bf16 by {off:.3f}", flush=True)


if __name__ == "__main__":
    main()
