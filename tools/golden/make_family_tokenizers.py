#!/usr/bin/env python3
"""One tokenizer for every way in which the published files of the supported families differ, with ids for all strings.

Two small vocabularies, of bytes and of SentencePiece's kind, are learnt from whole strings, so their merges cross every
border that a family's cuts make. What stands around them is the family's: the classes of transformers build it where
there is one, and PIPELINES says where the rest is from. Writes tests/data/tokenizer/families/*; the formats are in
tests/data/tokenizer/README.md.

  make_family_tokenizers.py              writes the files
  make_family_tokenizers.py --show KIND TEXT   prints the words, the ids and the decoded text of one text
"""

import json
import re
import struct
import sys

from common import DATA, fnv1a64, write_gz
from strings import CODE, SENTENCES, strings

import tokenizers
import transformers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import CohereTokenizer, GemmaTokenizer, GPT2Tokenizer, LlamaTokenizer, Qwen3_5Tokenizer
from transformers.convert_slow_tokenizer import TikTokenConverter
from transformers.integrations.gguf import gguf_tokenizer_mapping as by_gguf
from transformers.integrations.mistral.tokenizer import MistralConverter
from transformers.tokenization_utils_base import generate_merges

OUT = DATA / "tokenizer" / "families"

# Words that are tokens though no merges lead to them: only models with ignore_merges give them.
UNREACHED = ["Ġcaptured", "Ġtwo", "Ġthree", "Ġgraph", "Hello", "Ġworld", "return", "Ġ日本", "123", "...", "ĊĊĊĊĊ"]

SEED = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}" "\r\n" r"]+|\s*[" "\r\n"
        r"]+|\s+(?!\S)|\s+")
# As llama.cpp has it beside "deepseek-llm": letters of European scripts.
EUROPEAN = re.sub(r"\\x{([0-9a-f]+)}", lambda m: chr(int(m[1], 16)), (
    r"\s?[A-Za-z\x{b5}\x{c0}-\x{d6}\x{d8}-\x{f6}\x{f8}-\x{1ba}\x{1bc}-\x{1bf}\x{1c4}-\x{293}\x{295}-\x{2af}"
    r"\x{370}-\x{373}\x{376}\x{377}\x{37b}-\x{37d}\x{37f}\x{386}\x{388}-\x{38a}\x{38c}\x{38e}-\x{3a1}"
    r"\x{3a3}-\x{3f5}\x{3f7}-\x{481}\x{48a}-\x{52f}\x{531}-\x{556}\x{10a0}-\x{10c5}\x{13a0}-\x{13f5}"
    r"\x{13f8}-\x{13fd}\x{1c90}-\x{1cba}\x{1cbd}-\x{1cbf}\x{1d00}-\x{1d2b}\x{1d6b}-\x{1d77}\x{1d79}-\x{1d9a}"
    r"\x{1e00}-\x{1f15}\x{1f18}-\x{1f1d}\x{1f20}-\x{1f45}\x{1f48}-\x{1f4d}\x{1f50}-\x{1f57}\x{1f59}\x{1f5b}"
    r"\x{1f5d}\x{1f5f}-\x{1f7d}\x{1f80}-\x{1fb4}\x{1fb6}-\x{1fbc}\x{1fbe}\x{1fc2}-\x{1fc4}\x{1fc6}-\x{1fcc}"
    r"\x{1fd0}-\x{1fd3}\x{1fd6}-\x{1fdb}\x{1fe0}-\x{1fec}\x{1ff2}-\x{1ff4}\x{1ff6}-\x{1ffc}\x{2102}\x{2107}"
    r"\x{210a}-\x{2113}\x{2115}\x{2119}-\x{211d}\x{2124}\x{2126}\x{2128}\x{212a}-\x{212d}\x{212f}-\x{2134}\x{2139}"
    r"\x{213c}-\x{213f}\x{2145}-\x{2149}\x{214e}\x{2183}\x{2184}\x{2c00}-\x{2c7b}\x{2c7e}-\x{2ce4}"
    r"\x{2ceb}-\x{2cee}\x{2cf2}\x{2cf3}\x{a640}-\x{a66d}\x{a680}-\x{a69b}\x{a722}-\x{a76f}\x{a771}-\x{a787}"
    r"\x{a78b}-\x{a78e}\x{ab70}-\x{abbf}\x{fb00}-\x{fb06}\x{fb13}-\x{fb17}\x{ff21}-\x{ff3a}\x{ff41}-\x{ff5a}"
    r"\x{10400}-\x{1044f}\x{104b0}-\x{104d3}\x{104d8}-\x{104fb}\x{10c80}-\x{10cb2}\x{10cc0}-\x{10cf2}"
    r"\x{118a0}-\x{118df}\x{1e900}-\x{1e943}]+"))


