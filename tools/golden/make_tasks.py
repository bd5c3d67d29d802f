#!/usr/bin/env python3
"""What SmolLM2-135M-Instruct scores in HF transformers, fp32 on the dequantised GGUF, on the built-in tasks of src/evaluation/builtin.

choices.jsonl: log p of every ending behind its context, and which is the most probable, in all and per byte.
text.txt: -log p of every token in windows of 512, each behind the begin-of-text token, which counts to the window.
Writes tests/data/tasks/golden.json.
"""

import json

from common import DATA, ROOT, SMOLLM2_FILE, SMOLLM2_PACKAGE, write_json
from smollm2 import SmolLM2

import torch
import transformers

WINDOW = 512
TASKS = ROOT / "apps" / "eval" / "builtin"


def argmax(values):
    return max(range(len(values)), key=lambda i: values[i])


def margin(values):
    best, second = sorted(values, reverse=True)[:2]
    return best - second


@torch.no_grad()
def main():
    torch.set_num_threads(1)
    smol = SmolLM2()
    tok, net = smol.tokenizer(), smol.model()
    encode = lambda text: tok.encode(text, add_special_tokens=False).ids
    logp = lambda ids: torch.log_softmax(net(input_ids=torch.tensor([ids]), use_cache=False).logits[0].double(), dim=-1)
    items, right, right_per_byte, margins = [], 0, 0, []
    for line in (TASKS / "choices.jsonl").read_text().splitlines():
        q = json.loads(line)
        context = encode(q["context"])
        endings = [encode(" " + c) for c in q["choices"]]
        assert all(encode(q["context"] + " " + c) == context + e for c, e in zip(q["choices"], endings))
        scores = []
        for e in endings:
            rows = logp(context + e)
            scores.append(sum(float(rows[len(context) - 1 + i, t]) for i, t in enumerate(e)))
        per_byte = [s / len((" " + c).encode()) for s, c in zip(scores, q["choices"])]
        margins.append(min(margin(scores), margin(per_byte)))
        items.append({"context_ids": context, "ending_ids": endings, "log_p": [float(f"{s:.9g}") for s in scores],
                      "choice": argmax(scores), "choice_per_byte": argmax(per_byte), "margin": float(f"{margin(scores):.6g}")})
        right += argmax(scores) == q["answer"]
        right_per_byte += argmax(per_byte) == q["answer"]
    assert min(margins) > 1e-3, "a choice that rounding can turn is no golden"
    ids = encode((TASKS / "text.txt").read_text())
    bos = smol.field("tokenizer.ggml.bos_token_id")
    windows = []
    for at in range(0, len(ids), WINDOW - 1):
        window = [bos] + ids[at:at + WINDOW - 1]
        rows = logp(window)
        windows.append({"tokens": len(window) - 1, "nll": float(f"{-sum(float(rows[i, t]) for i, t in enumerate(window[1:])):.10g}")})
    write_json(DATA / "tasks" / "golden.json", {
        "model": {"package": SMOLLM2_PACKAGE, "file": SMOLLM2_FILE},
        "made_with": {"transformers": transformers.__version__, "torch": torch.__version__.split("+")[0], "dtype": "float32", "attention": "eager"},
        "right": right, "right_per_byte": right_per_byte, "choices": items,
        "text_ids": ids, "bos": bos, "window": WINDOW, "windows": windows,
    }, indent=None)
    print(f"{right} and {right_per_byte} of {len(items)} right, smallest margin {min(margins):.4f}; {len(ids)} tokens, "
          f"mean nll {sum(w['nll'] for w in windows) / len(ids):.5f}")


if __name__ == "__main__":
    main()
