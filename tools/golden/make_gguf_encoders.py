#!/usr/bin/env python3
"""Models of tests/data/encoders as GGUF files, those of XLM-RoBERTa with a unigram tokenizer in their metadata.

Writes tests/data/gguf/<name>.gguf for two models of XLM-RoBERTa, which give vectors and scores, for two of Qwen3, and for EmbeddingGemma's kind.
Of the first two it writes <name>.json, too: texts or pairs with the ids of HF tokenizers and what HF transformers makes of them in
fp32. The golden.safetensors of tests/data/encoders hold for the files as well. Names and metadata are those of BertModel and XLMRobertaModel of llama.cpp's conversion/bert.py: the unused rows of
the table of positions are cut off, of the pooler there is nothing, all of a classifier is kept. Matrices stay in fp32.
"""

import json

from common import DATA, write_json
from make_encoders import DOCUMENTS, QUERY, TEXTS, pool, unigram
from make_unigram_goldens import add_unigram_metadata, train_small

import gguf
import numpy as np
import torch
from safetensors.numpy import load_file
from tokenizers import AddedToken, Tokenizer, normalizers
from transformers import AutoModel, AutoModelForSequenceClassification

torch.set_num_threads(1)
OUT = DATA / "gguf"
MORE_TEXTS = ["Ｆｕｌｌ　ｗｉｄｔｈ ﬁne…", "  two  spaces\tand a\nline ", "what</s>is <unk> this", "captured\u00a0once ▁ up"]


def with_charsmap(size, charsmap):
    """The tokenizer of make_encoders.py with SentencePiece's map in the place of NFKC, and its first `size` tokens."""
    tok = json.loads(unigram().to_str())
    tok["model"]["vocab"] = tok["model"]["vocab"][:size]
    tok = Tokenizer.from_str(json.dumps(tok))
    tok.normalizer = normalizers.Precompiled(charsmap)
    tok.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in ("<s>", "<pad>", "</s>", "<unk>")])
    return tok, tok.get_vocab_size()


def finish(w, name):
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    print(name, (OUT / f"{name}.gguf").stat().st_size // 1024, "KiB")


def write(name, config, tok, charsmap, pooling=None):
    layers, offset = config["num_hidden_layers"], config["pad_token_id"] + 1
    w = gguf.GGUFWriter(OUT / f"{name}.gguf", "bert")
    w.add_block_count(layers)
    w.add_context_length(config["max_position_embeddings"] - offset)
    w.add_embedding_length(config["hidden_size"])
    w.add_feed_forward_length(config["intermediate_size"])
    w.add_head_count(config["num_attention_heads"])
    w.add_layer_norm_eps(config["layer_norm_eps"])
    w.add_causal_attention(False)
    if pooling:
        w.add_pooling_type(pooling)
    vocab = json.loads(tok.to_str())["model"]["vocab"]
    add_unigram_metadata(w, [t for t, _ in vocab], [s for _, s in vocab], [3, 3, 3, 2] + [1] * (len(vocab) - 4), charsmap)
    w.add_token_type_count(config["type_vocab_size"])
    for what, token in (("bos", 0), ("eos", 2), ("unk", 3), ("sep", 2), ("pad", 1)):
        getattr(w, f"add_{what}_token_id")(token)
    for what in ("bos", "eos", "sep"):
        getattr(w, f"add_add_{what}_token")(True)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.BERT, layers)
    for key, data in load_file(DATA / "encoders" / name / "model.safetensors").items():
        module, leaf = key.removeprefix("roberta.").rsplit(".", 1)
        if module.startswith("pooler"):
            continue
        if module == "embeddings.position_embeddings":
            data = data[offset:]
        w.add_tensor(f"{names.get_name(module)}.{leaf}", np.ascontiguousarray(data, np.float32))
    finish(w, name)


def write_decoder(name, pooling, answers=None):
    """A decoder whose pooling the file names; without a tokenizer. A reranker has the rows of the head for its answers,
    and no other head (Qwen3Model of conversion/qwen.py)."""
    config = json.loads((DATA / "encoders" / name / "config.json").read_text())
    w = gguf.GGUFWriter(OUT / f"{name}.gguf", "qwen3")
    w.add_block_count(config["num_hidden_layers"])
    w.add_context_length(config["max_position_embeddings"])
    w.add_embedding_length(config["hidden_size"])
    w.add_feed_forward_length(config["intermediate_size"])
    w.add_head_count(config["num_attention_heads"])
    w.add_head_count_kv(config["num_key_value_heads"])
    w.add_key_length(config["head_dim"])
    w.add_value_length(config["head_dim"])
    w.add_layer_norm_rms_eps(config["rms_norm_eps"])
    w.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    w.add_pooling_type(pooling)
    if answers:
        w.add_classifier_output_labels(["yes", "no"])
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN3, config["num_hidden_layers"])
    for key, data in load_file(DATA / "encoders" / name / "model.safetensors").items():
        module, leaf = (key if key.startswith(("model.", "lm_head.")) else f"model.{key}").rsplit(".", 1)
        data = np.ascontiguousarray(data, np.float32)
        if answers and module == ("model.embed_tokens" if config["tie_word_embeddings"] else "lm_head"):
            w.add_tensor("cls.output.weight", data[answers])
        if answers and module == "lm_head":
            continue
        w.add_tensor(f"{names.get_name(module)}.{leaf}", data)
    finish(w, name)


