#!/usr/bin/env bash
# Installs everything that the build and the tests need on a Debian 12: packages (as root, or through sudo), a Python
# environment in .venv, and the ONNX C++ library in .deps/onnx. Does nothing, quickly, where all of it is there.
#
#   tools/setup.sh              DEPENDENCIES.md says what is installed and why
#   tools/setup.sh nightly      also what tools/nightly.sh needs: more packages, and PyTorch in .venv-nightly
#   tools/setup.sh release      also what tools/wheel.sh needs, in .venv-release
#   tools/setup.sh site         also what tools/site.sh needs, in .venv-site
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

package_lists=(tools/packages.txt)
environments=(.venv:tools/requirements.txt)
case "${1:-}" in
"") ;;
nightly)
  package_lists+=(tools/packages-nightly.txt)
  environments+=(.venv-nightly:tools/requirements-nightly.txt)
  ;;
release) environments+=(.venv-release:tools/requirements-release.txt) ;;
site) environments+=(.venv-site:tools/requirements-site.txt) ;;
*) echo "usage: tools/setup.sh [nightly | release | site]" >&2 && exit 2 ;;
esac

say() { printf 'setup: %s\n' "$*" >&2; }
fail() { printf 'setup: error: %s\n' "$*" >&2; exit 1; }

# Runs a command quietly; shows what it printed only if it fails.
quietly() {
  local log
  log=$(mktemp)
  if ! "$@" >"$log" 2>&1 </dev/null; then
    cat "$log" >&2
    rm -f "$log"
    fail "failed: $*"
  fi
  rm -f "$log"
}

install_packages() {
  local wanted missing=() package sudo=()
  mapfile -t wanted < <(grep -hv '^#' "${package_lists[@]}")
  for package in "${wanted[@]}"; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || fail "not root and no sudo: install these packages first: ${missing[*]}"
    sudo=(sudo)
  fi
  say "installing ${#missing[@]} Debian packages: ${missing[*]}"
  quietly "${sudo[@]}" apt-get update
  quietly "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"
}

# Debian's own interpreter: what else lies on the PATH may be of any version.
install_python() {
  local folder=$1 requirements=$2 stamp
  stamp=$(sha256sum <"$requirements")
  [ "$(cat "$folder/stamp" 2>/dev/null)" = "$stamp" ] && return
  say "installing the Python environment $folder"
  rm -rf "$folder"
  quietly /usr/bin/python3 -m venv "$folder"
  quietly "$folder/bin/pip" install --no-deps --only-binary :all: -r "$requirements"
  echo "$stamp" >"$folder/stamp"
}

# Without it everything but trun-arrow.so is built.
install_arrow() {
  local stamp
  stamp=$(sha256sum <tools/requirements-arrow.txt)
  [ "$(cat .venv/stamp-arrow 2>/dev/null)" = "$stamp" ] && return
  say "installing Arrow into .venv"
  quietly .venv/bin/pip install --no-deps --only-binary :all: -r tools/requirements-arrow.txt
  echo "$stamp" >.venv/stamp-arrow
}

# Debian's ONNX is too old, and a Python wheel holds no C++ library: the source distribution is built.
onnx_version=1.23.2
onnx_sha256=008cb0467b2bbee41448acc7da8b6f4e704624cb0d327a2d5adafc7ce19bc5b8
onnx_options=(-DCMAKE_BUILD_TYPE=Release -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DCMAKE_INSTALL_LIBDIR=lib
              -DONNX_BUILD_PYTHON=OFF -DONNX_USE_UNITY_BUILD=ON -DONNX_USE_PROTOBUF_SHARED_LIBS=ON)

install_onnx() {
  local stamp="$onnx_version $onnx_sha256 ${onnx_options[*]}" work=.deps/onnx.work
  [ "$(cat .deps/onnx/stamp 2>/dev/null)" = "$stamp" ] && return
  say "building the ONNX $onnx_version library (about a minute)"
  rm -rf "$work"
  mkdir -p "$work/download"
  echo "onnx==$onnx_version --hash=sha256:$onnx_sha256" >"$work/requirement.txt"
  # pip asks even a mere download for its metadata; with the build back end at hand that takes a second.
  PATH="$root/.venv/bin:$PATH" quietly .venv/bin/pip download --no-deps --no-binary onnx --no-build-isolation \
    -r "$work/requirement.txt" -d "$work/download"
  tar -xzf "$work/download/onnx-$onnx_version.tar.gz" -C "$work"
  quietly .venv/bin/cmake -S "$work/onnx-$onnx_version" -B "$work/build" -G Ninja "${onnx_options[@]}" \
    -DCMAKE_INSTALL_PREFIX="$root/$work/install" -DCMAKE_CXX_COMPILER_LAUNCHER=ccache \
    -DPython3_EXECUTABLE=/usr/bin/python3
  quietly .venv/bin/cmake --build "$work/build" -j 2
  quietly .venv/bin/cmake --install "$work/build"
  echo "$stamp" >"$work/install/stamp"
  rm -rf .deps/onnx
  mv "$work/install" .deps/onnx
  rm -rf "$work"
}

install_packages
for environment in "${environments[@]}"; do install_python "${environment%:*}" "${environment#*:}"; done
install_arrow
install_onnx