def token(content, special=True, **flags):
    return AddedToken(content, special=special, normalized=False, **flags)


# The marks that the strings have, as most published files add them (those of SmolLM3, Qwen3, GLM): what stands in
# answers for programs is no special token.
MARKS = [token(t) for t in ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<s>", "</s>", "<unk>", "[INST]")]
MARKS += [token(t, special=False) for t in ("<think>", "</think>", "<tool_call>", "</tool_call>")]
# Phi-3 and Phi-4-mini swallow the white space behind the marks of a turn, but not behind those of a text.
STRIPPING = [token(t, special=t != "<tool_call>", rstrip=True)
             for t in ("<|im_start|>", "<|im_end|>", "</s>", "<tool_call>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>")]
STRIPPING += [token(t) for t in ("<|endoftext|>", "<s>", "<unk>")]
# Phi-4's take that in front, too.
AROUND = [token(t, lstrip=True, rstrip=True) for t in ("<|im_start|>", "<|im_sep|>", "<|im_end|>", "<|endoftext|>")]


def byte_level():
    """Tokens in the order of their ids, and merges."""
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = trainers.BpeTrainer(vocab_size=1500, min_frequency=2, show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tok.train_from_iterator(SENTENCES * 3 + CODE * 3 + strings()[::17], trainer)
    model = json.loads(tok.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    return tokens + [t for t in UNREACHED if t not in model["vocab"]], [tuple(m) for m in model["merges"]]


def pieces():
    """The same of SentencePiece's kind; a piece scores by its place, as in models that were trained as BPE."""
    tok = Tokenizer(models.BPE())
    trainer = trainers.BpeTrainer(vocab_size=1500, min_frequency=2, special_tokens=[], show_progress=False)
    texts = SENTENCES * 3 + CODE * 3 + ["    ", "        "] * 3
    tok.train_from_iterator([t.replace(" ", "▁") for t in texts], trainer)
    learnt = list(dict.fromkeys("".join(m) for m in json.loads(tok.to_str())["model"]["merges"]))
    learnt = [t for t in learnt if "\n" not in t and "\t" not in t]
    single = sorted({c for t in learnt for c in t} | {chr(c) for c in range(0x21, 0x7F)} | {"▁"})
    tokens = ["<pad>", "<eos>", "<bos>", "<unk>"] + [f"<0x{b:02X}>" for b in range(256)] + learnt + single
    scores = [0.0] * 260 + [-float(i) for i in range(len(tokens) - 260)]
    assert len(set(tokens)) == len(tokens)
    return tokens, generate_merges({t: i for i, t in enumerate(tokens)}, dict(zip(tokens, scores)))


def of_ranks(pattern=None):
    """As files that were made from tiktoken's ranks (Llama 3, GLM-4, gpt-oss): transformers' own converter."""
    class Converter(TikTokenConverter):
        def extract_vocab_merges_from_model(self, _):
            return BYTES

    return Converter(**({"pattern": pattern} if pattern else {})).converted()


def named(pre):
    """What transformers makes of a GGUF file whose words are cut as this name says."""
    vocab, merges = BYTES
    read = {"tokenizer_type": "gpt2", "pre_tokenizer_type": pre, "tokens": sorted(vocab, key=vocab.get),
            "merges": [" ".join(m) for m in merges]}
    return by_gguf.convert_gguf_tokenizer("", read)[0]


def tekken():
    """Of a tekken.json, whose pattern is that of mistral_common 1.13.1's data/tekken_240911.json."""
    made = MistralConverter.__new__(MistralConverter)
    made.pattern, made.add_prefix_space, made.additional_special_tokens = by_gguf._TEKKEN_SPLIT, False, []
    made._precomputed_vocab, made._precomputed_merges = BYTES
    return made.converted()


def cut_by(*steps):
    vocab, merges = BYTES
    tok = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(s), "isolated") if isinstance(s, str) else s for s in steps
    ] + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    return tok


def phi3():
    tokens, _ = PIECES
    return by_gguf.phi3_tokenizer({"tokens": sorted(tokens, key=tokens.get), "scores": SCORES}).backend_tokenizer


def backend(made):
    return made.backend_tokenizer


DIGITS = pre_tokenizers.Digits(individual_digits=True)
DEEPSEEK_V2 = ["[\r\n]", EUROPEAN, r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", "[一-龥ࠀ-一가-퟿]+"]

# kind: (families whose published files are so, how it is made, added tokens, what stands in front of a text,
#        names of tokenizer.ggml.pre that give the same ids, or of tokenizer.ggml.model with a leading colon)
PIPELINES = {
    "llama3": ("Llama 3, SmolLM3, GLM-4, GLM-4.5, Falcon3, Nemotron-H", of_ranks, MARKS, ["<s>"],
               ["llama-bpe", "glm4", "chatglm-bpe", "falcon3", "pixtral", "smaug-bpe"]),
    "cl100k": ("OLMo 2, OLMo 3, Granite 4", lambda: named("dbrx"), MARKS, [], ["dbrx"]),
    "phi4": ("Phi-4", lambda: named("dbrx"), AROUND, [], ["dbrx"]),
    "o200k": ("gpt-oss, Phi-4-mini", lambda: of_ranks(by_gguf._GPT4O_SPLIT), STRIPPING, [], ["gpt-4o"]),
    "minimax_m2": ("MiniMax-M2", lambda: named("minimax-m2"), MARKS, [], ["minimax-m2"]),
    "tekken": ("Mistral Small 3, Ministral 3", tekken, MARKS, ["<s>", "[INST]"], ["tekken"]),
    "gpt2": ("EXAONE 4, RoBERTa", lambda: backend(GPT2Tokenizer(*BYTES)), MARKS[1:] + [token("<|endoftext|>", lstrip=True)], [], []),
    "cohere": ("Command-R, Command-R7B", lambda: backend(CohereTokenizer(*BYTES)), MARKS, ["<s>"], ["command-r"]),
    "qwen3_5": ("Qwen3.5", lambda: backend(Qwen3_5Tokenizer(*BYTES)), MARKS, [], ["qwen35"]),
    "seed_oss": ("Seed-OSS", lambda: cut_by(SEED), MARKS, [], ["seed-coder"]),
    "deepseek_v2": ("DeepSeek-V2", lambda: cut_by(*DEEPSEEK_V2, DIGITS), MARKS, ["<s>"], []),
    "hunyuan_moe": ("Hunyuan A13B", lambda: of_ranks(by_gguf._QWEN2_SPLIT), MARKS, [], ["hunyuan"]),
    "gemma": ("Gemma 2, Gemma 3", lambda: backend(GemmaTokenizer(*PIECES)),
              MARKS + [token(t, special=False) for t in ("\n\n", "\n\n\n", "▁▁", "▁▁▁", "</div>")], ["<bos>"], []),
    "ernie": ("ERNIE 4.5, InternLM3", lambda: backend(LlamaTokenizer(*PIECES, add_prefix_space=False)), MARKS, ["<bos>"],
              [":llama"]),
    "phi3": ("Phi-3", phi3, STRIPPING, [], [":llama"]),
}

# With special tokens and white space around them, beside those that the strings have.
TEXTS = [
    "<|im_start|>user\nHello world<|im_end|>\n<|im_start|>assistant\n", "<|im_end|> \n\t x", " x <|im_end|>\u3000y",
    "<tool_call>\n{\"name\": \"f\"}\n</tool_call>", "<think>\n\n</think>\n\nOK", "<|endoftext|> <|endoftext|>", "a <unk> b",
    "</s>  </s>", "[INST] hi [/INST]", "<|im_start|><|im_start|>", "<s><s> x", "\n\n\n\n<s>\n\n\n", "e\u0301<s>\u0301e", "  <tool_call>  ",
    "<|im_start|> user <|im_sep|>\n x \n<|im_end|>\n<|im_start|>",
    "<|user|>\nHello<|end|>\n<|assistant|>\n Hm<|end|> <|endoftext|> ",
]


def skeleton(tok):
    """A tokenizer.json without its vocabulary and merges."""
    out = json.loads(tok.to_str())
    out["model"]["vocab"], out["model"]["merges"] = {}, []
    return out


def make(kind):
    _, build, added, front, _ = PIPELINES[kind]
    tok = build()
    # In the order of the list, so the ids of one vocabulary's kinds agree.
    names = [t.content for t in MARKS] + [t.content for t in added if t.content not in {m.content for m in MARKS}]
    flags = {t.content: t for t in added}
    for name in names:
        if name not in flags or (kind in ("gemma", "ernie", "phi3") and name == "<unk>"):
            continue
        (tok.add_special_tokens if flags[name].special else tok.add_tokens)([flags[name]])
    if kind in ("gemma", "ernie", "phi3"):
        tok.add_special_tokens([token(t) for t in ("<pad>", "<eos>", "<bos>", "<unk>")])
    if front:
        ids = [(t, tok.token_to_id(t)) for t in front]
        tok.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
            single=" ".join(front) + " $A", special_tokens=ids)])
    return tok


