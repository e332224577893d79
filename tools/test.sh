#!/usr/bin/env bash
# Sets up, builds and runs every test: `tools/test.sh`, or `tools/test.sh -R NAME` with any options of ctest.
# The last line is "N passed, N failed"; exit status 1 if any failed or the build did.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

began=$SECONDS
tools/setup.sh site
set_up=$((SECONDS - began))
began=$SECONDS
tools/build.sh
built=$((SECONDS - began))

# Results of an earlier, failed run must not be counted.
rm -rf build/tests.xml build/shards
# To run everything, many cases share a process. Chosen tests have a process for each case, so that -R finds it by name.
[ $# -gt 0 ] && twice=shard || twice=case
# Tests share the machine code of equal kernels (test/e2e/common.py).
TCC_TEST_CACHE=$(mktemp -d)
export TCC_TEST_CACHE
trap 'rm -rf "$TCC_TEST_CACHE"' EXIT
status=0
ctest --test-dir build -j "$(nproc)" --output-on-failure --output-junit tests.xml --no-tests=error -LE "^$twice\$" "$@" </dev/null || status=$?
.venv/bin/python tools/summary.py build/tests.xml --set-up "$set_up" --build "$built" || status=1
exit "$status"
