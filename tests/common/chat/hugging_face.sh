#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The texts that we make of conversations are, byte for byte, the texts of Hugging Face's renderer, for the chat templates that
# come with llama.cpp. If this test fails, models read prompts that they were not trained on.
#
#   tests/common/chat/hugging_face.sh build/release
#
# Exits with 77 (skipped) without Python or PyPI.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/../../testing/services.sh"
build=$(cd "$1" && pwd)
make_venv "$build/chat-venv" "$here/requirements.txt"
templates="$root/.sources/llama_cpp_python/vendor/llama.cpp/models/templates"
"$build/chat-venv/bin/python" "$here/hugging_face.py" "$templates" "$scratch/cases.json" 2>"$scratch/log" ||
  { cat "$scratch/log" >&2; fail "Hugging Face's renderer failed"; }
"$build/tests/render_chats" "$scratch/cases.json"
