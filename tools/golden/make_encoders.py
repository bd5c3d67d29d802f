#!/usr/bin/env python3
"""Tiny random models that give vectors or scores, with what HF transformers makes of texts in fp32, pooled by hand.

    make_encoders.py [FOLDER OF MINILM]

Writes tests/data/encoders/<name>; see the README there. Made with the versions of requirements.txt; a second run gives
the same bytes.
"""

import json
import shutil
import string
import sys

from common import DATA, write_json

import numpy as np
import torch
import transformers
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import (BertConfig, BertForSequenceClassification, BertModel, Gemma3TextConfig, Gemma3TextModel, LlamaConfig, LlamaModel,
                          MistralConfig, MistralModel, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM, RobertaConfig, RobertaForSequenceClassification, RobertaModel,
                          XLMRobertaConfig, XLMRobertaForSequenceClassification, XLMRobertaModel)

torch.set_num_threads(1)
torch.use_deterministic_algorithms(True)
transformers.logging.set_verbosity_error()

OUT = DATA / "encoders"
LENGTHS = (1, 7, 33, 131)
TEXTS = ["A graph is captured once.", "", "Graphs, captured & replayed: 12 times!", "Überall gleiche Bits 文字 zzzz", "once " * 120]
QUERY, DOCUMENTS = "what is captured?", ["A graph is captured once.", "The sea is blue.", "once upon a time " * 40]
WORDS = ["a", "graph", "graphs", "is", "captured", "once", "replay", "##ed", "##s", "the", "sea", "blue", "what", "same", "bits", "yes", "no", "time",
         "##times", "up", "##on"]


def word_pieces():
    characters = string.ascii_lowercase + string.digits
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *string.punctuation, *characters, *("##" + c for c in characters)]
    tokens += [w for w in WORDS if w not in tokens]
    vocab = {t: i for i, t in enumerate(tokens)}
    tok = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]", max_input_chars_per_word=100))
    tok.normalizer = normalizers.BertNormalizer()
    tok.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tok.decoder = decoders.WordPiece()
    tok.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    tok.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1",
                                                       special_tokens=[("[CLS]", vocab["[CLS]"]), ("[SEP]", vocab["[SEP]"])])
    return tok


