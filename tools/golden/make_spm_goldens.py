#!/usr/bin/env python3
"""A small SentencePiece-style BPE (byte fallback, metaspace), as Llama 2 and Mistral have it, with ids for all strings.

Trains a vocabulary of about 2,000 pieces on the sentences of strings.py. Writes tests/data/tokenizer/spm/{spm_llama, spm_mistral}.tokenizer.json, spm_llama.gguf
(metadata only) and the goldens in the format of tests/data/tokenizer/README.md.
"""

import json

from common import DATA, write_golden
from strings import CODE, SENTENCES, strings

import gguf
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

OUT = DATA / "tokenizer" / "spm"


def train():
    """Pieces in the order they were learnt, then single characters: the ids of an SPM vocabulary."""
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Metaspace()
    words = "the of and to in is that for it with as was on be at by this have from or one had not but what all were when we there can an your which their said if do will each about how up out them then she many some so these would other into has more her two like him see time could no make than first been its who now people my made over did down only way find use may water long little very after words called just where most know user assistant system hello world".split()
    trainer = trainers.BpeTrainer(vocab_size=2400, min_frequency=2, special_tokens=[], show_progress=False)
    tok.train_from_iterator(SENTENCES * 2 + CODE * 2 + [" ".join(words)] * 3 + ["    ", "        "] * 3, trainer)
    learnt = json.loads(tok.to_str())["model"]["merges"]
    pieces, seen = [], set()
    for pair in learnt:
        piece = "".join(pair)
        if piece not in seen:
            seen.add(piece)
            pieces.append(piece)
    for n in (2, 3, 4, 8):
        if "▁" * n not in seen:
            seen.add("▁" * n)
            pieces.append("▁" * n)
    characters = sorted({c for p in pieces for c in p} | {chr(c) for c in range(0x21, 0x7F)} | {"▁"})
    return pieces, characters


def merges(vocab, score):
    """All ways to put two pieces together into a third, best piece first, as HF's converter does it."""
    out = []
    for piece, s in score.items():
        local = [(piece[:i], piece[i:]) for i in range(1, len(piece)) if piece[:i] in vocab and piece[i:] in vocab]
        out += [(-s, vocab[l], vocab[r], l, r) for l, r in local]
    return [(l, r) for *_, l, r in sorted(out)]


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    pieces, characters = train()
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + pieces + characters
    assert len(set(tokens)) == len(tokens)
    vocab = {t: i for i, t in enumerate(tokens)}
    first = 259
    score = {t: -float(i) for i, t in enumerate(pieces)}
    bpe = lambda: models.BPE(vocab=vocab, merges=merges(vocab, score), unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    special = [AddedToken(t, normalized=False, special=True) for t in ("<unk>", "<s>", "</s>")]

    llama = Tokenizer(bpe())
    llama.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    mistral = Tokenizer(bpe())
    mistral.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    texts = strings()
    for name, tok in (("spm_llama", llama), ("spm_mistral", mistral)):
        tok.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
        tok.add_special_tokens(special)
        (OUT / f"{name}.tokenizer.json").write_text(tok.to_str(), encoding="utf-8")
        tok = Tokenizer.from_file(str(OUT / f"{name}.tokenizer.json"))
        ids, differ, full = write_golden(OUT, name, texts, lambda text: tok.encode(text, add_special_tokens=False).ids,
                                         lambda ids: tok.decode(ids, skip_special_tokens=False))
        print(name, "ids", ids, "round trips that differ", differ, "vocabulary", len(tokens), "unknown", sum(0 in ids for ids in full))

    w = gguf.GGUFWriter(OUT / "spm_llama.gguf", "llama")
    w.add_tokenizer_model("llama")
    w.add_tokenizer_pre("default")
    w.add_token_list(tokens)
    w.add_token_scores([0.0] * first + [score.get(t, -float(len(pieces) + i)) for i, t in enumerate(tokens[first:])])
    w.add_token_types([2, 3, 3] + [6] * 256 + [1] * (len(tokens) - first))
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    w.add_unk_token_id(0)
    w.add_add_bos_token(True)
    w.add_add_space_prefix(True)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    assert gguf.GGUFReader(OUT / "spm_llama.gguf").fields["tokenizer.ggml.tokens"].contents() == tokens


if __name__ == "__main__":
    main()
