#!/usr/bin/env bash
# Builds the image and the cluster of compose.yaml, and scales it, kills it, cuts it off: test_docker.py with all that it
# takes. engine.sh says which engine, and LAB and PYTHON. Arguments are pytest's.
set -euo pipefail
cd "$(dirname "$0")/../.."
. deploy/docker/engine.sh
trap engine_away EXIT
docker_engine
export PS_RL_DOCKER=1
"${PYTHON:-.venv/bin/python}" -m pytest -x -v -s --durations=0 tests/integration/test_docker.py "$@"
