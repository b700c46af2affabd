#!/usr/bin/env bash
# Runs scenario.py on a Ray cluster of three nodes that it starts, in network namespaces, and ends again. It needs root
# and iproute2. Ray is installed into a virtual environment of its own, below $XDG_CACHE_HOME (~/.cache), which borrows all
# other packages from that of $PYTHON: Ray takes 380 MB, and nothing else here needs it.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-.venv/bin/python}
version=$(sed -n 's/^ray==//p' constraints.txt)
environment=${XDG_CACHE_HOME:-$HOME/.cache}/ps-rl/ray-$version

not_there() {
    echo "$1" >&2
    exit 77
}

{ [[ $(id -u) == 0 ]] && command -v ip >/dev/null; } || not_there "its nodes are network namespaces: root and iproute2"
ip netns add ps-rl-probe 2>/dev/null || not_there "network namespaces cannot be made here"
ip netns del ps-rl-probe
if [[ ! -x $environment/bin/ray ]]; then
    "$python" -m venv "$environment"
    "$environment/bin/pip" install -qq -c constraints.txt "ray==$version" >/dev/null || not_there "Ray $version cannot be installed"
fi
places=("$environment"/lib/python*/site-packages)
"$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"${places[0]}/ps-rl.pth"
exec "$environment/bin/python" -m deploy.ray.scenario
