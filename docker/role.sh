#!/bin/sh
# What a container of the image runs: role.sh server|worker|page|status|healthy|keys [FLAG…], with further flags of its program.
# Every engine starts it, and says the rest by these variables:
#
#   PRESET   what to train (pong); empty: what the first worker proposes
#   RUN      the name of the run, a folder below /runs (the preset's name)
#   FLAGS    further flags of ps-server; those of the run are for the server that begins or resumes it, not for a standby
#   SERVERS  HOST:PORT of the server, or of both of a pair, of a worker and of the page (server:5555)
#   KEYS     folder of keys; all traffic is encrypted then, and the server is locked
#   SHARD    K/N: the server holds the K-th of N ranges of the weights, and SHARDS are the addresses of all N
#   PEER     HOST:PORT of the other server of a pair, BEGINS=yes for the one of the two that begins the run
set -eu
role=${1:?server, worker, page, status, healthy or keys}
shift
preset=${PRESET-pong}
run=${RUN:-${preset:-run}}
folder=/runs/$run
servers=${SERVERS:-server:5555}
key='' lock='' kept=$folder shard=''
if [ -n "${SHARD:-}" ]; then
    kept=$folder/shard-${SHARD%/*}-of-${SHARD#*/}
    shard="--shard $SHARD --shards $SHARDS"
fi
if [ -n "${KEYS:-}" ]; then
    key="--curve-server-key $KEYS/server.key --curve-secret $KEYS/worker.key_secret"
    lock="--curve-secret $KEYS/server.key_secret --authorized-keys $KEYS/authorized"
fi

# $key, $lock, $shard and FLAGS are several words each.
serve() {
    if has_checkpoints; then
        exec ps-server --resume "$folder" $shard $lock ${FLAGS:-} "$@"
    fi
    exec ps-server ${preset:+--preset "$preset"} --run-dir "$folder" $shard $lock ${FLAGS:-} "$@"
}

has_checkpoints() {
    ls "$kept"/checkpoints/checkpoint-*.safetensors >/dev/null 2>&1
}

# One server of a pair. A server that follows its peer is its standby, and goes on with the run after it has taken over,
# however often it is started. The one that was replaced puts its older state aside, and follows.
serve_in_pair() {
    follows=/runs/.$run.follows
    if is_replaced; then
        rm -rf "$folder.replaced"
        mv "$folder" "$folder.replaced"
        echo "role.sh: $PEER has taken over run $run; following it, with the older state kept in $folder.replaced" >&2
        touch "$follows"
    elif [ "${BEGINS:-}" != yes ] || { ! has_checkpoints && peer_serves; }; then
        touch "$follows"
    fi
    [ -e "$follows" ] || serve "$@"
    exec ps-server --standby-of "$PEER" --run-dir "$folder" $lock "$@"
}

# A server of a pair with the older epoch notes that in lineage.json, and ends. The peer is asked here for the usual case, a
# server that was killed and is started again: ps-server takes seconds to load, and would take them twice. (One that had
# itself taken over may have no lineage.json yet: as a standby it puts its older state aside.) A standby that holds the run
# is about to take over.
is_replaced() {
    own=$(cat "$folder/lineage.json" 2>/dev/null) || return 1
    echo "$own" | grep -q '"replaced_by": *"' && return
    for _ in 1 2 3 4 5 6; do
        other=$(status_of_peer) && [ "$(value_of run_id "$other")" = "$(value_of run_id "$own")" ] || return 1
        if serves "$other"; then
            [ "$(value_of epoch "$other")" -gt "$(value_of epoch "$own")" ]
            return
        fi
        sleep 1
    done
    return 1
}

peer_serves() {
    other=$(status_of_peer) && serves "$other"
}

serves() {
    echo "$1" | grep -Eq '"phase":"(serving|draining)"'
}

# As JSON; fails when there is none in time, in which ps-ctl itself takes seconds to start on a busy machine.
status_of_peer() {
    timeout 10 getent hosts "${PEER%:*}" >/dev/null && timeout 10 ps-ctl status --server "$PEER" --json $key 2>/dev/null
}

# value_of KEY JSON: the first one.
value_of() {
    echo "$2" | grep -oE "\"$1\": *\"?[0-9a-f]+" | head -n 1 | grep -oE '[0-9a-f]+$'
}

# Its token is made once, and kept where Prometheus reads it; TOKEN gives one. No command line has it.
page() {
    if [ -n "${TOKEN:-}" ]; then
        printf %s "$TOKEN" >/token/token
    elif [ ! -s /token/token ]; then
        python -c 'import secrets; print(secrets.token_urlsafe(16), end="")' >/token/token.new
        mv /token/token.new /token/token
    fi
    until [ -d "$folder" ]; do sleep 1; done # until a server has begun the run, there is nothing to show
    exec ps-web "$folder" --server "${servers%%,*}" --host 0.0.0.0 --port 8265 --token-file /token/token $key "$@"
}

# The keys of a locked server once, in /keys, and copies of what a worker needs in /worker-keys.
keys() {
    [ -e /keys/server.key ] || ps-ctl keygen /keys
    cp -p /keys/server.key /keys/worker.key_secret /worker-keys/
}

case $role in
server) if [ -n "${PEER:-}" ]; then serve_in_pair "$@"; else serve "$@"; fi ;;
worker) exec rl-worker --server "$servers" $key "$@" ;;
page) page "$@" ;;
status) exec ps-ctl status --server 127.0.0.1:5555 $key "$@" ;;
healthy) exec python /usr/local/bin/healthy.py 127.0.0.1:5555 ${KEYS:+"$KEYS/server.key" "$KEYS/worker.key_secret"} ;;
keys) keys ;;
*) echo "role.sh: there is no role $role" >&2 && exit 2 ;;
esac
