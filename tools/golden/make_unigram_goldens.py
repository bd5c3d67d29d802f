#!/usr/bin/env python3
"""Small SentencePiece unigram models, as XLM-RoBERTa and its embedding models have them, with ids for all strings.

Trains 1,600 pieces with the sentencepiece package (nmt_nfkc, whose precompiled charsmap is that of published models) on the
sentences of strings.py. Writes tests/data/tokenizer/unigram/{unigram_words, unigram_bytes}.tokenizer.json.gz and the goldens in the
format of tests/data/tokenizer/README.md.
"""

import base64
import io
import json
import struct

from common import DATA, write_golden, write_gz
from strings import CODE, SENTENCES, strings

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


def main():
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
