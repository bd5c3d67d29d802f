"""SmolLM2 from its GGUF file: an HF tokenizer object, the chat template, the HF model in fp32."""

import gguf
import numpy as np

from common import smollm2_gguf

SPECIAL, USER_DEFINED = 3, 4


class SmolLM2:
    def __init__(self):
        self.path = smollm2_gguf()
        self.reader = gguf.GGUFReader(self.path)

    def field(self, key):
        return self.reader.fields[key].contents()

    def chat_template(self):
        return self.field("tokenizer.chat_template")

    def tokenizer(self):
        """As SmolLM2's published tokenizer.json: BPE, single digits split off, then GPT-2's byte-level pre-tokenizer."""
        from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

        assert self.field("tokenizer.ggml.model") == "gpt2" and self.field("tokenizer.ggml.pre") == "smollm"
        tokens = self.field("tokenizer.ggml.tokens")
        types = self.field("tokenizer.ggml.token_type")
        merges = [tuple(m.split(" ")) for m in self.field("tokenizer.ggml.merges")]
        tok = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
        tok.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]
        )
        tok.decoder = decoders.ByteLevel()
        tok.add_special_tokens([AddedToken(t, special=True, normalized=False) for t, k in zip(tokens, types) if k == SPECIAL])
        tok.add_tokens([AddedToken(t, normalized=False) for t, k in zip(tokens, types) if k == USER_DEFINED])
        assert tok.get_vocab_size() == len(tokens)
        return tok

    def model(self):
        import torch
        from transformers import AutoModelForCausalLM, LlamaConfig

        get = lambda k: self.field("llama." + k)
        heads, kv = get("attention.head_count"), get("attention.head_count_kv")
        config = LlamaConfig(
            vocab_size=get("vocab_size"), hidden_size=get("embedding_length"), intermediate_size=get("feed_forward_length"),
            num_hidden_layers=get("block_count"), num_attention_heads=heads, num_key_value_heads=kv,
            max_position_embeddings=get("context_length"), rms_norm_eps=get("attention.layer_norm_rms_epsilon"),
            rope_parameters={"rope_type": "default", "rope_theta": get("rope.freq_base")}, tie_word_embeddings=True,
            bos_token_id=self.field("tokenizer.ggml.bos_token_id"), eos_token_id=self.field("tokenizer.ggml.eos_token_id"),
        )
        assert config.head_dim == get("rope.dimension_count")
        per_block = {
            "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
            "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
        }
        state = {}
        for t in self.reader.tensors:
            shape = tuple(int(d) for d in reversed(t.shape))
            w = np.ascontiguousarray(gguf.dequantize(t.data, t.tensor_type), dtype=np.float32).reshape(shape)
            part = t.name.split(".")
            if part[0] == "blk":
                if part[2] in ("attn_q", "attn_k"):  # undo the row order of interleaved rotation
                    n = heads if part[2] == "attn_q" else kv
                    w = w.reshape(n, shape[0] // n // 2, 2, shape[1]).swapaxes(1, 2).reshape(shape)
                name = f"model.layers.{part[1]}.{per_block[part[2]]}.weight"
            else:
                name = {"token_embd": "model.embed_tokens.weight", "output_norm": "model.norm.weight"}[part[0]]
            state[name] = torch.from_numpy(np.ascontiguousarray(w))
        net = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32)
        missing, unexpected = net.load_state_dict(state, strict=False)
        assert missing == ["lm_head.weight"] and not unexpected, (missing, unexpected)
        net.tie_weights()
        return net.eval()
