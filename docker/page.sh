#!/bin/sh
# The page and the metrics of the run $RUN. Its token is made once, and kept where Prometheus reads it. Arguments are
# further flags of ps-web.
set -eu
run=${RUN:-${PRESET:-pong}}
token=/token/token
if [ ! -s "$token" ]; then
    python -c 'import secrets; print(secrets.token_urlsafe(16), end="")' >"$token.new"
    mv "$token.new" "$token"
fi
exec ps-web "/runs/$run" --server server:5555 --host 0.0.0.0 --port 8265 --token "$(cat "$token")" "$@"