def write_embedding_gemma(name):
    """Without a tokenizer. The window is that of config.json, norms hold 1 + weight, and the modules Dense are there (EmbeddingGemma of
    conversion/gemma.py with --sentence-transformers-dense-modules)."""
    folder = DATA / "encoders" / name
    config = json.loads((folder / "config.json").read_text())
    w = gguf.GGUFWriter(OUT / f"{name}.gguf", "gemma-embedding")
    w.add_block_count(config["num_hidden_layers"])
    w.add_context_length(config["max_position_embeddings"])
    w.add_embedding_length(config["hidden_size"])
    w.add_feed_forward_length(config["intermediate_size"])
    w.add_head_count(config["num_attention_heads"])
    w.add_head_count_kv(config["num_key_value_heads"])
    w.add_key_length(config["head_dim"])
    w.add_value_length(config["head_dim"])
    w.add_layer_norm_rms_eps(config["rms_norm_eps"])
    w.add_rope_freq_base(config["rope_parameters"]["full_attention"]["rope_theta"])
    w.add_sliding_window(config["sliding_window"])
    w.add_pooling_type(gguf.PoolingType.MEAN)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.GEMMA_EMBEDDING, config["num_hidden_layers"])
    for key, data in load_file(folder / "model.safetensors").items():
        module, leaf = f"model.{key}".rsplit(".", 1)
        shift = np.float32(1 if module.endswith("norm") else 0)
        w.add_tensor(f"{names.get_name(module)}.{leaf}", np.ascontiguousarray(data + shift, np.float32))
    for number in (2, 3):
        data = load_file(folder / f"{number}_Dense/model.safetensors")["linear.weight"]
        w.add_dense_features_dims(f"dense_{number}", data.shape[1], data.shape[0])
        w.add_tensor(f"{names.get_name(f'dense_{number}_out')}.weight", data)
    finish(w, name)


def main():
    write_embedding_gemma("gemma3_both_sides")
    write_decoder("qwen3_last", gguf.PoolingType.LAST)
    folder = DATA / "encoders/qwen3_yes_no"
    words = json.loads((folder / "config.json").read_text())["classifier_from_token"]
    vocab = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    write_decoder("qwen3_yes_no", gguf.PoolingType.RANK, [vocab[word] for word in reversed(words)])
    _, charsmap = train_small(True, True)
    folder = DATA / "encoders"
    name = "xlm_roberta_mean"
    config = json.loads((folder / name / "config.json").read_text())
    tok, size = with_charsmap(config["vocab_size"], charsmap)
    assert size == config["vocab_size"]
    net = AutoModel.from_pretrained(folder / name, attn_implementation="eager").float().eval()
    write(name, config, tok, charsmap, gguf.PoolingType.MEAN)
    with torch.no_grad():
        texts = []
        for text in TEXTS[:4] + MORE_TEXTS:
            ids = tok.encode(text).ids
            rows = net(input_ids=torch.tensor([ids])).last_hidden_state[0]
            texts.append({"text": text, "ids": ids, "embedding": [float(x) for x in pool(rows, "mean", True)]})
    write_json(OUT / f"{name}.json", texts, indent=None)

    name = "xlm_roberta_scores"
    config = json.loads((folder / name / "config.json").read_text())
    tok, size = with_charsmap(config["vocab_size"], charsmap)
    assert size == config["vocab_size"]
    net = AutoModelForSequenceClassification.from_pretrained(folder / name, attn_implementation="eager").float().eval()
    write(name, config, tok, charsmap)
    with torch.no_grad():
        pairs = []
        for document in DOCUMENTS[:2] + MORE_TEXTS:
            ids = tok.encode(QUERY, document).ids
            score = torch.sigmoid(net(input_ids=torch.tensor([ids])).logits[0, 0])
            pairs.append({"query": QUERY, "document": document, "ids": ids, "score": float(score)})
    write_json(OUT / f"{name}.json", pairs, indent=None)


if __name__ == "__main__":
    main()
