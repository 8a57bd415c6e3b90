#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the tiny random models of this folder and what Hugging Face transformers computes with them.

    python3 -m venv venv && venv/bin/pip install torch==2.15.0 transformers==5.23.0
    venv/bin/python tests/cases/models/make_references.py

Same versions, same files, byte for byte. README.md describes them.
"""

import copy
import json
import pathlib
import shutil

import torch
from safetensors.torch import load_file, save_file
from transformers import (AutoModelForCausalLM, Gemma2Config, Gemma3TextConfig, Glm4MoeConfig, GptOssConfig, GraniteConfig, LlamaConfig,
                          MistralConfig, MixtralConfig, Olmo2Config, Phi3Config, Qwen2Config, Qwen3Config, Qwen3MoeConfig,
                          SmolLM3Config)
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

HERE = pathlib.Path(__file__).resolve().parent
PROMPT_LENGTHS = (1, 7, 40, 100)
NUM_GREEDY = 16

COMMON = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
              vocab_size=304, max_position_embeddings=256, rms_norm_eps=1e-3, bos_token_id=1, eos_token_id=2)

# name -> (configuration, storage dtype, largest shard, generation settings)
MODELS = {
    "llama": (LlamaConfig(**COMMON), torch.bfloat16, "1GB", {}),
    "llama-llama3-tied": (
        LlamaConfig(**{**COMMON, "vocab_size": 301, "intermediate_size": 112, "tie_word_embeddings": True,
                       "rms_norm_eps": 1e-5, "eos_token_id": [2, 5]},
                    rope_parameters=dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0,
                                         high_freq_factor=4.0, original_max_position_embeddings=32)),
        torch.bfloat16, "1GB", dict(do_sample=True, temperature=0.6, top_p=0.9)),
    "llama-linear-bias": (
        LlamaConfig(**{**COMMON, "attention_bias": True},
                    rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=4.0)),
        torch.float32, "1GB", {}),
    "llama-yarn": (
        LlamaConfig(**{**COMMON, "num_key_value_heads": 1, "head_dim": 32},
                    rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, beta_fast=16.0,
                                         original_max_position_embeddings=64)),
        torch.float16, "1GB", {}),
    "mistral-window": (
        MistralConfig(**{**COMMON, "head_dim": 32, "vocab_size": 299}, sliding_window=20),
        torch.bfloat16, "1GB", {}),
    "qwen2": (
        Qwen2Config(**{**COMMON, "intermediate_size": 112, "tie_word_embeddings": True},
                    rope_parameters=dict(rope_type="default", rope_theta=1000000.0)),
        torch.bfloat16, "1GB", dict(do_sample=True, temperature=0.7, top_k=20, top_p=0.8, repetition_penalty=1.05)),
    "qwen2-mixed-window-sharded": (
        Qwen2Config(**{**COMMON, "num_hidden_layers": 4, "vocab_size": 307}, use_sliding_window=True,
                    sliding_window=23, max_window_layers=2),
        torch.bfloat16, "120KB", {}),
    "qwen3": (
        Qwen3Config(**{**COMMON, "head_dim": 32, "num_hidden_layers": 3, "rms_norm_eps": 1e-4},
                    rope_parameters=dict(rope_type="default", rope_theta=1000000.0)),
        torch.bfloat16, "1GB", {}),
    "gemma2": (
        Gemma2Config(**{**COMMON, "head_dim": 32, "num_hidden_layers": 4}, query_pre_attn_scalar=24, sliding_window=20,
                     attn_logit_softcapping=3.0, final_logit_softcapping=4.0),
        torch.bfloat16, "1GB", {}),
    "gemma2-untied": (
        Gemma2Config(**{**COMMON, "hidden_size": 100, "head_dim": 24, "num_key_value_heads": 4, "num_hidden_layers": 3,
                        "tie_word_embeddings": False}, attention_bias=True, sliding_window=9,
                     attn_logit_softcapping=None, final_logit_softcapping=None,
                     layer_types=["full_attention", "sliding_attention", "sliding_attention"]),
        torch.float32, "1GB", {}),
    "gemma3": (
        Gemma3TextConfig(**{**COMMON, "head_dim": 32, "num_hidden_layers": 7}, query_pre_attn_scalar=24,
                         sliding_window=20),
        torch.bfloat16, "1GB", {}),
    "gemma3-linear": (
        Gemma3TextConfig(**{**COMMON, "head_dim": 16, "num_key_value_heads": 1, "num_hidden_layers": 3},
                         query_pre_attn_scalar=16, sliding_window=11,
                         sliding_window_pattern=2,
                         rope_parameters=dict(full_attention=dict(rope_type="linear", rope_theta=5e5, factor=8.0),
                                              sliding_attention=dict(rope_type="default", rope_theta=1e3))),
        torch.bfloat16, "1GB", {}),
    "granite": (
        GraniteConfig(**COMMON, attention_multiplier=0.1, embedding_multiplier=6.0, residual_multiplier=0.22,
                      logits_scaling=0.7),
        torch.bfloat16, "1GB", {}),
    "granite-bias": (
        GraniteConfig(**{**COMMON, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True,
                         "num_key_value_heads": None},
                      attention_multiplier=0.3, embedding_multiplier=0.5, residual_multiplier=1.5, logits_scaling=2.0),
        torch.float16, "1GB", {}),
    "phi3": (
        Phi3Config(**COMMON, sliding_window=20, original_max_position_embeddings=256, pad_token_id=0),
        torch.bfloat16, "1GB", {}),
    "phi3-longrope": (  # texts are longer than the original length, so that transformers takes the long factors
        Phi3Config(**{**COMMON, "num_attention_heads": 2, "num_key_value_heads": 1}, pad_token_id=0,
                   original_max_position_embeddings=8,
                   rope_parameters=dict(rope_type="longrope", rope_theta=10000.0, partial_rotary_factor=0.75,
                                        short_factor=[1.0 + 0.1 * i for i in range(12)],
                                        long_factor=[1.0 + 0.4 * i for i in range(12)])),
        torch.bfloat16, "1GB", {}),
    "smollm3": (
        SmolLM3Config(**{**COMMON, "num_hidden_layers": 5}, pad_token_id=0),
        torch.bfloat16, "1GB", {}),
    "smollm3-listed": (
        SmolLM3Config(**{**COMMON, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": False},
                      pad_token_id=0, no_rope_layers=[0, 1],
                      rope_parameters=dict(rope_type="default", rope_theta=1000.0)),
        torch.bfloat16, "1GB", {}),
    "mixtral": (
        MixtralConfig(**COMMON, num_local_experts=4, num_experts_per_tok=2),
        torch.bfloat16, "1GB", {}),
    "mixtral-window": (
        MixtralConfig(**{**COMMON, "intermediate_size": 48, "head_dim": 32}, num_local_experts=6,
                      num_experts_per_tok=3, sliding_window=20),
        torch.float32, "1GB", {}),
    "qwen3-moe": (
        Qwen3MoeConfig(**{**COMMON, "head_dim": 32}, moe_intermediate_size=32, num_experts=8, num_experts_per_tok=3,
                       norm_topk_prob=True),
        torch.bfloat16, "1GB", {}),
    "qwen3-moe-mixed": (
        Qwen3MoeConfig(**{**COMMON, "num_hidden_layers": 4}, moe_intermediate_size=20, num_experts=5,
                       num_experts_per_tok=2, norm_topk_prob=False, decoder_sparse_step=2, mlp_only_layers=[1],
                       rope_parameters=dict(rope_type="default", rope_theta=1000000.0)),
        torch.bfloat16, "1GB", {}),
    "glm4-moe": (
        Glm4MoeConfig(**{**COMMON, "num_hidden_layers": 3}, head_dim=32, moe_intermediate_size=32, n_routed_experts=8,
                      num_experts_per_tok=3, n_shared_experts=2, first_k_dense_replace=1, routed_scaling_factor=1.7,
                      norm_topk_prob=True, use_qk_norm=True, attention_bias=True, num_mtp_layers=0,
                      rope_parameters=dict(rope_type="default", rope_theta=1000000.0, partial_rotary_factor=0.5)),
        torch.bfloat16, "1GB", {}),
    "glm4-moe-plain": (
        Glm4MoeConfig(**COMMON, head_dim=16, moe_intermediate_size=48, n_routed_experts=6, num_experts_per_tok=2,
                      n_shared_experts=1, first_k_dense_replace=0, routed_scaling_factor=0.8, norm_topk_prob=False,
                      num_mtp_layers=0,
                      rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.25)),
        torch.bfloat16, "1GB", {}),
    "gpt-oss": (  # its experts become MXFP4
        GptOssConfig(**{**COMMON, "intermediate_size": 64, "num_hidden_layers": 3, "head_dim": 32}, num_local_experts=6,
                     num_experts_per_tok=3, sliding_window=20, swiglu_limit=1.5, pad_token_id=0,
                     rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, beta_fast=16.0, beta_slow=1.0,
                                          truncate=False, original_max_position_embeddings=64)),
        torch.bfloat16, "1GB", {}),
    "gpt-oss-plain": (
        GptOssConfig(**{**COMMON, "intermediate_size": 48, "num_key_value_heads": 1, "head_dim": 16},
                     num_local_experts=4, num_experts_per_tok=2, sliding_window=9, pad_token_id=0, attention_bias=False,
                     layer_types=["full_attention", "sliding_attention"],
                     rope_parameters=dict(rope_type="yarn", rope_theta=150000.0, factor=8.0, beta_fast=32.0,
                                          beta_slow=1.0, truncate=False, original_max_position_embeddings=32)),
        torch.bfloat16, "1GB", {}),
    # A model's place in this list is its seed, so new ones come last.
    "olmo2": (
        Olmo2Config(**{**COMMON, "num_hidden_layers": 3, "rms_norm_eps": 1e-4},
                    rope_parameters=dict(rope_type="default", rope_theta=500000.0)),
        torch.bfloat16, "1GB", {}),
    "olmo2-bias": (
        Olmo2Config(**{**COMMON, "num_key_value_heads": None, "vocab_size": 301, "attention_bias": True,
                       "tie_word_embeddings": True},
                    rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=2.0)),
        torch.float16, "1GB", {}),
    "mistral-full": (
        MistralConfig(**{**COMMON, "intermediate_size": 80, "num_hidden_layers": 3, "num_key_value_heads": 4,
                         "tie_word_embeddings": True}, sliding_window=None,
                      rope_parameters=dict(rope_type="default", rope_theta=1000000.0)),
        torch.float16, "1GB", {}),
    "qwen3-tied": (
        Qwen3Config(**{**COMMON, "head_dim": 24, "num_key_value_heads": 4, "vocab_size": 307,
                       "tie_word_embeddings": True, "num_hidden_layers": 4}, attention_bias=True,
                    use_sliding_window=True, sliding_window=17, max_window_layers=2,
                    rope_parameters=dict(rope_type="default", rope_theta=10000.0)),
        torch.float32, "1GB", {}),
}
# Prompts that are longer than the model's original length.
LONG_PROMPTS = {"phi3-longrope": (9, 17, 40, 100)}


def fill_at_random(model, seed):
    """Weights large enough that attention and logits are far from flat, so that a mistake shows."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in [*model.named_parameters(), *((n, b) for n, b in model.named_buffers() if "bias" in n)]:
            noise = torch.randn(parameter.shape, generator=generator)
            if name.endswith("norm.weight"):
                is_offset = model.config.model_type.startswith("gemma")  # its norms multiply by 1 + weight
                parameter.copy_((0 if is_offset else 1) + 0.2 * noise)
            else:
                parameter.copy_((0.3 if name.endswith("bias") else 2.0 if name.endswith("sinks") else 0.15) * noise)