def unigram():
    """As XLM-RoBERTa has it: pieces of many scripts with scores; what is no piece is unknown."""
    characters = [c for c in dict.fromkeys("▁" + string.ascii_lowercase + string.ascii_uppercase + string.digits + string.punctuation + "äöüß文字") ]
    pieces = ["▁" + w for w in WORDS if not w.startswith("#")] + [w.strip("#") for w in WORDS if w.startswith("#")] + ["Über", "▁Bit", "glei"]
    pieces = ["ђ" if p in characters else p for p in pieces]  # no token twice, and the same numbers
    scored = [(p, -4 - 0.125 * i) for i, p in enumerate(pieces)] + [(c, -9 - 0.0625 * i) for i, c in enumerate(characters)]
    tok = Tokenizer(models.Unigram([("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)] + scored, unk_id=3))
    tok.normalizer = normalizers.NFKC()
    tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    tok.decoder = decoders.Metaspace()
    tok.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>"])
    tok.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    return tok


def randomise(net, seed, centre=1):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in sorted(net.named_parameters()):
            noise = torch.randn(p.shape, generator=generator)
            if p.dim() == 1:
                p.copy_((centre + 0.2 * noise) if "norm" in name.lower() and name.endswith("weight") else 0.2 * noise)
            else:
                p.copy_(noise * (1.0 if "embed" in name else 1.2 / p.shape[-1] ** 0.5))
    return net.float().eval()


def pool(rows, kind, normalise):
    vector = {"mean": rows.mean(0), "cls": rows[0], "lasttoken": rows[-1]}[kind]
    return vector / vector.norm().clamp_min(1e-12) if normalise else vector


def write_modules(folder, kind, normalise, dense=0, **more):
    kinds = ["Transformer", "Pooling"] + ["Dense"] * dense + (["Normalize"] if normalise else [])
    modules = [{"idx": i, "name": str(i), "path": "" if i == 0 else f"{i}_{k}", "type": f"sentence_transformers.models.{k}"} for i, k in enumerate(kinds)]
    write_json(folder / "modules.json", modules)
    (folder / "1_Pooling").mkdir()
    modes = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens", "lasttoken": "pooling_mode_lasttoken"}
    write_json(folder / "1_Pooling/config.json", {**{key: mode == kind for mode, key in modes.items()}, "pooling_mode_max_tokens": False})
    for name, content in more.items():
        write_json(folder / f"{name}.json", content)


def start(name, config):
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write_json(folder / "config.json", config)
    return folder


def finish(folder, tensors, golden):
    save_file({k: np.ascontiguousarray(v) for k, v in sorted(tensors.items())}, folder / "model.safetensors")
    save_file({k: np.ascontiguousarray(v) for k, v in sorted(golden.items())}, folder / "golden.safetensors")
    print(folder.name, sum(v.nbytes for v in tensors.values()) // 1024, "KB", flush=True)


def state(net, rename=lambda name: name):
    return {rename(k): v.numpy() for k, v in net.state_dict().items() if "position_ids" not in k and "token_type_ids" not in k}


def tokens_of(rng, n, vocab):
    return rng.integers(5, vocab, n).astype(np.int32)


def embedders():
    tok = word_pieces()
    bert = dict(vocab_size=tok.get_vocab_size(), hidden_size=60, num_hidden_layers=2, num_attention_heads=5, intermediate_size=70,
                max_position_embeddings=160)
    specs = [("bert_mean", BertModel, BertConfig(**bert), "mean", True), ("bert_cls_old", BertModel, BertConfig(**bert), "cls", False),
             ("roberta_mean", RobertaModel, RobertaConfig(vocab_size=97, hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=90,
                                                          max_position_embeddings=150, type_vocab_size=1), "mean", True)]
    many = unigram()
    specs.append(("xlm_roberta_mean", XLMRobertaModel, XLMRobertaConfig(vocab_size=many.get_vocab_size(), hidden_size=64, num_hidden_layers=2,
                                                                        num_attention_heads=2, intermediate_size=90, max_position_embeddings=150,
                                                                        type_vocab_size=1), "mean", True))
    with_texts = {"bert_mean": tok, "xlm_roberta_mean": many}
    for seed, (name, cls, config, kind, normalise) in enumerate(specs):
        config.architectures = [cls.__name__]
        config.dtype = "float32"
        config._attn_implementation = "eager"
        net = randomise(cls(config), 100 + seed)
        folder = start(name, config.to_dict())
        rng = np.random.default_rng(seed)
        golden = {}
        with torch.no_grad():
            for n in LENGTHS:
                ids = tokens_of(rng, n, config.vocab_size)
                rows = net(input_ids=torch.tensor(ids[None].astype(np.int64))).last_hidden_state[0]
                golden[f"tokens.{n}"], golden[f"pooled.{n}"] = ids, pool(rows, kind, normalise).numpy()
            if name in with_texts:
                with_texts[name].save(str(folder / "tokenizer.json"))
                texts = []
                for text in TEXTS:
                    ids = with_texts[name].encode(text).ids
                    if len(ids) > 100:
                        ids = ids[:99] + ids[-1:]
                    rows = net(input_ids=torch.tensor([ids])).last_hidden_state[0]
                    texts.append({"text": text, "ids": ids, "embedding": [float(x) for x in pool(rows, kind, normalise)]})
                write_json(folder / "texts.json", texts, indent=None)
        more = {"sentence_bert_config": {"max_seq_length": 100, "do_lower_case": False}} if name in with_texts else {}
        write_modules(folder, kind, normalise, **more)
        old = lambda k: "bert." + k.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        tensors = state(net, old if name.endswith("_old") else lambda k: k)
        if name.endswith("_old"):
            tensors["bert.embeddings.position_ids"] = np.arange(160, dtype=np.int64)[None]
        finish(folder, tensors, golden)


def scorers():
    tok = word_pieces()
    config = BertConfig(vocab_size=tok.get_vocab_size(), hidden_size=60, num_hidden_layers=2, num_attention_heads=5, intermediate_size=70,
                        max_position_embeddings=160, num_labels=1)
    roberta = RobertaConfig(vocab_size=97, hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=90, max_position_embeddings=150,
                            type_vocab_size=1, num_labels=1)
    xlm = XLMRobertaConfig(vocab_size=97, hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=90, max_position_embeddings=150,
                           type_vocab_size=1, num_labels=1)
    for seed, (name, cls, config) in enumerate((("bert_scores", BertForSequenceClassification, config),
                                                ("roberta_scores", RobertaForSequenceClassification, roberta),
                                                ("xlm_roberta_scores", XLMRobertaForSequenceClassification, xlm))):
        config.architectures = [cls.__name__]
        config.dtype = "float32"
        config._attn_implementation = "eager"
        net = randomise(cls(config), 200 + seed)
        folder = start(name, config.to_dict())
        rng = np.random.default_rng(50 + seed)
        golden = {}
        with torch.no_grad():
            for n in LENGTHS[1:]:
                ids = tokens_of(rng, n, config.vocab_size)
                second = n // 3 if name.startswith("bert") else n
                kinds = np.where(np.arange(n) >= second, 1, 0)
                logits = net(input_ids=torch.tensor(ids[None].astype(np.int64)), token_type_ids=torch.tensor(kinds[None])).logits
                golden[f"tokens.{n}"], golden[f"second.{n}"] = ids, np.array([second], np.int32)
                golden[f"pooled.{n}"] = torch.sigmoid(logits[0]).numpy()
            if name == "bert_scores":
                tok.save(str(folder / "tokenizer.json"))
                pairs = []
                for document in DOCUMENTS:
                    encoded = tok.encode(QUERY, document)
                    ids, kinds = encoded.ids, encoded.type_ids
                    if len(ids) > 160:
                        ids, kinds = ids[:159] + ids[-1:], kinds[:159] + kinds[-1:]
                    score = torch.sigmoid(net(input_ids=torch.tensor([ids]), token_type_ids=torch.tensor([kinds])).logits[0, 0])
                    pairs.append({"query": QUERY, "document": document, "ids": ids, "score": float(score)})
                write_json(folder / "pairs.json", pairs, indent=None)
        finish(folder, state(net), golden)


def decoders_of_vectors():
    for seed, (name, kind) in enumerate((("qwen3_last", "lasttoken"), ("qwen3_mean", "mean"), ("qwen3_yes_no", None))):
        tok = word_pieces()
        config = Qwen3Config(vocab_size=tok.get_vocab_size(), hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
                             intermediate_size=96, max_position_embeddings=256, tie_word_embeddings=True, pad_token_id=None)
        config.architectures = ["Qwen3ForCausalLM"]
        config.dtype = "float32"
        config._attn_implementation = "eager"
        net = randomise(Qwen3ForCausalLM(config), 300 + seed)
        written = config.to_dict()
        if kind is None:
            written["classifier_from_token"] = ["no", "yes"]
        folder = start(name, written)
        rng = np.random.default_rng(80 + seed)
        golden = {}
        with torch.no_grad():
            for n in LENGTHS:
                ids = tokens_of(rng, n, config.vocab_size)
                rows = net.model(input_ids=torch.tensor(ids[None].astype(np.int64))).last_hidden_state[0]
                golden[f"tokens.{n}"] = ids
                if kind:
                    golden[f"pooled.{n}"] = pool(rows, kind, True).numpy()
                else:
                    both = net.lm_head(rows[-1])[[tok.token_to_id("no"), tok.token_to_id("yes")]]
                    golden[f"pooled.{n}"] = torch.softmax(both, 0)[1:].numpy()
        if kind:
            write_modules(folder, kind, True, config_sentence_transformers={"prompts": {"query": "what is ", "document": ""}, "default_prompt_name": None})
        tok.save(str(folder / "tokenizer.json"))
        # Published embedding models are stored without their head.
        tensors = {k: v for k, v in state(net, (lambda k: k.removeprefix("model.")) if kind else (lambda k: k)).items() if not k.startswith("lm_head")}
        finish(folder, tensors, golden)


def dense_layers(seed, sizes, bias, tanh):
    """The layers of sentence-transformers' modules Dense, and what they make of a vector."""
    layers = [torch.nn.Linear(a, b, bias=bias) for a, b in zip(sizes, sizes[1:])]
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for layer in layers:
            layer.weight.copy_(torch.randn(layer.weight.shape, generator=generator) * 1.2 / layer.in_features**0.5)
            if bias:
                layer.bias.copy_(0.3 * torch.randn(layer.bias.shape, generator=generator))

    def through(vector):
        for layer in layers:
            vector = torch.tanh(layer(vector)) if tanh else layer(vector)
        return vector

    return layers, through


def write_dense(folder, layers, tanh):
    names = {True: "torch.nn.modules.activation.Tanh", False: "torch.nn.modules.linear.Identity"}
    for number, layer in enumerate(layers, 2):
        module = folder / f"{number}_Dense"
        module.mkdir()
        write_json(module / "config.json", {"in_features": layer.in_features, "out_features": layer.out_features, "bias": layer.bias is not None,
                                            "activation_function": names[tanh]})
        save_file({f"linear.{k}": v.detach().numpy() for k, v in layer.state_dict().items()}, module / "model.safetensors")


def of_both_sides():
    """Models whose rows see those behind them: EmbeddingGemma's kind, gte-Qwen2's, whose modeling code of its own is Qwen2 without the causal mask
    (here transformers' Qwen2 with is_causal false), NVIDIA's LlamaBidirectionalModel (here transformers' Llama with is_causal false, written with its
    names), a Mistral with a window on both sides, and a BERT with a layer behind its pooling."""
    gemma = Gemma3TextConfig(vocab_size=97, hidden_size=24, num_hidden_layers=7, num_attention_heads=6, num_key_value_heads=2, head_dim=12,
                             intermediate_size=20, max_position_embeddings=256, query_pre_attn_scalar=12, sliding_window=24,
                             use_bidirectional_attention=True, pad_token_id=None,
                             rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": 1e6},
                                              "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}})
    qwen = Qwen2Config(vocab_size=97, hidden_size=60, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2, intermediate_size=50,
                       max_position_embeddings=256, is_causal=False, tie_word_embeddings=True, pad_token_id=None)
    mistral = MistralConfig(vocab_size=97, hidden_size=24, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=14,
                            intermediate_size=30, max_position_embeddings=256, sliding_window=20, is_causal=False, pad_token_id=None)
    llama = LlamaConfig(vocab_size=97, hidden_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=30,
                        max_position_embeddings=256, is_causal=False, pad_token_id=None)
    bert = BertConfig(vocab_size=97, hidden_size=60, num_hidden_layers=1, num_attention_heads=5, intermediate_size=70, max_position_embeddings=160)
    specs = [("gemma3_both_sides", Gemma3TextModel, gemma, "mean", True, 0, (1, 7, 131, 203), (24, 40, 24), False),
             ("qwen2_both_sides", Qwen2ForCausalLM, qwen, "lasttoken", True, 1, LENGTHS, None, False),
             ("mistral_both_sides", MistralModel, mistral, "mean", False, 1, LENGTHS[1:], None, False),
             ("llama_bidirectional", LlamaModel, llama, "mean", True, 1, LENGTHS[1:], None, False),
             ("bert_dense", BertModel, bert, "cls", False, 1, LENGTHS[1:], (60, 37), True)]
    for seed, (name, cls, config, kind, normalise, centre, lengths, sizes, tanh) in enumerate(specs):
        config.architectures = [cls.__name__]
        config.dtype = "float32"
        config._attn_implementation = "eager"
        net = randomise(cls(config), 400 + seed, centre)
        layers, through = dense_layers(450 + seed, sizes or (), bias=tanh, tanh=tanh)
        written = config.to_dict()
        if name == "llama_bidirectional":
            del written["is_causal"]
            written |= {"architectures": ["LlamaBidirectionalModel"], "model_type": "llama_bidirec", "pooling": "avg", "temperature": 1.0}
        folder = start(name, written)
        rng = np.random.default_rng(120 + seed)
        golden = {}
        body = net.model if name.startswith("qwen") else net
        with torch.no_grad():
            for n in lengths:
                ids = tokens_of(rng, n, config.vocab_size)
                rows = body(input_ids=torch.tensor(ids[None].astype(np.int64))).last_hidden_state[0]
                vector = through(pool(rows, kind, False))
                golden[f"tokens.{n}"] = ids
                golden[f"pooled.{n}"] = (vector / vector.norm() if normalise else vector).numpy()
        if name != "llama_bidirectional":
            write_modules(folder, kind, normalise, dense=len(layers))
        write_dense(folder, layers, tanh)
        tensors = {k: v for k, v in state(net, lambda k: k.removeprefix("model.")).items() if not k.startswith("lm_head")}
        finish(folder, tensors, golden)


def minilm(folder):
    """The published model, from a folder that `reprise pull minilm` stored."""
    tok = Tokenizer.from_file(f"{folder}/tokenizer.json")
    tok.no_padding()
    tok.no_truncation()
    net = BertModel.from_pretrained(folder, attn_implementation="eager").float().eval()
    out = []
    for text in ("A man is eating food.", "A man is eating a piece of bread.", "The girl is carrying a baby.", "Ein Graph wird einmal aufgezeichnet.",
                 "graph replay " * 60):
        ids = tok.encode(text).ids
        with torch.no_grad():
            rows = net(input_ids=torch.tensor([ids])).last_hidden_state[0]
        out.append({"text": text, "ids": ids, "embedding": [round(float(x), 7) for x in pool(rows, "mean", True)]})
    write_json(OUT / "minilm.json", out, indent=None)


def main():
    embedders()
    scorers()
    decoders_of_vectors()
    of_both_sides()
    if len(sys.argv) > 1:
        minilm(sys.argv[1])


if __name__ == "__main__":
    sys.exit(main())
