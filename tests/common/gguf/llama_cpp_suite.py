#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Quantises a model with llama.cpp and compares what dump_model reads of each file with the gguf package.

    llama_cpp_suite.py DUMP_MODEL PEERS_FOLDER SCRATCH
"""
import subprocess
import sys
from pathlib import Path

import gguf
import llama_cpp
import numpy as np

# llama.h's llama_ftype. Mixed types have other types in some matrices.
FILE_TYPES = {"Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "Q4_K_S": 14, "Q4_K_M": 15, "Q5_K_S": 16, "Q5_K_M": 17,
              "Q6_K": 18}


def quantize(path, new, file_type):
    params = llama_cpp.llama_model_quantize_default_params()
    params.nthread, params.ftype = 2, file_type
    assert llama_cpp.llama_model_quantize(str(path).encode(), str(new).encode(), params) == 0, new


def compare(program, path, folder, convert, shape):
    """Returns the types of the file's matrices."""
    folder.mkdir(exist_ok=True)
    subprocess.run([program, path, folder], stdin=subprocess.DEVNULL, check=True)
    names = {convert.gguf_name(name): name for name in shape.matrices()}
    types = set()
    for tensor in gguf.GGUFReader(path).tensors:
        if tensor.name not in names:
            continue
        name = names[tensor.name]
        expected = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        got = np.fromfile(folder / name, np.float32).reshape(expected.shape)
        got = convert.permuted(name, got, shape)  # our rows are in Hugging Face's order
        assert (got.view(np.uint32) == expected.view(np.uint32)).all(), (path.name, name, tensor.tensor_type)
        types.add(tensor.tensor_type.name)
    return types


def main():
    program, peers, scratch = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    sys.path.insert(0, peers)
    import convert
    import model
    shape = model.Shape(layers=4, vocab=4352, hidden=512, heads=8, kv_heads=2, ffn=1024)
    model.write_checkpoint(shape, scratch / "checkpoint")
    convert.write_gguf(shape, scratch / "checkpoint", scratch / "bf16.gguf", is_bf16=True)
    for name, file_type in FILE_TYPES.items():
        path = scratch / f"{name}.gguf"
        quantize(scratch / "bf16.gguf", path, file_type)
        print(name, sorted(compare(program, path, scratch / name, convert, shape)), "equal")


if __name__ == "__main__":
    main()
