#!/usr/bin/env bash
# Runs test_docker.py with all it takes. Where a Docker engine answers, that one builds the image and runs it. Where none
# does, and this is root on Debian, an engine of its own is started in a network namespace of its own, so that the
# machine's firewall and interfaces stay as they are; that engine cannot pull images nor reach a package index, so a
# base image is made from Debian packages, with all wheels inside.
#
# LAB=folder keeps the engine's files and the wheels for the next time. PYTHON is one that has pytest and pip.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-.venv/bin/python}
export PS_RL_DOCKER=1

base=python:3.11-slim-bookworm # what docker/Dockerfile names
namespace=ps-rl-docker

own_engine() {
    [[ $(id -u) == 0 ]] || { echo "no Docker engine answers, and only root can start one" >&2; exit 1; }
    if ! { command -v dockerd && command -v iptables && command -v mmdebstrap; } >/dev/null; then
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends docker.io iptables mmdebstrap
    fi
    lab=${LAB:-$(mktemp -d /tmp/ps-rl-docker.XXXXXX)}
    mkdir -p "$lab"
    lab=$(cd "$lab" && pwd)
    trap put_away EXIT
    docker compose version >/dev/null 2>&1 || compose_plugin
    ip netns add "$namespace"
    ip -n "$namespace" link set lo up
    # Not `ip netns exec`: that mounts a /sys without control groups.
    : >"$lab/dockerd.log"
    setsid nsenter "--net=/run/netns/$namespace" dockerd --data-root "$lab/data" --exec-root "$lab/exec" \
        --pidfile "$lab/docker.pid" -H "unix://$lab/docker.sock" >"$lab/dockerd.log" 2>&1 &
    export DOCKER_HOST=unix://$lab/docker.sock
    local engine=$!
    if ! grep -q -m 1 'API listen' < <(timeout 60 tail --pid="$engine" -n +1 -f "$lab/dockerd.log"); then
        tail -n 5 "$lab/dockerd.log" >&2
        exit 1
    fi
}

put_away() {
    if [[ -s $lab/docker.pid ]]; then
        local engine
        engine=$(<"$lab/docker.pid")
        kill "$engine" && tail --pid="$engine" -f /dev/null
    fi
    umount "$lab/exec/netns/default" 2>/dev/null || true # the engine leaves this one mounted
    ip netns del "$namespace" 2>/dev/null || true
    [[ -n ${LAB:-} ]] || rm -rf "$lab"
}

# Debian 12 has the engine but not Compose v2; its successor's package holds a static program.
compose_plugin() {
    export DOCKER_CONFIG=$lab/config
    [[ ! -x $DOCKER_CONFIG/cli-plugins/docker-compose ]] || return 0
    local apt=$lab/apt
    mkdir -p "$apt"/{lists/partial,cache/archives/partial,unpacked} "$DOCKER_CONFIG/cli-plugins"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $(debian_mirror) trixie main" >"$apt/sources"
    local options=(-o "Dir::Etc::sourcelist=$apt/sources" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$apt/lists"
        -o "Dir::Cache=$apt/cache" -o APT::Sandbox::User=root)
    apt-get "${options[@]}" update -qq
    (cd "$apt" && apt-get "${options[@]}" download -qq docker-compose docker-buildx)
    for package in "$apt"/*.deb; do dpkg -x "$package" "$apt/unpacked"; done
    cp "$apt"/unpacked/usr/libexec/docker/cli-plugins/* "$DOCKER_CONFIG/cli-plugins/"
    rm -r "$apt"
}

debian_mirror() {
    awk '/^URIs:/ {print $2; exit} /^deb / {print $2; exit}' \
        /etc/apt/sources.list.d/*.sources /etc/apt/sources.list 2>/dev/null | head -n 1
}

base_image() {
    ! docker image inspect "$base" >/dev/null 2>&1 || return 0
    mkdir -p "$lab/wheels"
    "$python" docker/dependencies.py all >"$lab/dependencies.txt"
    "$python" -m pip download -qq -c constraints.txt -r "$lab/dependencies.txt" 'setuptools>=77' -d "$lab/wheels"
    printf '[global]\nno-index = true\nfind-links = /opt/wheels\n' >"$lab/pip.conf"
    mmdebstrap --quiet --variant=minbase --include=python3-venv,libstdc++6,ca-certificates \
        --customize-hook="copy-in $lab/wheels /opt" --customize-hook="copy-in $lab/pip.conf /etc" \
        bookworm - "$(debian_mirror)" | docker import - "$base"
}

if docker info >/dev/null 2>&1; then
    docker compose version
else
    own_engine
    time base_image
fi
"$python" -m pytest -x -v -s --durations=0 tests/integration/test_docker.py "$@"
