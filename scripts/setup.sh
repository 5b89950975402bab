#!/usr/bin/env bash
# Set up a virtual environment with pyserini-rescale in it. Needs a Python >= 3.11 with pip, no root, no Java.
#
#   bash scripts/setup.sh                    .venv with the preferred Python and today's packages
#   bash scripts/setup.sh --python 3.11      .venv-3.11 with that Python
#   bash scripts/setup.sh --test             with pytest, and the exact versions that the tests are run with
#   bash scripts/setup.sh --which            only say which Python would be taken
#   PYTHON=/path/to/python bash scripts/setup.sh
#
# Can be run again: what is up to date is left alone. The last line of its output names the environment.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

wanted="" mode=user which=""
while [ $# -gt 0 ]; do
  case "$1" in
    --python) [ $# -ge 2 ] || { echo "error: --python needs a version, for example 3.12" >&2; exit 2; }; wanted="$2"; shift 2 ;;
    --test) mode=test; shift ;;
    --which) which=yes; shift ;;
    -h | --help) sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "error: unknown option $1; see bash scripts/setup.sh --help" >&2; exit 2 ;;
  esac
done
venv=".venv${wanted:+-$wanted}"

usable() { # Is $1 a Python of version $2 (or any from 3.11 when empty) that starts and can make an environment?
  [ "$("$1" -c 'import sys, venv
found = sys.version_info[:2]
print(found >= (3, 11) and sys.argv[1] in ("", "%d.%d" % found))' "$2" 2> /dev/null)" = True ]
}

find_python() {
  if [ -n "${PYTHON:-}" ]; then
    usable "$PYTHON" "$wanted" && { echo "$PYTHON"; return; }
    echo "error: PYTHON=$PYTHON is not a Python ${wanted:-3.11 or later} that starts" >&2
    return 2
  fi
  local version candidate
  for version in ${wanted:-3.12 3.13 3.11}; do
    # pyenv's own shim refuses versions that are not switched on; the version's bin folder does not.
    for candidate in "python$version" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version".*/bin/python; do
      usable "$candidate" "$version" && { command -v "$candidate"; return; }
    done
  done
  for candidate in python3 python; do
    usable "$candidate" "$wanted" && { command -v "$candidate"; return; }
  done
  echo "error: no Python ${wanted:-3.11 or later} was found on PATH or under pyenv; PYTHON=/path/to/python names one" >&2
  return 2
}

if [ -n "$which" ]; then
  find_python
  exit
fi

if [ -x "$venv/bin/python" ] && usable "$venv/bin/python" "$wanted"; then
  echo "Using $venv: $("$venv/bin/python" --version)"
else
  python="$(find_python)"
  echo "Making $venv with $python: $("$python" --version)"
  rm -rf "$venv"
  if "$python" -c 'import ensurepip' 2> /dev/null; then
    "$python" -m venv "$venv"
  else
    "$python" -m venv --without-pip "$venv"
    "$python" -m pip --python "$venv/bin/python" install --quiet pip
  fi
fi

state="$(cat setup.cfg setup.py pyproject.toml pyserini_rescale_hook.pth scripts/constraints.txt | "$venv/bin/python" -c \
  'import hashlib, os, sys; print(hashlib.sha256(sys.stdin.buffer.read() + os.getcwd().encode()).hexdigest())')"
# The tested set-up serves a user as well; the other way round it may lack pytest and the exact versions.
if grep -qsx "test $state" "$venv/installed" || grep -qsx "$mode $state" "$venv/installed"; then
  echo "Packages are up to date."
else
  rm -f "$venv/installed"
  what=(-e .)
  [ "$mode" = user ] || what=(-c scripts/constraints.txt -e '.[test]')
  echo "Installing packages into $venv: some gigabytes, torch is most of it; several minutes the first time."
  # What is imported is compiled then and kept, which is less than all; where Python may not keep it, pip does it now.
  [ -n "${PYTHONDONTWRITEBYTECODE:-}" ] || what+=(--no-compile)
  "$venv/bin/python" -m pip install --disable-pip-version-check "${what[@]}" > "$venv/install.log" 2>&1 &
  pip=$!
  trap 'kill "$pip" 2> /dev/null' INT TERM
  while kill -0 "$pip" 2> /dev/null; do
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do kill -0 "$pip" 2> /dev/null && sleep 1; done
    now="$(grep -E '^ *(Collecting|Downloading|Building|Installing|Successfully)' "$venv/install.log" | tail -n 1 | cut -c1-60)"
    echo "  ${SECONDS} s: ${now:-starting}"
  done
  if ! wait "$pip"; then
    grep -E '^ERROR' "$venv/install.log" | head -n 5 >&2 || true
    echo "error: pip could not install the packages; all it said is in $venv/install.log" >&2
    exit 1
  fi
  echo "$mode $state" > "$venv/installed"
fi
echo "$venv"
