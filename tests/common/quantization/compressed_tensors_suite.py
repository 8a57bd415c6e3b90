#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes layers with the compressed-tensors package and compares what dump_model reads of them with its own values.

    compressed_tensors_suite.py DUMP_MODEL SCRATCH
"""
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from compressed_tensors.compressors.base import BaseCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.utils import calculate_qparams
from safetensors.torch import save_file

ROWS, INPUTS = 256, 512
NAME = "model.layers.0.self_attn.o_proj"

# format, arguments of the weights' quantisation
CASES = [
    *[("pack-quantized", dict(num_bits=bits, strategy="group", group_size=32)) for bits in range(2, 9)],
    *[("pack-quantized", dict(num_bits=bits, strategy="group", group_size=128, symmetric=False)) for bits in (3, 4, 8)],
    *[("pack-quantized", dict(num_bits=bits, strategy="channel")) for bits in (3, 4, 8)],
    ("pack-quantized", dict(num_bits=4, strategy="channel", symmetric=False)),
    ("pack-quantized", dict(num_bits=4, strategy="group", group_size=64, actorder="weight")),
    ("int-quantized", dict(num_bits=8, strategy="channel")),
    ("int-quantized", dict(num_bits=8, strategy="tensor")),
    ("int-quantized", dict(num_bits=8, strategy="group", group_size=128)),
    ("float-quantized", dict(num_bits=8, type="float", strategy="channel")),
    ("float-quantized", dict(num_bits=8, type="float", strategy="tensor")),
    ("float-quantized", dict(num_bits=8, type="float", strategy="block", block_structure=[128, 128])),
    ("mxfp4-pack-quantized", dict(num_bits=4, type="float", strategy="group", group_size=32, scale_dtype=torch.uint8)),
]


def ranges(weight, args):
    """The smallest and largest weights that share a scale."""
    strategy = getattr(args.strategy, "value", args.strategy)
    if strategy == "group":
        groups = weight.reshape(ROWS, -1, args.group_size)
        return groups.amin(-1), groups.amax(-1)
    if strategy == "channel":
        return weight.amin(1, keepdim=True), weight.amax(1, keepdim=True)
    if strategy == "tensor":
        return weight.amin().reshape(1), weight.amax().reshape(1)
    rows, inputs = args.block_structure
    blocks = weight.reshape(ROWS // rows, rows, INPUTS // inputs, inputs)
    return blocks.amin((1, 3)), blocks.amax((1, 3))


def compress(form, arguments, dtype, generator):
    """The stored tensors, the package's values of them, and its description of the layer."""
    args = QuantizationArgs(**arguments)
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    weight = (torch.randn(ROWS, INPUTS, generator=generator) * torch.rand(ROWS, 1, generator=generator)).to(dtype)
    scale, zero_point = calculate_qparams(*ranges(weight, args), args)
    state = {"weight": weight, "weight_scale": scale, "weight_zero_point": zero_point}
    if arguments.get("actorder"):
        state["weight_g_idx"] = (torch.randperm(INPUTS, generator=generator) // args.group_size).to(torch.int32)
    compressor = BaseCompressor.get_value_from_registry(form)
    stored = compressor.compress(state, scheme)
    values = compressor.decompress(stored, scheme)["weight"]
    if "weight_g_idx" in stored:
        # decompress leaves the index aside; an input has the scale of its own group.
        index = stored["weight_g_idx"].long()
        unpacked = values.float() / scale.float().repeat_interleave(args.group_size, 1)
        values = (unpacked.round() * scale.float()[:, index]).to(dtype)
    described = json.loads(scheme.model_dump_json(exclude_none=True))
    return stored, values, described


def read(program, scratch, form, stored, described):
    folder, out = scratch / "checkpoint", scratch / "values"
    folder.mkdir(exist_ok=True)
    out.mkdir(exist_ok=True)
    save_file({f"{NAME}.{name}": tensor.contiguous() for name, tensor in stored.items()}, folder / "model.safetensors")
    config = {"quant_method": "compressed-tensors", "format": form, "config_groups": {"group_0": described}}
    (folder / "config.json").write_text(json.dumps({"quantization_config": config}))
    line = json.dumps([f"{NAME}.weight", ROWS, INPUTS]) + "\n"
    subprocess.run([program, folder, out], input=line, text=True, check=True)
    return torch.from_numpy(np.fromfile(out / f"{NAME}.weight", np.float32).reshape(ROWS, INPUTS))


def main():
    program, scratch = sys.argv[1], Path(sys.argv[2])
    generator = torch.Generator().manual_seed(1)
    for form, arguments in CASES:
        for dtype in (torch.float32, torch.bfloat16):
            stored, values, described = compress(form, arguments, dtype, generator)
            got = read(program, scratch, form, stored, described)
            # The package computes in the scale's dtype; integers here are never rounded after they are scaled.
            same = (got.to(values.dtype) == values).all()
            print(form, arguments, dtype, "equal" if same else f"differ by {(got - values.float()).abs().max()}")
            assert same


if __name__ == "__main__":
    main()
