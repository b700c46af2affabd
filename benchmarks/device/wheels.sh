#!/usr/bin/env bash
# Fetches what a machine without a network lacks into .wheels/ (6 MB, ignored by git): wheels for Python 3.12 on x86-64.
# That machine has torch, numpy, matplotlib, safetensors, aiohttp, prometheus-client and pytest with xdist.
set -euo pipefail
cd "$(dirname "$0")/../.."
names='ale-py|docstring_parser|Farama-Notifications|gymnasium|ImageIO|msgpack|msgspec|pyzmq|rich|simpy|tensorboardX|tomli_w|typeguard|tyro|xxhash'
platforms=$(printf -- '--platform manylinux_2_%s_x86_64 ' 28 27 26 17 12)
# shellcheck disable=SC2046,SC2086
python3 -m pip download -q --no-deps --only-binary=:all: --python-version 3.12 --implementation cp \
    $platforms --platform manylinux2014_x86_64 -d .wheels $(grep -iE "^($names)==" constraints.txt)
du -sh .wheels
