#!/usr/bin/env bash
# Set up, then run the main job on a small collection: python -m pyserini_rescale quickstart. Options are passed on.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

log="$(mktemp)"
trap 'rm -f "$log"' EXIT
bash scripts/setup.sh | tee "$log"
"$(tail -n 1 "$log")/bin/python" -m pyserini_rescale quickstart "$@"
