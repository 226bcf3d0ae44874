#!/usr/bin/env bash
# Makes the tables and pictures of docs/results.md:  bash scripts/reproduce_paper.sh [TABLE ...]
# Needs the package installed (bash scripts/quickstart.sh or pip install -e .), no device.
set -euo pipefail
cd "$(dirname "$0")/.."
exec "${PYTHON:-python3}" -m scripts.reproduce_paper "$@"
