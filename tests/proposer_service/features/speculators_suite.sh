#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Drafters that the speculators package writes draft what its own models compute. If this test fails, checkpoints of that package are misread,
# and only the acceptance would show it. It installs PyTorch, 6 GB, and so runs only on demand:
#
#   tests/proposer_service/features/speculators_suite.sh build/release
#
# Exits with 77 (skipped) without Python or PyPI.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/../../testing/services.sh"
build=$(cd "$1" && pwd)
venv="$build/speculators-venv"
make_venv "$venv" "$here/requirements.txt"
"$venv/bin/python" "$here/speculators_suite.py" "$build/tests/dump_drafter" "$scratch"
