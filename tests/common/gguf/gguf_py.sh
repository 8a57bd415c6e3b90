#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Files that the gguf package writes have, bit for bit, the values that it reads of them, and the ids of Hugging Face's tokenizers. If
# this test fails, files of the common converters are read wrongly.
#
#   tests/common/gguf/gguf_py.sh build/release
#
# Exits with 77 (skipped) without Python or PyPI.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/../../testing/services.sh"
build=$(cd "$1" && pwd)
make_venv "$build/gguf-venv" "$here/requirements.txt"
"$build/gguf-venv/bin/python" "$here/gguf_py.py" "$build/tests/dump_gguf" "$root/tests/cases/tokenizer" "$scratch"
