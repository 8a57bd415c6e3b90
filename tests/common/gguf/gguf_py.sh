#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Files that the gguf package writes have, bit for bit, the values that it reads of them, and the ids of Hugging Face's tokenizers. The
# vocabularies of published models, which llama.cpp keeps as GGUF files, give the ids that llama.cpp keeps beside them. If this test
# fails, files of the common converters are read wrongly.
#
#   tests/common/gguf/gguf_py.sh build/release
#
# Exits with 77 (skipped) without Python or PyPI.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/../../testing/services.sh"
build=$(cd "$1" && pwd)
venv="$build/gguf-venv"
make_venv "$venv" "$here/requirements.txt"
if [[ ! -e $venv/vocabularies ]]; then
  "$venv/bin/pip" download -q --no-deps --no-binary :all: --no-build-isolation --require-hashes -d "$scratch" \
    -r "$here/vocabularies.txt" || skip "no vocabularies from PyPI"
  mkdir "$scratch/vocabularies"
  tar xzf "$scratch"/llama_cpp_python-*.tar.gz -C "$scratch/vocabularies" --wildcards '*/models/ggml-vocab-*' --strip-components=4
  mv "$scratch/vocabularies" "$venv/vocabularies"
fi
"$venv/bin/python" "$here/gguf_py.py" "$build/tests/dump_model" "$root/tests/cases/tokenizer" "$venv/vocabularies" "$scratch"
