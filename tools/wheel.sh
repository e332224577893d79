#!/usr/bin/env bash
# Makes the wheels in dist/, with all libraries that a Linux system with glibc 2.34 lacks, and checks them:
#
#   tools/wheel.sh            both: tcc_train (libtrun, trun, the Python package), tcc_train_compiler (tcc, tcc-plan)
#   tools/wheel.sh runtime    the first alone, which needs no LLVM
#   tools/wheel.sh compiler   the second alone
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tools/setup.sh release
export CCACHE_BASEDIR="$PWD" CCACHE_NOHASHDIR=1 PATH="$PWD/.venv-release/bin:$PATH"
# One build folder serves both; each wheel takes some components of the installation.
build=$PWD/build-standalone
[ $# -gt 0 ] || set -- runtime compiler
mkdir -p dist
for part; do
  case $part in
  runtime) source=. ;;
  compiler) source=python/compiler ;;
  *) echo "usage: tools/wheel.sh [runtime] [compiler]" >&2 && exit 2 ;;
  esac
  rm -rf "$build/wheels"
  pip wheel "$source" --quiet --no-deps --no-build-isolation --wheel-dir "$build/wheels" --config-settings "build-dir=$build" \
    --config-settings cmake.define.TCC_STANDALONE=ON </dev/null
  python tools/check_wheel.py "$build"/wheels/*.whl
  # The check holds files to what this tag promises.
  python -m wheel tags --remove --platform-tag manylinux_2_34_x86_64 "$build"/wheels/*.whl >/dev/null
  mv "$build"/wheels/*.whl dist/
done
ls -l dist
