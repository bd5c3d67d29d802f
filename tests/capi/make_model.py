#!/usr/bin/env python3
"""Writes the small model of the tests of the library: config.json for random weights, a tokenizer of bytes, a template.

    make_model.py FOLDER
"""
import json
import pathlib
import sys

CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
          "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 260,
          "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 8192, "eos_token_id": 259,
          "torch_dtype": "float32"}
TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"


def byte_vocabulary():
    """The visible characters that stand for the bytes in byte-level tokenizers (GPT-2's table)."""
    vocabulary, others = {}, 256
    for byte in range(256):
        visible = 33 <= byte <= 126 or 161 <= byte <= 172 or byte >= 174
        vocabulary[chr(byte if visible else others)] = byte
        others += not visible
    return vocabulary


def tokenizer():
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": level, "post_processor": None,
            "decoder": level, "model": {"type": "BPE", "vocab": byte_vocabulary(), "merges": []}}


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in (("config.json", CONFIG), ("tokenizer.json", tokenizer()),
                          ("tokenizer_config.json", {"chat_template": TEMPLATE})):
        (folder / name).write_text(json.dumps(content))


if __name__ == "__main__":
    main()
