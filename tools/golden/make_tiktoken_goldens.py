#!/usr/bin/env python3
"""A tiktoken.model as Kimi K2 has one, small, and tiktoken's ids for all strings.

tiktoken's own training learns the ranks from the sentences of strings.py; pattern and special tokens are made as the model's
tokenization_kimi.py makes them (256 ids behind the ranks, <|reserved_token_ID|> where tokenizer_config.json names none).
Writes tests/data/tokenizer/tiktoken: tiktoken.model, tokenizer_config.json, kimi.golden.gz and kimi.first_ids.json in the formats of
tests/data/tokenizer/README.md, and special.json: texts with special tokens, and the bytes of tokens.
"""

import base64

from common import DATA, write_golden, write_json
from make_gguf_splits import KIMI
from strings import CODE, SENTENCES, strings

import tiktoken
from tiktoken._educational import bpe_train

OUT = DATA / "tokenizer" / "tiktoken"
RANKS = 1200
RESERVED = 256
# Names and flags as Kimi K2's config has them: what stands in answers for programs is not special.
NAMED = {0: ("[BOS]", True), 1: ("[EOS]", True), 2: ("<|im_end|>", True), 3: ("<|im_user|>", True), 4: ("<|im_assistant|>", True),
         6: ("<|start_header_id|>", True), 7: ("<|end_header_id|>", True), 9: ("[EOT]", True), 10: ("<|im_system|>", True),
         11: ("<|tool_calls_section_begin|>", False), 12: ("<|tool_calls_section_end|>", False),
         13: ("<|tool_call_begin|>", False), 14: ("<|tool_call_argument_begin|>", False), 15: ("<|tool_call_end|>", False),
         17: ("<|im_middle|>", True), 254: ("[UNK]", True), 255: ("[PAD]", True)}
TEXTS = ["<|im_user|>user<|im_middle|>Hello there<|im_end|><|im_assistant|>assistant<|im_middle|>", "[BOS][EOS] [PAD]x[UNK]",
         "<|reserved_token_1205|>", "<|reserved_token_1300|> and <|reserved_token_1456|>",
         "中文<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"a\": 1}<|tool_call_end|>字",
         "<|im_end|", "<|im_end|>|>", "a<|im_system|>\n\n  b"]


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    data = "\n".join(SENTENCES * 2 + CODE)
    ranks = bpe_train(data, RANKS, "(?V1)" + KIMI, visualise=None)  # Python's regex knows && in this version alone
    # Ranks are no ids of bytes in published files either.
    singles = sorted(range(256), key=lambda b: (b * 151 + 33) % 256)
    order = {bytes([b]): place for place, b in enumerate(singles)}
    ranks = {token: order.get(token, rank) for token, rank in ranks.items()}
    lines = [base64.b64encode(token) + b" %d" % rank for token, rank in sorted(ranks.items(), key=lambda item: item[1])]
    (OUT / "tiktoken.model").write_bytes(b"\n".join(lines) + b"\n")
    named = {RANKS + place: name for place, name in NAMED.items()}
    write_json(OUT / "tokenizer_config.json", {
        "tokenizer_class": "TikTokenTokenizer",
        "auto_map": {"AutoTokenizer": ["tokenization_kimi.TikTokenTokenizer", None]},
        "bos_token": "[BOS]", "eos_token": "[EOS]", "unk_token": "[UNK]", "pad_token": "[PAD]",
        "added_tokens_decoder": {str(i): {"content": text, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False,
                                          "special": special} for i, (text, special) in named.items()}})
    special = {named[i][0] if i in named else f"<|reserved_token_{i}|>": i for i in range(RANKS, RANKS + RESERVED)}
    enc = tiktoken.Encoding(name="kimi", pat_str=KIMI, mergeable_ranks=ranks, special_tokens=special)

    ids, differ, _ = write_golden(OUT, "kimi", strings(), lambda text: enc.encode(text, allowed_special="all"), enc.decode)
    write_json(OUT / "special.json", {
        "made_with": {"tiktoken": tiktoken.__version__},
        "texts": [{"text": t, "ids": enc.encode(t, allowed_special="all"), "as_text": enc.encode(t, disallowed_special=())} for t in TEXTS],
        "bytes": {str(i): list(enc.decode_single_token_bytes(i)) for i in (0, 5, 255, 256, 700, RANKS - 1, RANKS, RANKS + 5)}})
    print("kimi ids", ids, "round trips that differ", differ, "vocabulary", enc.n_vocab)


if __name__ == "__main__":
    main()
