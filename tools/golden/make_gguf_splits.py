#!/usr/bin/env python3
"""A small byte-level vocabulary whose words are cut as llama.cpp's names (tokenizer.ggml.pre) say, and HF tokenizers' ids.

Writes tests/data/tokenizer/gguf_splits.json, and gguf_splits_han.json of strings with Chinese characters: tokens and merges, which were learnt from whole strings and so cross the borders of
words, and for each way to cut the names that mean it and the ids of some of the strings of the other goldens.

Expressions are those of the models' own tokenizer.json, as llama.cpp quotes them beside its names (src/llama-vocab.cpp,
llm_tokenizer_bpe); which name means which is in its llama_vocab::impl::load.
"""

import json
import random

from common import DATA
from strings import strings

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
CASED = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
END = r"\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + END
QWEN2 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + END
QWEN35 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + END
SEED = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|" + END
GPT4O = f"{CASED}*{LOWER}+{CONTRACTIONS}?|{CASED}+{LOWER}*{CONTRACTIONS}?" + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + END
HAN = r"&&[^\p{Han}]]"  # of a class that has none
KIMI = (r"[\p{Han}]+|" + f"{CASED[:-1]}{HAN}*{LOWER[:-1]}{HAN}+{CONTRACTIONS}?|{CASED[:-1]}{HAN}+{LOWER[:-1]}{HAN}*{CONTRACTIONS}?" +
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + END)
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
DEEPSEEK = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|""" + END)

WAYS = [  # names, whether a word that is a token stays one whatever its merges, normalizer, cuts one after another
    (["dbrx"], False, None, [LLAMA3]),
    # llama.cpp of llama_cpp_python 0.3.36 has "glm4" so, because the tokenizer.json of GLM-4 says ignore_merges.
    (["falcon3", "llama-bpe", "glm4", "chatglm-bpe", "pixtral", "smaug-bpe"], True, None, [LLAMA3]),
    (["hunyuan"], True, None, [QWEN2]),  # made from tiktoken's ranks: a word that is a token is looked up first
    (["qwen35"], False, "NFC", [QWEN35]),
    (["seed-coder"], False, None, [SEED]),
    (["minimax-m2"], False, None, [GPT4O]),
    (["gpt-4o"], True, None, [GPT4O]),
    (["exaone4", "gpt-2"], False, None, [GPT2]),
    (["hunyuan-dense", "deepseek-v3"], False, None, [r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+", DEEPSEEK]),
]
EVERY = 97  # of all strings
# Where words of Chinese characters end, for which few of the strings have an eye.
HAN_WAYS = [
    (["kimi-k2"], True, None, [KIMI]),  # tokenization_kimi.py of the model
    (["gpt-4o"], True, None, [GPT4O]),
]


def cut_by(tok, form, cuts):
    tok.normalizer = normalizers.NFC() if form else None
    tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(cut), "isolated") for cut in cuts] +
                                                [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def han_strings():
    """Chinese characters, also of later Unicode versions, beside letters, marks, numbers and punctuation."""
    rng = random.Random(5)
    parts = ["中", "文字", "々", "〇", "〡", "、", "。", "ー", "の", "カ", "한", "\U0002ebf0", "\U00031350", "\u2e80", "㊀", "a", "Über", "don't", " the", "it'S", "12",
             "7", "\u0301", "/", "\n", " ", "é", "ß"]
    return ["".join(rng.choice(parts) for _ in range(rng.randint(1, 9))) for _ in range(400)]


def write(name, ways, texts, every, more):
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)  # whole strings: merges over all borders
    trainer = trainers.BpeTrainer(vocab_size=1200, min_frequency=2, show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tok.train_from_iterator(texts[::5] if every > 1 else texts, trainer)
    model = json.loads(tok.to_str())["model"]
    made = []
    for names, whole, form, cuts in ways:
        tok.model = models.BPE(vocab=model["vocab"], merges=[tuple(m) for m in model["merges"]], ignore_merges=whole)
        cut_by(tok, form, cuts)
        ids = {str(i): tok.encode(texts[i], add_special_tokens=False).ids for i in range(0, len(texts), every)}
        for other, (*_, other_cuts) in zip(made, ways):
            differ = sum(other["ids"][i] != ids[i] for i in ids)
            assert differ >= 2 or cuts == other_cuts, (names, other["names"], differ)
        made.append({"names": names, "ids": ids})
        print(names, sum(len(v) for v in ids.values()))
    vocab = sorted(model["vocab"], key=model["vocab"].get)
    rows = [f'"tokens":{json.dumps(vocab)}', f'"merges":{json.dumps([" ".join(m) for m in model["merges"]])}', *more]
    rows.append('"ways":[\n' + ",\n".join(json.dumps(way, separators=(",", ":"), sort_keys=True) for way in made) + "]")
    (DATA / "tokenizer" / name).write_text("{" + ",\n".join(rows) + "}\n")


def main():
    write("gguf_splits.json", WAYS, strings(), EVERY, [])
    write("gguf_splits_han.json", HAN_WAYS, han_strings(), 1, [f'"strings":{json.dumps(han_strings())}'])


if __name__ == "__main__":
    main()
