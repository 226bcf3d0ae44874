#!/usr/bin/env bash
# From a fresh clone to an answer: makes .venv, installs vpp_ms, builds the demo model and lets
# two ranks read a long text. Safe to run again: what is there already is kept. Arguments go to
# `vpp-ms run`, for instance --set "input.question=Who built the tower?"
#
#   bash scripts/quickstart.sh
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/venv.sh

make_venv .venv
install_into .venv ".[demo]"
.venv/bin/vpp-ms prepare-demo
.venv/bin/vpp-ms run yaml_configs/quickstart.yaml "$@"
