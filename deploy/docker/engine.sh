# For bash, sourced: the Docker engine that a scenario builds and runs with. Where one answers, it is that one. Where none
# does, and this is root on Debian, it is one of its own in a network namespace of its own, so that the machine's firewall
# and interfaces stay as they are. That engine cannot pull images nor reach a package index, so a base image is made from
# Debian packages, with all wheels inside.
#
# LAB=folder keeps the engine's files and the wheels for the next time. PYTHON is one that has pip (.venv/bin/python).
# The working folder is the repository's root.
BASE_IMAGE=python:3.11-slim-bookworm # what docker/Dockerfile names
ENGINE_NAMESPACE=ps-rl-docker
ENGINE_ADDRESS=10.213.1.1

# docker_engine: afterwards `docker` and `docker compose` work; engine_away puts away what it started. Ends the script
# with status 77 where no engine can be had.
docker_engine() {
    if docker info >/dev/null 2>&1; then
        docker compose version
        return
    fi
    [[ $(id -u) == 0 ]] || { echo "skipped: no Docker engine answers, and only root can start one" >&2; exit 77; }
    engine_programs || { echo "skipped: no Docker engine answers, and apt has none to install" >&2; exit 77; }
    engine_folder
    docker compose version >/dev/null 2>&1 || compose_plugin
    ip netns add "$ENGINE_NAMESPACE"
    ip -n "$ENGINE_NAMESPACE" link set lo up
    ip -n "$ENGINE_NAMESPACE" addr add "$ENGINE_ADDRESS/32" dev lo
    start_engine "$ENGINE_NAMESPACE" "$lab" "$ENGINE_ADDRESS"
    export DOCKER_HOST=unix://$lab/docker.sock
    time base_image
}

engine_programs() {
    { command -v dockerd && command -v iptables && command -v mmdebstrap; } >/dev/null && return
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends docker.io iptables mmdebstrap; } >&2
}

engine_folder() {
    lab=${LAB:-$(mktemp -d /tmp/ps-rl-docker.XXXXXX)}
    mkdir -p "$lab"
    lab=$(cd "$lab" && pwd)
}

# start_engine NAMESPACE FOLDER ADDRESS: dockerd with all its files in FOLDER, and a name server at ADDRESS, which is one
# of the namespace. Not `ip netns exec`: that mounts a /sys without control groups.
start_engine() {
    mkdir -p "$2"
    : >"$2/dockerd.log"
    nsenter "--net=/run/netns/$1" python3 deploy/docker/name_server.py "$3" &
    echo $! >"$2/name-server.pid"
    setsid nsenter "--net=/run/netns/$1" dockerd --data-root "$2/data" --exec-root "$2/exec" \
        --pidfile "$2/docker.pid" -H "unix://$2/docker.sock" --dns "$3" >"$2/dockerd.log" 2>&1 &
    local engine=$!
    if ! grep -q -m 1 'API listen' < <(timeout 60 tail --pid="$engine" -n +1 -f "$2/dockerd.log"); then
        tail -n 5 "$2/dockerd.log" >&2
        return 1
    fi
}

# stop_engine FOLDER
stop_engine() {
    if [[ -s $1/docker.pid ]]; then
        local engine
        engine=$(<"$1/docker.pid")
        kill "$engine" && tail --pid="$engine" -f /dev/null
    fi
    [[ ! -s $1/name-server.pid ]] || kill "$(<"$1/name-server.pid")" 2>/dev/null || true
    rm -f "$1/name-server.pid"
    umount "$1/exec/netns/default" 2>/dev/null || true # the engine leaves this one mounted
}

engine_away() {
    [[ -n ${lab:-} ]] || return 0
    stop_engine "$lab"
    ip netns del "$ENGINE_NAMESPACE" 2>/dev/null || true
    [[ -n ${LAB:-} ]] || rm -rf "$lab"
}

# archived ARCHIVE: the id of the image that `docker save` wrote there; nothing where there is none.
archived() {
    [[ -s $1 ]] || return 0
    tar -xOf "$1" manifest.json | grep -oE '"Config":"[^"]*[0-9a-f]{64}' | grep -oE '[0-9a-f]{64}$' | sed 's/^/sha256:/'
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
    local inside
    inside=$(cat pyproject.toml constraints.txt docker/dependencies.py | sha256sum)
    if docker image inspect "$BASE_IMAGE" >/dev/null 2>&1 && [[ $(cat "$lab/wheels.sum" 2>/dev/null) == "$inside" ]]; then
        return
    fi
    rm -rf "$lab/wheels"
    mkdir -p "$lab/wheels"
    local python=${PYTHON:-.venv/bin/python}
    "$python" docker/dependencies.py all >"$lab/dependencies.txt"
    "$python" -m pip download -qq -c constraints.txt -r "$lab/dependencies.txt" 'setuptools>=77' -d "$lab/wheels"
    printf '[global]\nno-index = true\nfind-links = /opt/wheels\n' >"$lab/pip.conf"
    mmdebstrap --quiet --variant=minbase --include=python3-venv,libstdc++6,ca-certificates \
        --customize-hook="copy-in $lab/wheels /opt" --customize-hook="copy-in $lab/pip.conf /etc" \
        bookworm - "$(debian_mirror)" | docker import - "$BASE_IMAGE"
    echo "$inside" >"$lab/wheels.sum"
}
