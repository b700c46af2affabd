#!/usr/bin/env bash
# The fleet of this folder on a real cluster: first push, scaled, servers and workers killed, cut off,
# drained. Every step says how long it took; the first one that fails ends the scenario.
#
#   KUBECTL   command of a cluster's admin (kubectl); everything happens in the namespace ps-rl-scenario, made anew
#   IMAGE     image that the cluster's nodes have or can pull (ps-rl:latest); deploy/docker/image.sh makes an archive
#   NODE      command that runs another one on the node, as root, where there is one node: then processes are killed with
#             SIGKILL, and a worker's link is cut. Without it pods are deleted at once instead, and no link is cut.
#   VOLUMES   folder on the node for two volumes, where the cluster makes none by itself
#   PYTHON    has our packages
set -euo pipefail
cd "$(dirname "$0")/../.."
export KUBECTL=${KUBECTL:-kubectl} IMAGE=${IMAGE:-ps-rl:latest} PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}
python=${PYTHON:-.venv/bin/python}

if ! said=$($KUBECTL get nodes 2>&1); then
    echo "skipped: \`$KUBECTL get nodes\` does not work here: ${said:0:200}; KUBECTL names a cluster's" >&2
    exit 77
fi
KUSTOMIZE=$("$python" -m deploy.kubernetes.kustomize) || exit 77
export KUSTOMIZE
exec "$python" -m deploy.kubernetes.scenario
