#!/usr/bin/env bash
# Makes the Python environment of the golden scripts.
#   REPRISE_GOLDEN_VENV  where it goes (default: .venv-golden in the repository root)
# About 6 GB: the stock torch wheel brings its GPU libraries along, they are not used.
set -euo pipefail
cd "$(dirname "$0")/../.."
venv="${REPRISE_GOLDEN_VENV:-.venv-golden}"
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
echo '*' > "$venv/.gitignore"
"$venv/bin/python" -m pip install --quiet -r tools/golden/requirements.txt
"$venv/bin/python" -c 'import gguf, jinja2, safetensors, tokenizers, torch, transformers
print("golden environment ready: torch", torch.__version__, "transformers", transformers.__version__)'
