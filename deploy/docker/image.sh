#!/usr/bin/env bash
# image.sh ARCHIVE: builds the image `ps-rl` and saves it to ARCHIVE, which `docker load` and every cluster's containerd
# (`ctr -n k8s.io images import`) can read: for engines that cannot pull it. The build arguments of docker/Dockerfile are
# passed on where they are set. engine.sh says which engine, and LAB and PYTHON.
set -euo pipefail
archive=$(realpath "${1:?usage: image.sh ARCHIVE}")
cd "$(dirname "$0")/../.."
. deploy/docker/engine.sh
trap engine_away EXIT
docker_engine
docker compose -f docker/compose.yaml build server
image=${IMAGE:-ps-rl}
[[ $(archived "$archive") == "$(docker image inspect --format '{{.Id}}' "$image")" ]] || docker save "$image" -o "$archive"
