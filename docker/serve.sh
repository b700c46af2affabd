#!/bin/sh
# The server of the run $RUN (the name of its preset unless given): goes on with it where its folder has checkpoints,
# and begins it where not. Arguments are further flags of ps-server.
set -eu
preset=${PRESET:-pong}
folder=/runs/${RUN:-$preset}
if ls "$folder"/checkpoints/checkpoint-*.safetensors >/dev/null 2>&1; then
    exec ps-server --resume "$folder" "$@"
fi
exec ps-server --preset "$preset" --run-dir "$folder" "$@"
