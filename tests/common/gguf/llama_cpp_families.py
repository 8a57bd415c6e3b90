#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares our logits of GGUF files of every family with llama.cpp's.

    llama_cpp_families.py DUMP_FAMILIES SCRATCH
"""
import json
import subprocess
import sys
from pathlib import Path

import llama_cpp
import numpy as np

# llama.cpp rounds K and V to 16 bits, and we round what enters a product to bf16. Of the largest logit, in the median
# row and in all but a few: where two experts' scores are nearly equal, roundings decide who is chosen.
MOST_APART = {0.5: 0.015, 0.85: 0.03}
COMPARED_ROWS = {"phi3": 20}  # llama.cpp leaves out Phi-3's windows


def logits_of(path, tokens):
    model = llama_cpp.Llama(str(path), n_ctx=256, n_threads=2, logits_all=True, verbose=False)
    model.eval(tokens)
    return np.array(model.scores[:len(tokens)], np.float32)


def main():
    program, scratch = sys.argv[1], Path(sys.argv[2])
    subprocess.run([program, scratch], check=True)
    failed = []
    for path in sorted(scratch.glob("*.gguf")):
        ours = json.loads(path.with_suffix(".json").read_text())
        rows = COMPARED_ROWS.get(path.stem, len(ours["tokens"]))
        expected = logits_of(path, ours["tokens"])[:rows]
        got = np.array(ours["logits"], np.float32)[:rows]
        apart = np.abs(expected - got).max(1) / np.abs(expected).max()
        same = (expected.argmax(1) == got.argmax(1)).sum()
        print(f"{path.stem}: rows are {np.median(apart):.4f} of the largest logit apart, at most {apart.max():.4f}; "
              f"{same} of {rows} likeliest tokens are the same")
        if any(np.quantile(apart, part) > most for part, most in MOST_APART.items()):
            failed.append(path.stem)
    assert len(list(scratch.glob("*.gguf"))) > 10
    assert not failed, failed


if __name__ == "__main__":
    main()
