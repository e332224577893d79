#!/usr/bin/env bash
# Builds the documentation site: `tools/site.sh`, then open build/site/index.html. A broken link, or a page that the
# index does not list, is an error. The notebooks among the tutorials run, so tcc and libtrun are built first.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tools/setup.sh site
tools/build.sh tcc libtrun
rm -rf build/site
.venv-site/bin/python -m sphinx --quiet --fail-on-warning --keep-going --fresh-env --jobs auto -c tools/site \
  -d build/site-cache . build/site
echo "site: build/site/index.html"
