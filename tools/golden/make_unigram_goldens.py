#!/usr/bin/env python3
"""Small SentencePiece unigram models, as XLM-RoBERTa and its embedding models have them, with ids for all strings.

Trains 1,600 pieces with the sentencepiece package (nmt_nfkc, whose precompiled charsmap is that of published models) on the
sentences of strings.py. Writes tests/data/tokenizer/unigram/{unigram_words, unigram_bytes}.tokenizer.json.gz and the goldens in the
format of tests/data/tokenizer/README.md.

Smaller models, with a map of 120 rules and each way to treat spaces, become metadata of GGUF files, unigram/spaces_<way>.gguf, beside
the ids that the sentencepiece package itself gives (spaces_<way>.json).
"""

import base64
import io
import json
import pathlib
import struct
import tempfile

from common import DATA, write_golden, write_gz
from strings import CODE, SENTENCES, strings

import gguf
import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

OUT = DATA / "tokenizer" / "unigram"


def fields(data):
    """(number, value) of a protobuf message; nested messages are bytes."""
    def varint(at):
        value = shift = 0
        while True:
            value |= (data[at] & 0x7F) << shift
            shift += 7
            at += 1
            if not data[at - 1] & 0x80:
                return value, at

    at = 0
    while at < len(data):
        key, at = varint(at)
        if key & 7 == 0:
            value, at = varint(at)
        elif key & 7 == 5:
            value, at = data[at : at + 4], at + 4
        else:
            assert key & 7 == 2, key
            size, at = varint(at)
            value, at = data[at : at + size], at + size
        yield key >> 3, value


def train():
    """Pieces with their scores, best first, and the charsmap."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES * 3 + [c.replace("\n", " ") for c in CODE] * 2), model_writer=model, model_type="unigram", vocab_size=1600,
        character_coverage=0.98, hard_vocab_limit=False, normalization_rule_name="nmt_nfkc", num_threads=1, minloglevel=2)
    pieces, charsmap = [], b""
    for number, value in fields(model.getvalue()):
        if number == 1:
            piece = dict(fields(value))
            if piece.get(3, 1) == 1:  # a normal one
                pieces.append((piece[1].decode(), struct.unpack("<f", piece[2])[0]))
        elif number == 3:
            charsmap = dict(fields(value))[2]
    return pieces, charsmap


# (add_dummy_prefix, remove_extra_whitespaces)
SPACES = {"usual": (True, True), "kept": (True, False), "no_prefix": (False, True), "kept_no_prefix": (False, False)}
SPACED = ["", " ", "   ", "a", " a", "  a  b ", "The graph is captured once.", "  two  spaces   and  three ", "tab\tand\nline", "Ｆｕｌｌ　ｗｉｄｔｈ！",
          "ﬁne eﬀect…", "x\u00a0y", "文字 and Ünïcode", "12 345,6", "a\n\n b"]


def rules():
    """Characters of full width, ligatures and spaces, as lines of SentencePiece's tables."""
    pairs = {chr(c + 0xFEE0): chr(c) for c in range(0x21, 0x7F)} | {c: " " for c in "\t\n\r\u00a0\u3000\u2003"}
    pairs |= {"ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl", "ﬃ": "ffi", "ﬄ": "ffl", "…": "...", "™": "TM", "①": "1", "½": "1/2", "ĳ": "ij", "㎏": "kg"}
    return "".join(f"{ord(k):X}\t{' '.join(f'{ord(c):X}' for c in v)}\n" for k, v in sorted(pairs.items()))


def train_small(prefix, merges):
    """The bytes of a model of at most 400 pieces, and its charsmap."""
    model = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        table = pathlib.Path(folder) / "rules.tsv"
        table.write_text(rules())
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([s for s in SENTENCES if s.isascii()] * 3 + [c.replace("\n", " ") for c in CODE if c.isascii()] * 2),
            model_writer=model, model_type="unigram", vocab_size=400, character_coverage=0.98, hard_vocab_limit=False,
            normalization_rule_tsv=str(table), add_dummy_prefix=prefix, remove_extra_whitespaces=merges, num_threads=1, minloglevel=2)
    normalizer = next(v for n, v in fields(model.getvalue()) if n == 3)
    return model.getvalue(), dict(fields(normalizer))[2]


