#!/usr/bin/env bash
# The checks that need a GPU or many cores, in under nine minutes: OUT=folder benchmarks/device/run.sh
# For a machine without a network, whose python3 has torch; wheels.sh fetches the other packages beforehand.
set -uo pipefail
cd "$(dirname "$0")/../.."
out=${OUT:-build/device}
mkdir -p "$out"
site=$(mktemp -d)
if [ -d .wheels ]; then
    python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --target "$site" .wheels/*.whl || exit 1
fi
export PYTHONPATH=$site:$PWD:$PWD/common PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1
cores=$(env -u OMP_NUM_THREADS nproc)

part() { # NAME SECONDS COMMAND…: its output goes to a log of its own, and its end to the screen
    local name=$1 limit=$2 began=$SECONDS
    shift 2
    timeout --kill-after 10 "$limit" "$@" > "$out/$name.log" 2>&1
    echo "== $name: status $?, $((SECONDS - began)) s"
    tail -n "${LINES_SHOWN:-4}" "$out/$name.log"
}

{ lscpu | grep -E '^(Model name|CPU\(s\))'; nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
  python3 -c 'import sys, torch; print(sys.version, torch.__version__)'; } 2>&1 | tee "$out/machine.log"
LINES_SHOWN=60 part cuda 75 python3 -m benchmarks.device.cuda
part unit-tests 70 python3 -m pytest -q -n "$cores" -p no:cacheprovider -p no:benchmark -m 'not nightly' \
    tests/ps_common tests/ps_server tests/rl_agent tests/simulation
LINES_SHOWN=30 part scale 120 python3 -m benchmarks.scale --minutes 1.6 --folder "$out/scale"
cluster="python3 -m rl_cluster --no-web"
# Few games at once: a mean of 100 games waits for one of each. And few pushes of an unroll, since so many workers push.
recipe=${RECIPE:---envs 4 --minibatches 4}
workers=$((cores > 2 ? cores - 1 : cores))
pong() { # NAME SEED FLAG…
    local name=$1 seed=$2
    shift 2
    part "$name-$cores-cores-seed$seed" 73 $cluster --preset pong --workers "$workers" --seed "$seed" "$@" \
        --max-minutes 1 --run-dir "$site/$name-$seed" --json "$out/$name-$seed.json"
}
# shellcheck disable=SC2086
for seed in ${SEEDS:-0 1}; do
    pong pong "$seed" $recipe
done
# shellcheck disable=SC2086
for seed in ${GANG_SEEDS:-0}; do
    pong gang "$seed" --gang ${GANG_RECIPE:---envs 8 --minibatches 8}
done
part cartpole-cuda 35 $cluster --preset cartpole --workers 2 --device cuda --max-minutes 0.4 \
    --run-dir "$site/cartpole-cuda" --json "$out/cartpole-cuda.json"
tar -C "$out" --remove-files -czf "$out/logs.tar.gz" $(cd "$out" && ls ./*.log ./*.json ./scale/*.log)
