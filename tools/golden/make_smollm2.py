#!/usr/bin/env python3
"""Greedy text of SmolLM2-135M-Instruct: 20 prompts, 48 tokens each, HF transformers in fp32 on the dequantised GGUF.

Writes tests/data/smollm2/golden.json; see the README there.
"""

from common import DATA, SMOLLM2_FILE, SMOLLM2_PACKAGE, sha256_file, write_json
from smollm2 import SmolLM2

import jinja2
import torch
import transformers

NEW = 48
NEAR_TIE = 1e-5

LONG = (
    "The lighthouse keeper wrote in the log every evening. On the first of March he noted a calm sea, two fishing boats to the "
    "north, and a repaired lamp. On the second of March he noted fog and no boats at all. On the third he wrote that a supply ship "
    "had brought oil, flour, three letters and a new clock, and that the old clock had been eleven minutes slow. On the fourth the wind "
    "turned to the west and a sail was torn. On the fifth he counted 37 gulls on the rocks and wrote their number twice. "
)

RAW = [
    "The capital of France is",
    "Once upon a time, in a small village by the sea,",
    "def fibonacci(n):\n    \"\"\"Return the n-th Fibonacci number.\"\"\"\n",
    "Q: What is 17 + 25?\nA:",
    "La fotosíntesis es el proceso por el cual",
    "Die Hauptstadt von Deutschland ist",
    "日本の首都は",
    "#include <stdio.h>\n\nint main(void) {\n",
    "1, 2, 3, 5, 8, 13,",
    "A",
    "SELECT name, COUNT(*) FROM orders WHERE",
    LONG + "In summary, during these five days the keeper",
]
CHAT = [
    [{"role": "user", "content": "What is the capital of France?"}],
    [{"role": "user", "content": "Write a haiku about autumn rain."}],
    [{"role": "system", "content": "You answer in one short sentence."}, {"role": "user", "content": "Why is the sky blue?"}],
    [{"role": "user", "content": "Solve for x: 3x + 7 = 22. Show the steps."}],
    [{"role": "user", "content": "Explique-moi la gravité en deux phrases."}],
    [{"role": "user", "content": "Write a Python function that reverses a string."}],
    [
        {"role": "user", "content": "Name a fruit."},
        {"role": "assistant", "content": "Apple."},
        {"role": "user", "content": "Name another one, and say what colour it is. 🍌"},
    ],
    [{"role": "user", "content": "Summarise this text in one sentence:\n\n" + LONG * 3}],
]


@torch.no_grad()
def main():
    torch.set_num_threads(1)
    smol = SmolLM2()
    tok, net = smol.tokenizer(), smol.model()
    template = jinja2.Environment(trim_blocks=True, lstrip_blocks=True).from_string(smol.chat_template())
    prompts = [{"kind": "raw", "text": t} for t in RAW]
    prompts += [{"kind": "chat", "messages": m, "text": template.render(messages=m, add_generation_prompt=True)} for m in CHAT]
    ties = 0
    for index, p in enumerate(prompts):
        ids = tok.encode(p["text"], add_special_tokens=False).ids
        assert tok.decode(ids, skip_special_tokens=False) == p["text"]
        out, cache, step = [], None, torch.tensor([ids])
        while len(out) < NEW:
            r = net(input_ids=step, past_key_values=cache, use_cache=True)
            cache = r.past_key_values
            out.append(int(r.logits[0, -1].argmax()))
            step = torch.tensor([[out[-1]]])
        # teacher-forced: everything in one pass
        logits = net(input_ids=torch.tensor([ids + out[:-1]]), use_cache=False).logits[0, len(ids) - 1 :]
        top = logits.topk(2, dim=-1)
        gaps = (top.values[:, 0] - top.values[:, 1]).tolist()
        for i, (a, b, g) in enumerate(zip(out, top.indices[:, 0].tolist(), gaps)):
            assert a == b or g < 1e-4, (index, i, a, b, g)
        p |= {
            "prompt_ids": ids,
            "generated_ids": out,
            "generated_text": tok.decode(out, skip_special_tokens=False),
            "top1_ids": top.indices[:, 0].tolist(),
            "top2_ids": top.indices[:, 1].tolist(),
            "gaps": [float(f"{g:.6g}") for g in gaps],
            "near_ties": [i for i, g in enumerate(gaps) if g < NEAR_TIE],
            "max_abs_logit": float(f"{logits.abs().max().item():.6g}"),
            "first_logits": [float(f"{x:.8g}") for x in logits[0, :16].tolist()],
        }
        ties += len(p["near_ties"])
        print(f"{index:2d} {len(ids):4d} tokens, smallest gap {min(gaps):.3g}: {p['generated_text'][:70]!r}", flush=True)
    write_json(DATA / "smollm2" / "golden.json", {
        "model": {
            "package": SMOLLM2_PACKAGE, "file": SMOLLM2_FILE, "bytes": smol.path.stat().st_size, "sha256": sha256_file(smol.path),
            "vocab_size": net.config.vocab_size, "layers": net.config.num_hidden_layers, "hidden": net.config.hidden_size,
            "heads": net.config.num_attention_heads, "kv_heads": net.config.num_key_value_heads,
            "rope_theta": net.config.rope_parameters["rope_theta"], "rms_norm_eps": net.config.rms_norm_eps,
        },
        "made_with": {"transformers": transformers.__version__, "torch": torch.__version__.split("+")[0], "dtype": "float32", "attention": "eager"},
        "new_tokens": NEW,
        "near_tie": NEAR_TIE,
        "near_ties_total": ties,
        "prompts": prompts,
    }, indent=None)


if __name__ == "__main__":
    main()
