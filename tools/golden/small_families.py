"""Rows of make_tiny_models.py: families that differ from Llama by small ops. Sizes are odd, layers are a period of the
pattern and one more; post_norm makes branches that end in a norm small beside the residual, as roundings to bf16 grow
with them; `without` says what must move the logits when it is left out."""

from transformers import (Cohere2Config, CohereConfig, Ernie4_5_MoeConfig, Ernie4_5Config, Exaone4Config, Gemma2Config, Gemma3Config,
                          Gemma3TextConfig, Glm4Config, Glm4MoeConfig, GptOssConfig, GraniteConfig, GraniteMoeConfig, HunYuanDenseV1Config,
                          LlamaConfig, MiniMaxM2Config, Mistral3Config, Olmo2Config, Olmo3Config, Phi3Config, Qwen3_5MoeConfig,
                          Qwen3_5TextConfig, Qwen3NextConfig, SeedOssConfig, SmolLM3Config, Starcoder2Config)

LONG = (1, 7, 131, 203)


def plain(theta=10000.0, **more):
    return {"rope_type": "default", "rope_theta": theta, **more}


def by_type(full, sliding):
    return {"full_attention": full, "sliding_attention": sliding}


VISION = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=14)
# Layers with a gated delta rule: what must matter of them.
WITHOUT_DELTA = {
    "decay": lambda net: [p.fill_(-30) for n, p in net.named_parameters() if n.endswith(".A_log")],
    "time_bias": lambda net: [p.zero_() for n, p in net.named_parameters() if n.endswith(".dt_bias")],
    "earlier_rows": lambda net: [p[..., :-1].zero_() for n, p in net.named_parameters() if n.endswith(".conv1d.weight")],
    "norm_of_heads": lambda net: [p.fill_(1) for n, p in net.named_parameters() if n.endswith(".linear_attn.norm.weight")],
    "full_layers": lambda net: [p.zero_() for n, p in net.named_parameters() if n.endswith(".self_attn.o_proj.weight")],
}

