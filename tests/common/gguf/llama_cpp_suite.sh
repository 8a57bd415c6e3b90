#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Files that llama.cpp's quantiser writes have, bit for bit, the values that the gguf package reads of them, and small models of every family
# have llama.cpp's logits. If this test fails, files of the most common writer are read wrongly. It compiles llama.cpp, which takes minutes,
# and so runs only on demand:
#
#   tests/common/gguf/llama_cpp_suite.sh build/release
#
# Exits with 77 (skipped) without Python or PyPI.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/../../testing/services.sh"
build=$(cd "$1" && pwd)
peers="$here/../../bench/peers"
venv="$build/llama-cpp-venv"
make_venv "$venv" "$peers/requirements-llama.cpp.txt"
"$venv/bin/python" "$here/llama_cpp_suite.py" "$build/tests/dump_model" "$peers" "$scratch"
mkdir "$scratch/families"
"$venv/bin/python" "$here/llama_cpp_families.py" "$build/tests/dump_families" "$scratch/families"
