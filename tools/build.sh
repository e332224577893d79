#!/usr/bin/env bash
# Sets up and builds: `tools/build.sh` everything, `tools/build.sh TARGET...` only those targets. Programs are in build/bin.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

tools/setup.sh
# Lets a clone in another folder use the compiler cache of an earlier one.
export CCACHE_BASEDIR="$root" CCACHE_NOHASHDIR=1
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! cmake -S . -B build -G Ninja >"$log" 2>&1 </dev/null; then
  cat "$log" >&2
  exit 1
fi
cmake --build build -j "$(nproc)" ${1:+--target "$@"} </dev/null
