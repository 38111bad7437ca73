#!/usr/bin/env bash
# Turns a bare machine into one that runs Reef: uv, the environment .venv, then deploy/prepare.py for the rest.
# May be run again at any time: what is done already is left alone, which takes seconds.
# Needs Python 3.11 with pip, a JDK, Maven and Go; on Debian, root gets what is missing from apt.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="${PATH//"$PWD/.venv/bin:"/}" # an activated environment must not be made from itself

export REEF_CACHE="${REEF_CACHE:-$HOME/.cache/reef}"
export UV_CACHE_DIR="$REEF_CACHE/uv" UV_LINK_MODE="${UV_LINK_MODE:-hardlink}"
uv_version=0.13.9
uv_folder="$REEF_CACHE/uv-$uv_version"

quiet=()
[ -t 2 ] || quiet=(--quiet) # a list of every package is nothing for a log

say() { printf '%s\n' "$*" >&2; }

fail() {
  say "setup: $*"
  exit 1
}

is_whole_python='import asyncio, ctypes, lzma, sqlite3, ssl, sys; sys.exit(sys.version_info[:2] != (3, 11))'

has() { command -v "$1" >/dev/null 2>&1; }

# The distribution's own first: it was built with profiles, which makes everything here a fifth faster
# (docs/decisions/interpreter.md). REEF_PYTHON names another.
find_python() {
  local candidate
  for candidate in ${REEF_PYTHON:+"$REEF_PYTHON"} /usr/bin/python3.11 python3.11 python3; do
    if has "$candidate" && "$candidate" -c "$is_whole_python" 2>/dev/null; then
      command -v "$candidate"
      return
    fi
  done
}

# Any Python's pip brings uv, which needs no certain Python itself.
find_pip_python() {
  local candidate
  for candidate in "$(find_python)" python3; do
    if "$candidate" -m pip --version >/dev/null 2>&1; then
      echo "$candidate"
      return
    fi
  done
}

# Debian's package for each program that is missing here.
missing_packages() {
  [ -n "$(find_python)" ] || echo python3
  [ -n "$(find_pip_python)" ] || echo python3-pip
  has java || echo openjdk-17-jdk-headless
  has mvn || [ -d "$REEF_CACHE/kafka-4.1.1" ] || echo maven
  has go || compgen -G "$REEF_CACHE/lakefs-*" >/dev/null || echo golang-go
}

install_missing_packages() {
  local packages
  mapfile -t packages < <(missing_packages)
  [ "${#packages[@]}" -gt 0 ] || return 0
  if [ "$(id -u)" = 0 ] && has apt-get; then
    say "installing ${packages[*]} with apt-get"
    apt-get update -q >&2
    DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${packages[@]}" >&2
  else
    say "missing here: ${packages[*]} (on Debian: apt-get install ${packages[*]})"
  fi
}

# Into a folder aside, renamed when whole: a setup that was killed leaves nothing half made.
install_uv() {
  [ -x "$uv_folder/bin/uv" ] && return
  say "installing uv $uv_version"
  rm -rf "$uv_folder.making"
  mkdir -p "$REEF_CACHE"
  "$pip_python" -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --require-hashes \
    --target "$uv_folder.making" -r deploy/requirements-uv.lock >&2
  rm -rf "$uv_folder"
  mv "$uv_folder.making" "$uv_folder"
}

install_environment() {
  local stamp
  stamp="$(cat requirements.lock pyproject.toml | sha256sum) $("$python" -VV) $python $PWD"
  if [ -x .venv/bin/python ] && [ "$(cat .venv/.stamp 2>/dev/null)" = "$stamp" ]; then
    return
  fi
  say "installing the Python environment .venv"
  uv venv --quiet --allow-existing --python "$python" .venv
  uv pip sync "${quiet[@]}" --require-hashes --only-binary :all: --compile-bytecode --python .venv/bin/python requirements.lock
  uv pip install --quiet --no-deps --no-build-isolation --python .venv/bin/python -e .
  printf '%s\n' "$stamp" >.venv/.stamp
}

install_missing_packages
python="$(find_python)"
[ -n "$python" ] || fail "expected Python 3.11 on PATH, found none: install it"
pip_python="$(find_pip_python)"
[ -n "$pip_python" ] || fail "expected pip for $python, found none: install it (on Debian: apt-get install python3-pip)"
install_uv
export PATH="$uv_folder/bin:$PATH"
install_environment
.venv/bin/python -m deploy.prepare
say "set up in $REEF_CACHE ($SECONDS s)"
