#!/usr/bin/env bash
# Readers of others' files (data sets, tensor files, checkpoints) under AddressSanitizer and UndefinedBehaviorSanitizer: replays
# of fuzz targets, and the unit tests of data sets. `test/sanitized.sh BUILD_FOLDER`. tools/nightly.sh runs the other tests.
# Several sources are compiled as one, since otherwise headers take half of the time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=$1
export CCACHE_BASEDIR="$PWD" CCACHE_NOHASHDIR=1 UBSAN_OPTIONS=print_stacktrace=1 ASAN_OPTIONS=detect_leaks=0:exitcode=86
cmake -S . -B "$build" -G Ninja -DTCC_SANITIZE=address -DTCC_BUILD_COMPILER=OFF -DCMAKE_UNITY_BUILD=ON >/dev/null
cmake --build "$build" -j "$(nproc)" --target fuzz-safetensors fuzz-data fuzz-checkpoint DataTest
ctest --test-dir "$build" -j "$(nproc)" --output-on-failure --no-tests=error \
  -R '^(fuzz\.(safetensors|data|checkpoint)$|data\.)'
