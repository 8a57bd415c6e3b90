# SPDX-License-Identifier: Apache-2.0
"""Writes the model in the peers' forms, each by the peer's own program.

    convert.py llama.cpp|openvino LAYERS VOCAB FOLDER

- llama.cpp: gguf writes BF16. llama_model_quantize makes Q8_0, Q4_0 and Q4_K_M of it.
- OpenVINO: gguf writes F16, from which OpenVINO GenAI's reader makes a model of OpenVINO, without PyTorch. NNCF
  compresses its weights to INT8, and to symmetric INT4 with one scale per 32 or 128 inputs.

What is there is not made again.
"""
import pathlib
import re
import shutil
import sys

import model

LLAMA_CPP_TYPES = {"q8_0": 7, "q4_0": 2, "q4_k_m": 15}  # llama.h's llama_ftype
NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
         "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}


def gguf_name(name):
    whole = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
    if name in whole:
        return whole[name]
    layer, part = re.fullmatch(r"model\.layers\.(\d+)\.(.*)\.weight", name).groups()
    return f"blk.{layer}.{NAMES[part]}.weight"


def permuted(name, values, shape):
    """llama.cpp turns pairs of neighbours where Hugging Face turns the halves of a head, so rows of Q and K move."""
    heads = {"q_proj": shape.heads, "k_proj": shape.kv_heads}.get(name.split(".")[-2])
    if heads is None:
        return values
    return values.reshape(heads, 2, shape.head_dim // 2, -1).swapaxes(1, 2).reshape(values.shape)


def add_metadata(writer, shape):
    import gguf
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.hidden)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_layer_norm_rms_eps(shape.rms_norm_eps)
    writer.add_rope_freq_base(shape.rope_theta)
    writer.add_vocab_size(shape.vocab)
    tokenizer = model.padded_tokenizer(shape.vocab)
    ids = {**tokenizer["model"]["vocab"], **{token["content"]: token["id"] for token in tokenizer["added_tokens"]}}
    special = {token["content"] for token in tokenizer["added_tokens"]}
    tokens = sorted(ids, key=ids.get)
    types = [gguf.TokenType.CONTROL if token in special else gguf.TokenType.NORMAL for token in tokens]
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in tokenizer["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(shape.config()["eos_token_id"])
    writer.add_eos_token_id(shape.config()["eos_token_id"])


def write_gguf(shape, checkpoint, path, is_bf16):
    """One GGUF file: matrices in BF16 or F16, norms in F32."""
    import gguf
    import numpy as np
    new = path.with_suffix(".new")
    writer = gguf.GGUFWriter(new, "llama", use_temp_file=False)
    add_metadata(writer, shape)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16 if is_bf16 else gguf.LlamaFileType.MOSTLY_F16)
    for name, values in model.read_tensors(checkpoint):
        values = permuted(name, values, shape)
        if values.ndim == 2 and is_bf16:
            writer.add_tensor(gguf_name(name), np.ascontiguousarray(values).view(np.uint8),
                              raw_dtype=gguf.GGMLQuantizationType.BF16)
            continue
        floats = (values.astype(np.uint32) << 16).view(np.float32)
        writer.add_tensor(gguf_name(name), floats if values.ndim == 1 else floats.astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    new.rename(path)


def convert_for_llama_cpp(shape, folder):
    import llama_cpp
    target = folder / "llama.cpp"
    target.mkdir(exist_ok=True)
    if not (target / "bf16.gguf").exists():
        write_gguf(shape, folder / "checkpoint", target / "bf16.gguf", is_bf16=True)
    for name, file_type in LLAMA_CPP_TYPES.items():
        path, new = target / f"{name}.gguf", target / f"{name}.new"
        if path.exists():
            continue
        params = llama_cpp.llama_model_quantize_default_params()
        params.nthread, params.ftype = 2, file_type
        if llama_cpp.llama_model_quantize(str(target / "bf16.gguf").encode(), str(new).encode(), params) != 0:
            raise RuntimeError(f"llama.cpp could not write {name}")
        new.rename(path)


def read_with_genai(shape, folder, target):
    """The model as OpenVINO GenAI reads it from a GGUF file, in `target`."""
    import openvino_genai
    new = target.with_name("new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    write_gguf(shape, folder / "checkpoint", new / "f16.gguf", is_bf16=False)
    openvino_genai.LLMPipeline(str(new / "f16.gguf"), "CPU", enable_save_ov_model=True)
    (new / "f16.gguf").unlink()
    shutil.copy(folder / "checkpoint/config.json", new)
    new.rename(target)


def convert_for_openvino(shape, folder):
    import nncf
    import openvino
    target = folder / "openvino"
    if not (target / "bf16").exists():
        read_with_genai(shape, folder, target / "bf16")
    modes = nncf.CompressWeightsMode
    for name, options in {"int8": {"mode": modes.INT8_SYM},
                          "int4_g32": {"mode": modes.INT4_SYM, "ratio": 1.0, "group_size": 32},
                          "int4_g128": {"mode": modes.INT4_SYM, "ratio": 1.0, "group_size": 128}}.items():
        if (target / name).exists():
            continue
        new = target / "new"
        shutil.rmtree(new, ignore_errors=True)
        shutil.copytree(target / "bf16", new, ignore=shutil.ignore_patterns("openvino_model.*"))
        compressed = nncf.compress_weights(openvino.Core().read_model(target / "bf16/openvino_model.xml"), **options)
        openvino.save_model(compressed, new / "openvino_model.xml")
        new.rename(target / name)


def main(peer, layers, vocab, folder):
    shape, folder = model.Shape(layers=int(layers), vocab=int(vocab)), pathlib.Path(folder)
    model.write_checkpoint(shape, folder / "checkpoint")
    {"llama.cpp": convert_for_llama_cpp, "openvino": convert_for_openvino}[peer](shape, folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