def check_of(ids, text):
    """16 bits of what a text becomes and comes back as."""
    return fnv1a64(struct.pack(f"<{len(ids)}i", *ids) + text.encode()) & 0xFFFF


def main():
    global BYTES, PIECES, SCORES
    tokens, merges = byte_level()
    BYTES = ({t: i for i, t in enumerate(tokens)}, merges)
    piece_tokens, piece_merges = pieces()
    PIECES = ({t: i for i, t in enumerate(piece_tokens)}, piece_merges)
    SCORES = [0.0] * 260 + [-float(i) for i in range(len(piece_tokens) - 260)]
    if sys.argv[1:2] == ["--show"]:
        tok, text = make(sys.argv[2]), sys.argv[3]
        ids = tok.encode(text, add_special_tokens=False).ids
        print(tok.encode(text, add_special_tokens=False).tokens, ids, repr(tok.decode(ids, skip_special_tokens=False)), sep="\n")
        return
    OUT.mkdir(parents=True, exist_ok=True)
    write_gz(OUT / "vocabularies.json.gz", json.dumps({
        "byte_level": {"tokens": tokens, "merges": merges}, "pieces": {"tokens": piece_tokens, "merges": piece_merges}},
        ensure_ascii=False, separators=(",", ":")).encode())
    texts, kinds, columns = strings(), [], []
    for kind, (families, _, _, _, names) in PIPELINES.items():
        tok = make(kind)
        column = []
        for text in texts:
            ids = tok.encode(text, add_special_tokens=False).ids
            column.append(check_of(ids, tok.decode(ids, skip_special_tokens=False)))
        columns.append(column)
        of_pieces = kind in ("gemma", "ernie", "phi3")
        kinds.append({"kind": kind, "families": families, "vocabulary": "pieces" if of_pieces else "byte_level",
                      "gguf": names, "tokenizer": skeleton(tok), "texts": [
                          {"text": t, "ids": tok.encode(t).ids, "decoded": tok.decode(tok.encode(t).ids, skip_special_tokens=True)}
                          for t in TEXTS]})
        print(kind, len({*column}), sum(a == b for a, b in zip(column, columns[0])), flush=True)
    for i, a in enumerate(columns):
        for j, b in enumerate(columns[:i]):
            assert sum(x != y for x, y in zip(a, b)) > 20, (kinds[i]["kind"], kinds[j]["kind"])
    rows = ",\n".join(json.dumps(k, ensure_ascii=False, separators=(",", ":")) for k in kinds)
    made = {"tokenizers": tokenizers.__version__, "transformers": transformers.__version__}
    (OUT / "families.json").write_text(f'{{"made_with":{json.dumps(made)},"kinds":[\n{rows}]}}\n', encoding="utf-8")
    # Kinds of one vocabulary agree on most strings: what is stored of a later one is the xor with the first.
    first = {}
    packed = b""
    for kind, column in zip(kinds, columns):
        base = first.setdefault(kind["vocabulary"], column)
        packed += struct.pack(f"<{len(texts)}H", *(column if base is column else [a ^ b for a, b in zip(column, base)]))
    write_gz(OUT / "checks.gz", packed)


if __name__ == "__main__":
    main()
