#!/bin/sh
# Makes the keys of a locked server once, in /keys, and puts copies of what a worker needs into /worker-keys.
set -eu
[ -e /keys/server.key_secret ] || ps-ctl keygen /keys
cp -p /keys/server.key /keys/worker.key_secret /worker-keys/
