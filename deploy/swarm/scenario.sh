#!/usr/bin/env bash
# The stack on a swarm of two nodes: two Docker engines in two network namespaces, joined by a cable that can be cut. Needs
# root on Debian; LAB=folder keeps the engines' files and the image for the next time, PYTHON has our packages.
set -euo pipefail
cd "$(dirname "$0")/../.."
. deploy/docker/engine.sh
[[ $(id -u) == 0 ]] || { echo "skipped: only root can start two engines and join them" >&2; exit 77; }
engine_programs || { echo "skipped: there is no Docker engine, and apt has none to install" >&2; exit 77; }
export IMAGE=${IMAGE:-ps-rl:test} PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}
python=${PYTHON:-.venv/bin/python} namespace=ps-rl-swarm

away() {
    for node in 1 2; do
        stop_engine "$lab/node$node"
        ip netns del "$namespace$node" 2>/dev/null || true
    done
    [[ -n ${LAB:-} ]] || rm -rf "$lab"
}

# What an engine cannot do without a way out is done by one that has the base image: deploy/docker/image.sh.
engine_folder
LAB=$lab deploy/docker/image.sh "$lab/ps-rl.tar"
trap away EXIT
for node in 1 2; do
    ip netns add "$namespace$node"
    ip -n "$namespace$node" link set lo up
done
ip link add cable netns "${namespace}1" type veth peer name cable netns "${namespace}2"
# No way leads out: before each task an engine looks for a newer image, which fails at once then.
for node in 1 2; do
    ip -n "$namespace$node" addr add "10.213.0.$node/24" dev cable
    ip -n "$namespace$node" link set cable up
    start_engine "$namespace$node" "$lab/node$node" "10.213.0.$node"
    export "NODE$node=unix://$lab/node$node/docker.sock"
done
export NAMESPACE=$namespace
for node in "$NODE1" "$NODE2"; do
    has=$(DOCKER_HOST=$node docker image inspect --format '{{.Id}}' "$IMAGE" 2>/dev/null || true)
    [[ $has == "$(archived "$lab/ps-rl.tar")" ]] || DOCKER_HOST=$node docker load -i "$lab/ps-rl.tar"
done
"$python" -m deploy.swarm.scenario
