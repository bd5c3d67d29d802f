#!/usr/bin/env python3
"""The text side of the tiny models with a vision tower, and what HF transformers answers to conversations with images.

    make_vision_answers.py

Writes to tests/data/vision/qwen3_vl: tokenizer.json, tokenizer_config.json, preprocessor_config.json, answers.json. The
template writes images as the published templates of Qwen-VL do; transformers renders it, cuts the images (Pillow) and
generates greedily. Needs pillow besides requirements.txt.
"""

import json

from common import DATA, write_json

import torch
from PIL import Image, ImageOps
from transformers import PreTrainedTokenizerFast, Qwen3VLForConditionalGeneration
from transformers.image_transforms import convert_to_rgb
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

torch.set_num_threads(1)
torch.use_deterministic_algorithms(True)

OUT = DATA / "vision" / "qwen3_vl"
IMAGES = DATA / "images"
VIDEO, IMAGE, START, END, TURN, LAST = 146, 147, 148, 149, 1, 2
MARKS = {TURN: "<|im_start|>", LAST: "<|im_end|>", VIDEO: "<|video_pad|>", IMAGE: "<|image_pad|>", START: "<|vision_start|>", END: "<|vision_end|>"}
TEMPLATE = """{%- for m in messages %}
    {{- '<|im_start|>' + ('user' if m.role == 'tool' else m.role) + '\\n' }}
    {%- if m.content is string %}
        {{- m.content }}
    {%- else %}
        {%- for part in m.content %}
            {%- if 'image' in part or 'image_url' in part or part.type == 'image' %}
                {{- '<|vision_start|><|image_pad|><|vision_end|>' }}
            {%- elif 'video' in part or part.type == 'video' %}
                {{- '<|vision_start|><|video_pad|><|vision_end|>' }}
            {%- else %}
                {{- part.text }}
            {%- endif %}
        {%- endfor %}
    {%- endif %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""
RULES = {"patch_size": 4, "merge_size": 2, "temporal_patch_size": 2, "size": {"shortest_edge": 256, "longest_edge": 1920},
         "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
ASKED = [
    [{"role": "user", "content": [{"type": "text", "text": "first "}, {"type": "image", "file": "rgb.png"},
                                  {"type": "text", "text": " then "}, {"type": "image", "file": "rgb.jpeg"},
                                  {"type": "text", "text": " which is larger?"}]}],
    [{"role": "user", "content": [{"type": "image", "file": "alpha.webp"}, {"type": "text", "text": "what is it?"}]},
     {"role": "assistant", "content": "a square"},
     {"role": "user", "content": [{"type": "text", "text": "and "}, {"type": "image", "file": "turned_6.jpeg"}]}],
    [{"role": "user", "content": [{"type": "image", "file": "rgb.png"}, {"type": "image", "file": "rgb.jpeg"},
                                  {"type": "text", "text": "which is larger?"}]}],
]


def vocabulary():
    """The printable characters of ASCII, the line end, and pairs of letters; every id that the model may say."""
    signs = ["\u010a", "\u0120"] + [chr(c) for c in range(33, 127)]  # as byte-level tokenizers write them
    signs += [a + b for a in "abcdefgh" for b in "iou"]
    free = [i for i in range(151) if i not in MARKS]
    signs += [f"<{i}>" for i in free[len(signs):]]
    return dict(sorted([*zip(signs, free), *((text, i) for i, text in MARKS.items())], key=lambda e: e[1]))


def write_text_side():
    added = [dict(id=i, content=t, single_word=False, lstrip=False, rstrip=False, normalized=False, special=True) for i, t in sorted(MARKS.items())]
    level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=False)
    write_json(OUT / "tokenizer.json", dict(version="1.0", truncation=None, padding=None, added_tokens=added, normalizer=None, pre_tokenizer=level,
                                            post_processor=None, decoder=level, model=dict(type="BPE", vocab=vocabulary(), merges=[])))
    write_json(OUT / "tokenizer_config.json", dict(eos_token=MARKS[LAST], chat_template=TEMPLATE))
    write_json(OUT / "preprocessor_config.json", RULES)


def answer(net, tokenizer, processor, messages):
    prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    files = [p["file"] for m in messages if isinstance(m["content"], list) for p in m["content"] if p["type"] == "image"]
    pictures = [convert_to_rgb(ImageOps.exif_transpose(Image.open(IMAGES / f))) for f in files]
    made = processor(images=pictures, return_tensors="pt")
    for grid in made["image_grid_thw"]:  # as Qwen3VLProcessor.__call__
        prompt = prompt.replace(MARKS[IMAGE], "<|one row|>" * (int(grid.prod()) // 4), 1)
    ids = tokenizer(prompt.replace("<|one row|>", MARKS[IMAGE]), return_tensors="pt")["input_ids"]
    kinds = (ids == IMAGE).int()
    with torch.no_grad():
        out = net.generate(input_ids=ids, attention_mask=torch.ones_like(ids), mm_token_type_ids=kinds, pixel_values=made["pixel_values"], image_grid_thw=made["image_grid_thw"],
                           do_sample=False, max_new_tokens=10, eos_token_id=LAST, return_dict_in_generate=True, output_logits=True)
    best = torch.stack(out.logits)[:, 0].topk(2).values
    assert float((best[:, 0] - best[:, 1]).min()) > 1e-2, "a tie: take other words"
    tokens = out.sequences[0, ids.shape[1]:]
    said = torch.stack(out.logits)[:, 0].log_softmax(-1)[torch.arange(len(tokens)), tokens]
    return dict(messages=messages, prompt_tokens=ids.shape[1], tokens=tokens.tolist(), text=tokenizer.decode(tokens, skip_special_tokens=True), logprobs=[round(float(x), 6) for x in said])


def main():
    write_text_side()
    net = Qwen3VLForConditionalGeneration.from_pretrained(OUT, dtype=torch.float32, attn_implementation="eager").eval()
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(OUT / "tokenizer.json"), eos_token=MARKS[LAST], chat_template=TEMPLATE)
    processor = Qwen2VLImageProcessorPil(**RULES)
    found = [answer(net, tokenizer, processor, m) for m in ASKED]
    (OUT / "answers.json").write_text("[\n" + ",\n".join(map(json.dumps, found)) + "\n]\n")
    for a in found:
        print(a["prompt_tokens"], a["tokens"], tokenizer.decode(a["tokens"]))


if __name__ == "__main__":
    main()
