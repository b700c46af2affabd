#!/usr/bin/env bash
# Runs the scenario of one engine, deploy/ENGINE/scenario.sh, and says how it ended: `deploy/engine_test.sh ENGINE [ARGUMENT…]`.
#
# A new engine is a folder here with a scenario.sh, and a page in docs. The scenario runs in the root of the repository,
# with a Python that has our packages as $PYTHON. It exits with 0 when every step passed, with 77 when its engine is not
# there and cannot be had here, after a line on stderr that says why, and with another status when a step failed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
shopt -s nullglob
readonly NOT_THERE=77

engines=$(for scenario in deploy/*/scenario.sh; do basename "$(dirname "$scenario")"; done | paste -sd ' ')
engine=${1:-}
scenario=deploy/$engine/scenario.sh
if [[ -z $engine || ! -f $scenario ]]; then
    echo "make engine-test ENGINE=$engine: there is no such engine; those that there are: $engines" >&2
    exit 2
fi
PYTHON=${PYTHON:-$PWD/.venv/bin/python} PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH} bash "$scenario" "${@:2}"
status=$?
took="$((SECONDS / 60)) min $((SECONDS % 60)) s"
case $status in
    0) echo "$engine: every step passed, in $took" ;;
    "$NOT_THERE") echo "$engine: its engine is not there; nothing was tested" >&2 ;;
    *) echo "$engine: a step failed (exit status $status), after $took" >&2 ;;
esac
exit $status