def add_unigram_metadata(w, tokens, scores, types, charsmap, prefix=True, merges=True):
    """As _xlmroberta_set_vocab of llama.cpp's conversion/bert.py writes them."""
    w.add_tokenizer_model("t5")
    w.add_tokenizer_pre("default")
    w.add_token_list(tokens)
    w.add_token_scores(scores)
    w.add_token_types(types)
    w.add_add_space_prefix(prefix)
    w.add_remove_extra_whitespaces(merges)
    w.add_precompiled_charsmap(charsmap)


def write_spaces():
    for way, (prefix, merges) in SPACES.items():
        model, charsmap = train_small(prefix, merges)
        sp = sentencepiece.SentencePieceProcessor(model_proto=model)
        ids = range(sp.get_piece_size())
        w = gguf.GGUFWriter(OUT / f"spaces_{way}.gguf", "bert")
        add_unigram_metadata(w, [sp.id_to_piece(i) for i in ids] + ["[PAD400]"], [sp.get_score(i) for i in ids] + [-10000.0],
                             [2 if sp.is_unknown(i) else 3 if sp.is_control(i) else 1 for i in ids] + [5], charsmap, prefix, merges)
        w.add_bos_token_id(sp.bos_id())
        w.add_eos_token_id(sp.eos_id())
        w.add_unk_token_id(sp.unk_id())
        w.add_add_bos_token(False)
        w.add_add_eos_token(False)
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()
        texts = SPACED + [f" {s}  {s[:9]} " for s in SENTENCES[:24]]
        lines = [json.dumps({"text": t, "ids": sp.encode(t)}, ensure_ascii=False) for t in texts]
        (OUT / f"spaces_{way}.json").write_text("[" + ",\n".join(lines) + "]\n", encoding="utf-8")
        print(way, "vocabulary", len(ids), "map of", len(charsmap), "bytes")


def main():
    write_spaces()
    OUT.mkdir(parents=True, exist_ok=True)
    pieces, charsmap = train()
    special = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    map_json = json.dumps({"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap).decode()})

    # As XLM-RoBERTa is converted.
    words = Tokenizer(models.Unigram(special + pieces + [("<mask>", 0.0)], unk_id=3))
    words.normalizer = normalizers.Precompiled(charsmap)
    assert json.loads(words.to_str())["normalizer"] == json.loads(map_json)
    words.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    words.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)])

    # As newer ones are, which keep runs of spaces together, here with bytes for what is unknown.
    worst = min(score for _, score in pieces)
    byte_pieces = [(f"<0x{b:02X}>", worst - 1) for b in range(256)]
    whole = Tokenizer(models.Unigram(special + byte_pieces + pieces, unk_id=3, byte_fallback=True))
    whole.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    whole.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=False)

    texts = strings()
    for name, tok in (("unigram_words", words), ("unigram_bytes", whole)):
        tok.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()]) if name == "unigram_bytes" else decoders.Metaspace()
        tok.add_special_tokens([AddedToken(t, normalized=False, special=True) for t, _ in special])
        if name == "unigram_words":
            tok.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False, special=True)])
        write_gz(OUT / f"{name}.tokenizer.json.gz", tok.to_str().encode())
        tok = Tokenizer.from_str(tok.to_str())
        ids, differ, full = write_golden(OUT, name, texts, lambda text: tok.encode(text, add_special_tokens=False).ids,
                                         lambda ids: tok.decode(ids, skip_special_tokens=False))
        print(name, "ids", ids, "round trips that differ", differ, "vocabulary", tok.get_vocab_size(), "unknown", sum(3 in ids for ids in full))


if __name__ == "__main__":
    main()
