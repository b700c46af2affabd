#!/usr/bin/env bash
# Runs scenario.py on a Slurm of three nodes that it starts, in network namespaces, and ends again. It needs root, and
# Debian's packages of Slurm and munge, which it installs where they are missing.
set -euo pipefail
cd "$(dirname "$0")/../.."

not_there() {
    echo "$1" >&2
    exit 77
}

[[ $(id -u) == 0 ]] || not_there "only root can start a Slurm here: its nodes are network namespaces"
packages=(slurmctld slurmd slurm-client munge iproute2)
if ! { command -v slurmctld && command -v slurmd && command -v sbatch && command -v munged && command -v ip; } >/dev/null; then
    command -v apt-get >/dev/null || not_there "there is no Slurm, and no apt-get to install it with"
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}"; } \
        >/dev/null || not_there "there is no Slurm, and ${packages[*]} cannot be installed"
fi
ip netns add ps-rl-probe 2>/dev/null || not_there "network namespaces cannot be made here"
ip netns del ps-rl-probe
exec "${PYTHON:-.venv/bin/python}" -m deploy.slurm.scenario
