#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Layers that the compressed-tensors package writes have, bit for bit, the values that it reads of them. If this test fails, checkpoints of the
# common quantisers are read wrongly. It installs PyTorch, 6 GB, and so runs only on demand:
#
#   tests/common/quantization/compressed_tensors_suite.sh build/release
#
# Exits with 77 (skipped) without Python or PyPI.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/../../testing/services.sh"
build=$(cd "$1" && pwd)
venv="$build/compressed-tensors-venv"
make_venv "$venv" "$here/requirements.txt"
"$venv/bin/python" "$here/compressed_tensors_suite.py" "$build/tests/dump_model" "$scratch"
