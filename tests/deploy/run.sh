#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a Python test of the deployment, with Helm as a library.
#
#   tests/deploy/run.sh build/release chart_test
#   tests/deploy/run.sh build/release --update      # writes minimal.golden.yaml anew
#
# Exits with 77 (skipped) without Python or PyPI.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/../testing/services.sh"
export FORETOKEN_BUILD
FORETOKEN_BUILD=$(cd "$1" && pwd)
venv="$FORETOKEN_BUILD/deploy-venv"
make_venv "$venv" "$here/requirements.txt"
if [[ $2 == --update ]]; then
  FORETOKEN_UPDATE_GOLDEN=1 "$venv/bin/python" "$here/chart_test.py" Renders.test_minimal_one_is_short_and_as_recorded
else
  "$venv/bin/python" "$here/$2.py"
fi