FAMILIES = [
    dict(cls=Gemma2Config, name="gemma2", post_norm=0.4, seed=100, style="old", lengths=LONG, vocab_size=149, hidden_size=42, intermediate_size=53,
         num_attention_heads=6, num_key_value_heads=2, head_dim=12, num_hidden_layers=3, sliding_window=24,
         query_pre_attn_scalar=12, attn_logit_softcapping=6.0, final_logit_softcapping=20.0, rope=plain(), pad_token_id=0,
         without={"score_cap": {"attn_logit_softcapping": None}, "logit_cap": {"final_logit_softcapping": None},
                  "window": {"layer_types": ["full_attention"] * 3}}),
    dict(cls=Gemma3TextConfig, name="gemma3", post_norm=0.4, seed=101, lengths=LONG, vocab_size=151, hidden_size=42, intermediate_size=50,
         num_attention_heads=3, num_key_value_heads=1, head_dim=14, num_hidden_layers=7, sliding_window=24,
         query_pre_attn_scalar=9, pad_token_id=0,
         rope=by_type({"rope_type": "linear", "rope_theta": 1000000.0, "factor": 8.0}, plain()),
         without={"local": {"rope_parameters": by_type({"rope_type": "linear", "rope_theta": 1000000.0, "factor": 8.0}, plain(1000000.0))},
                  "global": {"rope_parameters": by_type(plain(), plain())},
                  "window": {"layer_types": ["sliding_attention"] * 7}}),
    dict(cls=Gemma3TextConfig, name="gemma3_old", post_norm=0.4, seed=102, style="old", store="f32", lengths=LONG, vocab_size=139, hidden_size=36,
         intermediate_size=45, num_attention_heads=2, num_key_value_heads=1, head_dim=20, num_hidden_layers=7, sliding_window=24,
         query_pre_attn_scalar=20, final_logit_softcapping=25.0, pad_token_id=0, rope=by_type(plain(1000000.0), plain())),
    dict(cls=Phi3Config, name="phi3_partial", seed=103, style="old", lengths=LONG, vocab_size=157, hidden_size=48, intermediate_size=59,
         num_attention_heads=3, num_key_value_heads=1, sliding_window=100, rope=plain(partial_rotary_factor=0.75), pad_token_id=0,
         tie_word_embeddings=True, without={"rotation": {"rope_parameters": plain(partial_rotary_factor=1.0)},
                                            "window": {"sliding_window": None}}),
    dict(cls=Phi3Config, name="phi3_longrope", seed=104, lengths=(1, 7, 131, 160), beyond=(161, 203),
         vocab_size=149, hidden_size=40, intermediate_size=51, num_attention_heads=5,
         num_key_value_heads=5, original_max_position_embeddings=160, pad_token_id=0,
         rope={"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0, 1.5, 2.25, 4.0],
               "long_factor": [1.0, 3.0, 9.0, 27.0], "partial_rotary_factor": 1.0, "original_max_position_embeddings": 160}),
    dict(cls=Glm4Config, name="glm4", seed=105, vocab_size=163, hidden_size=45, intermediate_size=57, num_attention_heads=6,
         num_key_value_heads=2, head_dim=12, rope=plain(partial_rotary_factor=0.5), pad_token_id=0,
         without={"part": {"rope_parameters": plain(partial_rotary_factor=1.0)}}),
    dict(cls=Glm4MoeConfig, name="glm4_moe", seed=106, style="old", gain=0.8, lengths=(1, 7, 61), vocab_size=151, hidden_size=44, intermediate_size=55,
         num_attention_heads=6, num_key_value_heads=3, head_dim=12, num_hidden_layers=3, moe_intermediate_size=18, n_routed_experts=10,
         num_experts_per_tok=3, n_shared_experts=2, routed_scaling_factor=1.7, use_qk_norm=True, attention_bias=True,
         rope=plain(partial_rotary_factor=0.5), pad_token_id=0, clear_choice=True),
    dict(cls=Olmo2Config, name="olmo2", post_norm=0.4, seed=107, vocab_size=149, hidden_size=48, intermediate_size=55, num_attention_heads=6,
         num_key_value_heads=2, rope=plain(500000.0), pad_token_id=0),
    dict(cls=Olmo3Config, name="olmo3", post_norm=0.25, seed=108, lengths=LONG, vocab_size=139, hidden_size=40, intermediate_size=51, num_attention_heads=5,
         num_key_value_heads=5, num_hidden_layers=5, sliding_window=24, pad_token_id=0,
         rope=by_type({"rope_type": "yarn", "rope_theta": 500000.0, "factor": 8.0, "original_max_position_embeddings": 64,
                       "attention_factor": 1.2079, "beta_fast": 32.0, "beta_slow": 1.0}, plain(500000.0)),
         without={"scaling": {"rope_parameters": by_type(plain(500000.0), plain(500000.0))},
                  "window": {"layer_types": ["full_attention"] * 5}}),
    dict(cls=Olmo3Config, name="olmo3_old", post_norm=0.4, seed=109, style="old", vocab_size=131, hidden_size=36, intermediate_size=47,
         num_attention_heads=3, num_key_value_heads=1, num_hidden_layers=5, sliding_window=24, pad_token_id=0,
         rope=by_type({"rope_type": "yarn", "rope_theta": 500000.0, "factor": 4.0, "original_max_position_embeddings": 64,
                       "attention_factor": 1.3}, plain(500000.0))),
    dict(cls=GraniteConfig, name="granite", seed=110, style="old", vocab_size=157, hidden_size=45, intermediate_size=58,
         num_attention_heads=3, num_key_value_heads=1, head_dim=14, rope=plain(), pad_token_id=0, embedding_multiplier=6.0,
         attention_multiplier=0.5, residual_multiplier=0.6, logits_scaling=3.0, mlp_bias=True, tie_word_embeddings=True,
         without={"embedding": {"embedding_multiplier": 1.0}, "attention": {"attention_multiplier": 0.05},
                  "residual": {"residual_multiplier": 1.0}, "logits": {"logits_scaling": 1.0}}),
    dict(cls=GraniteMoeConfig, name="granite_moe", seed=111, lengths=(1, 7, 61), vocab_size=149, hidden_size=48, intermediate_size=27,
         num_attention_heads=4, num_key_value_heads=2, rope=plain(), pad_token_id=0, embedding_multiplier=5.0,
         attention_multiplier=0.2, residual_multiplier=0.7, logits_scaling=2.0, num_local_experts=7, num_experts_per_tok=3),
    dict(cls=SmolLM3Config, name="smollm3", seed=112, style="old", vocab_size=163, hidden_size=42, intermediate_size=53,
         num_attention_heads=3, num_key_value_heads=1, num_hidden_layers=5, rope=plain(50000.0), pad_token_id=0,
         without={"positions": {"no_rope_layers": [1, 1, 1, 1, 1]}}),
    dict(cls=CohereConfig, name="cohere", seed=113, style="old", vocab_size=157, hidden_size=54, intermediate_size=61,
         num_attention_heads=3, num_key_value_heads=1, rope=plain(), pad_token_id=0, logit_scale=0.25, use_qk_norm=True,
         attention_bias=True, without={"logits": {"logit_scale": 1.0}}),
    dict(cls=Cohere2Config, name="cohere2", seed=114, lengths=LONG, vocab_size=149, hidden_size=40, intermediate_size=47,
         num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=5, sliding_window=24, rope=plain(50000.0), pad_token_id=0,
         logit_scale=0.5, without={"window": {"sliding_window": 500}}),
    dict(cls=Starcoder2Config, name="starcoder2", seed=115, style="old", lengths=LONG, vocab_size=151, hidden_size=48,
         intermediate_size=57, num_attention_heads=4, num_key_value_heads=2, sliding_window=40, rope=plain(), pad_token_id=0,
         without={"window": {"sliding_window": None}}),
    dict(cls=Exaone4Config, name="exaone4_window", post_norm=0.4, seed=116, lengths=LONG, vocab_size=139, hidden_size=42, intermediate_size=53,
         num_attention_heads=6, num_key_value_heads=2, head_dim=10, num_hidden_layers=5, sliding_window=24, rope=plain(1000000.0),
         pad_token_id=0, layer_types=["sliding_attention"] * 3 + ["full_attention", "sliding_attention"],
         without={"window": {"layer_types": ["full_attention"] * 5}}),
    dict(cls=Exaone4Config, name="exaone4_full", post_norm=0.4, seed=117, vocab_size=139, hidden_size=42, intermediate_size=53,
         num_attention_heads=3, num_key_value_heads=3, sliding_window=None, rope=plain(1000000.0), pad_token_id=0,
         layer_types=["full_attention"] * 2, tie_word_embeddings=True),
    dict(cls=Ernie4_5Config, name="ernie", seed=118, style="old", vocab_size=157, hidden_size=45, intermediate_size=55,
         num_attention_heads=6, num_key_value_heads=2, head_dim=14, rope=plain(500000.0), pad_token_id=0, use_bias=True),
    dict(cls=Ernie4_5_MoeConfig, name="ernie_moe", seed=119, lengths=(1, 7, 61), vocab_size=149, hidden_size=48, intermediate_size=57,
         num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=4, rope=plain(500000.0), pad_token_id=0,
         moe_intermediate_size=19, moe_k=3, moe_num_experts=8, moe_num_shared_experts=1, moe_layer_start_index=1,
         moe_layer_end_index=2, bias_scale=0.05, clear_choice=True),
    dict(cls=SeedOssConfig, name="seed_oss", seed=120, vocab_size=151, hidden_size=42, intermediate_size=53, num_attention_heads=5,
         num_key_value_heads=1, head_dim=12, rope=plain(10000000.0), pad_token_id=0, attention_out_bias=True),
    dict(cls=HunYuanDenseV1Config, name="hunyuan", seed=121, style="old", vocab_size=151, hidden_size=42, intermediate_size=53,
         num_attention_heads=3, num_key_value_heads=1, head_dim=14, pad_token_id=0, tie_word_embeddings=True,
         rope={"rope_type": "dynamic", "rope_theta": 10000.0, "alpha": 1000.0, "factor": 1.0}),
    dict(cls=MiniMaxM2Config, name="minimax_m2", seed=122, gain=0.8, lengths=(1, 7, 61), vocab_size=149, hidden_size=48, intermediate_size=21,
         num_attention_heads=6, num_key_value_heads=2, head_dim=12, num_local_experts=9, num_experts_per_tok=4,
         rope=plain(5000000.0, partial_rotary_factor=0.5), pad_token_id=0, clear_choice=True),
    # What gpt-oss computes: transformers 5.23.0, models/gpt_oss/modeling_gpt_oss.py: experts with biases, whose gate and up take turns in
    # columns, lines 67-113 (clamps 83-84, alpha 85, up + 1 86); softmax over the chosen logits of a router with a bias, 125-129; rotation by
    # halves, 207-215; sinks, one more score whose share is dropped, 243-251; configuration_gpt_oss.py: even layers slide, 83-86; YaRN without
    # truncation, 88-96. Weights of experts are [experts, in, out].
    dict(cls=GptOssConfig, name="gpt_oss", seed=126, style="old", gain=1.0, lengths=LONG, vocab_size=151, hidden_size=44, intermediate_size=27,
         num_attention_heads=6, num_key_value_heads=2, head_dim=20, num_hidden_layers=3, sliding_window=24, num_local_experts=5,
         num_experts_per_tok=3, swiglu_limit=1.25, swiglu_alpha=1.9, pad_token_id=0,
         rope={"rope_type": "yarn", "rope_theta": 150000.0, "factor": 32.0, "original_max_position_embeddings": 64, "beta_fast": 32.0,
               "beta_slow": 1.0, "truncate": False},
         without={"window": {"layer_types": ["full_attention"] * 3}, "limit": {"swiglu_limit": 100.0}, "alpha": {"swiglu_alpha": 0.5},
                  "sinks": lambda net: [layer.self_attn.sinks.fill_(-1e4) for layer in net.model.layers],
                  "biases": lambda net: [layer.mlp.experts.gate_up_proj_bias.zero_() for layer in net.model.layers]}),
    # Three layers of four have a state for each sequence: transformers 5.23.0, models/qwen3_next/modeling_qwen3_next.py: convolution and
    # SiLU, lines 319-360; the gated delta rule in chunks of 64, 370-506, and row by row, 512-578; projections with queries, keys, values
    # and gates of a key head beside each other, 634-666; the norm of heads before the gate, 58-74; attention behind a gate, 229-303.
    # models/qwen3_5 has the projections apart from each other (499-656) and positions in three rows, equal for text (134-200).
    dict(cls=Qwen3NextConfig, name="qwen3_next", seed=130, style="old", recurrent=True, gain=0.6, vocab_size=151, hidden_size=44,
         intermediate_size=37, num_attention_heads=6, num_key_value_heads=2, head_dim=24, num_hidden_layers=5, linear_num_key_heads=2,
         linear_num_value_heads=6, linear_key_head_dim=12, linear_value_head_dim=20, linear_conv_kernel_dim=4, num_experts=7,
         num_experts_per_tok=3, moe_intermediate_size=19, shared_expert_intermediate_size=23, mlp_only_layers=[1], pad_token_id=0,
         rope=plain(10000000.0, partial_rotary_factor=0.25), without=WITHOUT_DELTA),
    dict(cls=Qwen3_5TextConfig, name="qwen3_5", seed=131, recurrent=True, lengths=LONG, vocab_size=157, hidden_size=42,
         intermediate_size=53, num_attention_heads=3, num_key_value_heads=1, head_dim=16, num_hidden_layers=5, linear_num_key_heads=2,
         linear_num_value_heads=4, linear_key_head_dim=36, linear_value_head_dim=34, linear_conv_kernel_dim=4, tie_word_embeddings=True,
         pad_token_id=0, rope=plain(10000000.0, partial_rotary_factor=0.5, mrope_section=[2, 1, 1], mrope_interleaved=True),
         without=WITHOUT_DELTA),
    dict(cls=Qwen3_5MoeConfig, name="qwen3_5_moe_text_of_images", seed=132, recurrent=True, gain=0.6,
         rope=plain(10000000.0, partial_rotary_factor=0.25), tie_word_embeddings=False,
         vision_config=dict(depth=1, hidden_size=16, intermediate_size=24, num_heads=2, patch_size=14, out_hidden_size=44,
                            num_position_embeddings=16),
         text_config=dict(model_type="qwen3_5_moe_text", vocab_size=149, hidden_size=44, num_hidden_layers=5, num_attention_heads=4,
                          num_key_value_heads=2, head_dim=24, linear_num_key_heads=3, linear_num_value_heads=3, linear_key_head_dim=16,
                          linear_value_head_dim=8, linear_conv_kernel_dim=3, num_experts=9, num_experts_per_tok=4,
                          moe_intermediate_size=17, shared_expert_intermediate_size=21, max_position_embeddings=512,
                          tie_word_embeddings=False, pad_token_id=0, bos_token_id=1, eos_token_id=2,
                          rope_parameters=plain(10000000.0, partial_rotary_factor=0.25, mrope_section=[1, 1, 1], mrope_interleaved=True))),
    # Architectures that are Llama or Mistral, or their text model.
    dict(cls=LlamaConfig, name="falcon3", seed=123, style="old", vocab_size=151, hidden_size=42, intermediate_size=61,
         num_attention_heads=3, num_key_value_heads=1, head_dim=26, rope=plain(1000042.0)),
    dict(cls=Mistral3Config, name="mistral_small3", seed=124, rope=plain(1000000000.0), tie_word_embeddings=False,
         vision_config=dict(model_type="pixtral", head_dim=8, **VISION),
         text_config=dict(model_type="mistral", vocab_size=149, hidden_size=42, intermediate_size=55, num_hidden_layers=2,
                          num_attention_heads=3, num_key_value_heads=1, head_dim=18, max_position_embeddings=512, sliding_window=None,
                          tie_word_embeddings=False, rope_parameters=plain(1000000000.0), bos_token_id=1, eos_token_id=2)),
    dict(cls=Gemma3Config, name="gemma3_text_of_images", post_norm=0.4, seed=125, rope=by_type(plain(1000000.0), plain()),
         mm_tokens_per_image=4,
         vision_config=dict(model_type="siglip_vision_model", **VISION),
         text_config=dict(model_type="gemma3_text", vocab_size=149, hidden_size=42, intermediate_size=50, num_hidden_layers=7,
                          num_attention_heads=3, num_key_value_heads=1, head_dim=14, max_position_embeddings=512, sliding_window=24,
                          query_pre_attn_scalar=14, rope_parameters=by_type(plain(1000000.0), plain()), pad_token_id=0,
                          bos_token_id=1, eos_token_id=2)),
]
