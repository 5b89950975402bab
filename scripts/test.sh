#!/usr/bin/env bash
# Set up and run the tests. What follows is pytest's, all tests by default.
#
#   bash scripts/test.sh
#   bash scripts/test.sh -m "not slow"
#   bash scripts/test.sh --python 3.11 tests/plugin
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case "${1:-}" in -h | --help) sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
options=(--test)
if [ "${1:-}" = --python ]; then
  [ $# -ge 2 ] || { echo "error: --python needs a version, for example 3.11" >&2; exit 2; }
  options+=(--python "$2")
  shift 2
fi
log="$(mktemp)"
trap 'rm -f "$log"' EXIT
bash scripts/setup.sh "${options[@]}" | tee "$log"
# Two tests at a time, a file's tests together; one thread each, since busy threads that share a core are many times slower.
OMP_NUM_THREADS=1 "$(tail -n 1 "$log")/bin/python" -m pytest --numprocesses 2 --dist loadfile "$@"
