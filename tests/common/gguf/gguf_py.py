#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes GGUF files with the gguf package and compares what dump_model reads of them.

    gguf_py.py DUMP_MODEL TOKENIZER_CASES VOCABULARIES SCRATCH
"""
import json
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from tokenizers import Tokenizer

WRITTEN = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "MXFP4"]  # the package can make them
RANDOM = ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "MXFP4"]
SCALES = {"Q4_1": [0, 2], "Q5_1": [0, 2], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "MXFP4": []}


def random_blocks(name, rows, inputs, rng):
    """Any bytes, but with scales that are finite."""
    block_values, block_bytes = gguf.GGML_QUANT_SIZES[Type[name]]
    blocks = rng.integers(0, 256, (rows * inputs // block_values, block_bytes), dtype=np.uint8)
    for at in SCALES.get(name, [0]):
        blocks[:, at + 1] &= 0xBB
    if name == "MXFP4":
        blocks[:, 0] = blocks[:, 0] % 200 + 2
    return blocks.reshape(rows, inputs // block_values * block_bytes)


def permute(rows, num_heads):
    """What converters do to q and k of Llama."""
    return rows.reshape(num_heads, 2, rows.shape[0] // num_heads // 2, -1).swapaxes(1, 2).reshape(rows.shape)


def dump(program, path, folder, texts=()):
    folder.mkdir(exist_ok=True)
    lines = "".join(json.dumps(text) + "\n" for text in texts)
    output = subprocess.run([program, path, folder], input=lines, text=True, capture_output=True, check=True).stdout
    return [json.loads(line) for line in output.rstrip("\n").split("\n") if line]


def check_values(program, scratch):
    rng = np.random.default_rng(1)
    rows, inputs, heads = 64, 512, 4
    cases = [(name, False) for name in WRITTEN] + [(name, True) for name in RANDOM]
    for name, is_random in cases:
        path = scratch / "values.gguf"
        writer = gguf.GGUFWriter(path, "llama")
        writer.add_embedding_length(inputs)
        writer.add_head_count(inputs // (rows // heads))
        if is_random:
            data = random_blocks(name, rows, inputs, rng)
        else:
            values = rng.standard_normal((rows, inputs), dtype=np.float32) * rng.choice([1e-3, 1, 30], (rows, 1)).astype(np.float32)
            data = gguf.quants.quantize(values, Type[name])
        expected = gguf.quants.dequantize(data, Type[name]).reshape(rows, inputs).astype(np.float32)
        for role in ("attn_output", "attn_q"):
            writer.add_tensor(f"blk.0.{role}.weight", data, raw_dtype=Type[name])
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        dump(program, path, scratch / "values")
        got = {role: np.fromfile(scratch / "values" / f"model.layers.0.self_attn.{role}.weight", np.uint32) for role in ("o_proj", "q_proj")}
        assert (got["o_proj"] == expected.view(np.uint32).ravel()).all(), name
        # Permuting our q again gives the file's rows.
        q = permute(got["q_proj"].reshape(rows, inputs), heads)
        assert (q == expected.view(np.uint32)).all(), name


def check_tokenizer(program, cases, style, pre, scratch):
    path = cases / style / "tokenizer.json"
    content = json.loads(path.read_text())
    content["added_tokens"] = [token for token in content["added_tokens"] if not token["normalized"]]
    reference = Tokenizer.from_str(json.dumps(content))
    size = max(list(content["model"]["vocab"].values()) + [token["id"] for token in content["added_tokens"]]) + 1
    tokens, kinds = [f"[PAD{i}]" for i in range(size)], [gguf.TokenType.UNUSED] * size
    for token, i in content["model"]["vocab"].items():
        tokens[i], kinds[i] = token, gguf.TokenType.NORMAL
    for token in content["added_tokens"]:
        kind = gguf.TokenType.CONTROL if token["special"] else gguf.TokenType.USER_DEFINED
        tokens[token["id"]], kinds[token["id"]] = token["content"], kind
    gguf_path = scratch / f"{style}.gguf"
    writer = gguf.GGUFWriter(gguf_path, "qwen2")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in content["model"]["merges"]])
    writer.add_bos_token_id(content["added_tokens"][0]["id"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    texts = [json.loads(line) for line in (cases / "texts.txt").read_text().rstrip("\n").split("\n")]
    for text, ids in zip(texts, dump(program, gguf_path, scratch / style, texts), strict=True):
        assert ids == reference.encode(text).ids, text


def check_published(program, vocabularies, scratch):
    """The ids beside each file are those of its model's own tokenizer, without special tokens around them."""
    for name in ["llama-bpe", "llama-spm", "qwen2", "gpt-2", "phi-3", "command-r", "refact", "starcoder", "deepseek-coder"]:
        path = vocabularies / f"ggml-vocab-{name}.gguf"
        texts = Path(f"{path}.inp").read_bytes().decode().split("\n__ggml_vocab_test__\n")
        lines = Path(f"{path}.out").read_text().split("\n")[: len(texts)]
        for text, ids, line in zip(texts, dump(program, path, scratch / name, texts), lines, strict=True):
            expected = [int(number) for number in line.split()]
            assert ids == expected or ids[1:] == expected, (name, text, ids, expected)


def main():
    program, cases, vocabularies, scratch = sys.argv[1], *map(Path, sys.argv[2:])
    check_values(program, scratch)
    for style, pre in (("llama3", "llama-bpe"), ("qwen2", "qwen2")):
        check_tokenizer(program, cases, style, pre, scratch)
    check_published(program, vocabularies, scratch)


if __name__ == "__main__":
    main()