def old_spelling(config):
    """The same config.json as transformers 4 wrote it."""
    old = copy.deepcopy(config)
    # transformers 4 computed the types from other fields, and wrote them only in later versions.
    if not old["model_type"].startswith(("gemma", "gpt_oss")) or "_sliding_window_pattern" in old:
        old.pop("layer_types", None)
    old["torch_dtype"] = old.pop("dtype")
    rope = old.pop("rope_parameters")
    if "full_attention" in rope:
        old["sliding_window_pattern"] = old.pop("_sliding_window_pattern")
        old["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = rope["full_attention"]
    old["rope_theta"] = rope.pop("rope_theta")
    rope_type = rope.pop("rope_type")
    type_key = "type" if rope_type == "linear" else "rope_type"
    if "partial_rotary_factor" in rope:
        old["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
    old["rope_scaling"] = None if rope_type == "default" else {type_key: rope_type, **rope}
    return old


def write_json(path, value):
    path.write_text(json.dumps(value, separators=(",", ":")).replace("},{", "},\n{") + "\n")


MXFP4_VALUES = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=torch.float64)


def quantise_experts(folder):
    """Stores stacks of experts as gpt-oss does, [experts, outputs, inputs] in MXFP4, and returns their values."""
    path = folder / "model.safetensors"
    tensors, values = load_file(path), {}
    for name in [name for name in tensors if name.endswith(("gate_up_proj", "down_proj"))]:
        weight = tensors.pop(name).transpose(1, 2).to(torch.float64)
        groups = weight.reshape(*weight.shape[:2], -1, 32)
        exponents = torch.floor(torch.log2(groups.abs().amax(-1))) - 2
        codes = (groups / 2**exponents[..., None]).unsqueeze(-1).sub(MXFP4_VALUES).abs().argmin(-1)
        tensors[name + "_blocks"] = (codes[..., 0::2] | codes[..., 1::2] << 4).to(torch.uint8)
        tensors[name + "_scales"] = (exponents + 127).to(torch.uint8)
        values[name] = (MXFP4_VALUES[codes] * 2**exponents[..., None]).reshape(weight.shape).transpose(1, 2)
    save_file(tensors, path, metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    return values


def rounded(values):
    return [round(float(value), 6) for value in values]


@torch.no_grad()
def reference_case(model, token_ids):
    length = len(token_ids)
    logits = model(torch.tensor([token_ids])).logits[0]
    positions = sorted({length - 1, length // 2, length // 4})
    greedy, margins, context = [], [], list(token_ids)
    for _ in range(NUM_GREEDY):
        best = torch.topk(model(torch.tensor([context]), use_cache=False).logits[0, -1], 2)
        context.append(int(best.indices[0]))
        greedy.append(context[-1])
        margins.append(float(best.values[0] - best.values[1]))
    return {"token_ids": token_ids, "positions": positions, "logits": [rounded(logits[p]) for p in positions],
            "greedy_token_ids": greedy, "greedy_margins": rounded(margins)}


def write_model(name, seed):
    config, dtype, max_shard_size, generation = MODELS[name]
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    model = AutoModelForCausalLM.from_config(copy.deepcopy(config))
    fill_at_random(model, seed)
    model.generation_config.update(**generation)
    model.to(dtype).save_pretrained(folder, max_shard_size=max_shard_size)
    experts = quantise_experts(folder) if name == "gpt-oss" else {}
    written = json.loads((folder / "config.json").read_text())
    (folder / "config_transformers4.json").write_text(json.dumps(old_spelling(written), indent=2) + "\n")

    # Only the eager implementation caps scores and has sinks.
    attention = "eager" if name.startswith(("gemma2", "gpt-oss")) else "sdpa"
    if experts:  # transformers would round what it unpacks to bf16
        weights = model.state_dict()
        model = AutoModelForCausalLM.from_config(copy.deepcopy(config), attn_implementation=attention,
                                                 experts_implementation="eager").to(torch.float64).eval()
        model.load_state_dict(weights)
        for stack, values in experts.items():
            model.get_parameter(stack).data.copy_(values)
    else:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, attn_implementation=attention,
                                                     experts_implementation="eager").eval()
    generator = torch.Generator().manual_seed(seed + 1000)
    prompts = [torch.randint(config.vocab_size, (length,), generator=generator).tolist() 
               for length in LONG_PROMPTS.get(name, PROMPT_LENGTHS)]
    write_json(folder / "reference.json", {"cases": [reference_case(model, prompt) for prompt in prompts]})


def write_rope_tables():
    """Inverse frequencies of full-size models, from transformers' own functions."""
    base = dict(hidden_size=4096, intermediate_size=14336, num_hidden_layers=1, num_attention_heads=32,
                num_key_value_heads=8, vocab_size=1000, rms_norm_eps=1e-5)
    yarn = dict(rope_type="yarn", rope_theta=1000000.0, factor=4.0, original_max_position_embeddings=32768)
    ropes = [
        (8192, dict(rope_type="linear", rope_theta=10000.0, factor=2.5)),
        (131072, dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                      original_max_position_embeddings=8192)),
        (131072, dict(rope_type="llama3", rope_theta=500000.0, factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0,
                      original_max_position_embeddings=8192)),
        (131072, yarn),
        (32768, yarn),
        (131072, {**yarn, "attention_factor": 1.25, "beta_fast": 24.0, "beta_slow": 2.0}),
        (131072, {**yarn, "mscale": 1.0, "mscale_all_dim": 0.7}),
        (131072, {**yarn, "truncate": False}),
        (131072, {**yarn, "factor": None}),
        (4096, {**yarn, "rope_theta": 10000.0, "factor": 1.0, "original_max_position_embeddings": 4096}),
    ]
    cases = []
    for max_positions, rope in ropes:
        config = LlamaConfig(**base, max_position_embeddings=max_positions, rope_parameters=dict(rope))
        inv_freq, attention_factor = ROPE_INIT_FUNCTIONS[rope["rope_type"]](config, torch.device("cpu"))
        cases.append({"config": {"architectures": ["LlamaForCausalLM"], "model_type": "llama", **base,
                                 "max_position_embeddings": max_positions, "rope_parameters": rope},
                      "inverse_frequencies": [float(f"{value:.9g}") for value in inv_freq.tolist()],
                      "attention_factor": attention_factor})
    write_json(HERE / "rope.json", {"cases": cases})


def main():
    torch.set_num_threads(1)
    for seed, name in enumerate(MODELS):
        write_model(name, seed)
        print(name)
    write_rope_tables()


if __name__ == "__main__":
    main()
