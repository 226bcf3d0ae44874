#!/usr/bin/env bash
# The whole test suite in an environment of its own (.venv-test). Arguments go to pytest:
#
#   bash scripts/test.sh                      everything, under 30 minutes on 2 cores
#   bash scripts/test.sh tests/unit -x        a part of it
#   bash scripts/test.sh -m "not slow"        without the tests over 20 s
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/venv.sh

make_venv .venv-test
install_into .venv-test ".[demo,test,optimum]"
exec .venv-test/bin/python -m pytest "$@"
