#!/usr/bin/env bash
# Set up, then see what a rescale does: python -m pyserini_rescale quickstart, about ten minutes. Options are passed on.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

log="$(mktemp)"
trap 'rm -f "$log"' EXIT
bash scripts/setup.sh | tee "$log"
venv="$(tail -n 1 "$log")"
"$venv/bin/python" -m pyserini_rescale quickstart "$@"
echo
echo "The commands above are for the environment $venv: type  source $venv/bin/activate  first."
