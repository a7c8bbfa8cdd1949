#!/bin/sh
# The simulation against code that nobody here wrote: torch, AutoAWQ, vLLM's CPU helpers, MMA-Sim. No GPU needed.
# Usage: tests/cross/with_oracles.sh [FOLDER]   FOLDER: environment to make or reuse, default .cross-venv
# Makes some 2 GB of environment in three to five minutes; the tests themselves take one or two. Needs g++ (MMA-Sim
# compiles a helper when it is first imported).
set -eu
cd "$(dirname "$0")/../.."
venv="${1:-.cross-venv}"
python="${PYTHON:-python3}"

if [ ! -e "$venv/ready" ]; then
  "$python" -m venv "$venv"
  pip="$venv/bin/python -m pip install --quiet --disable-pip-version-check"
  $pip torch==2.13.0 'numpy>=2.2,<3' ninja setuptools
  # what importing vLLM's quantisation helpers and AutoAWQ's linear layer needs, and no more
  $pip transformers==5.24.0 accelerate 'datasets<5' zstandard \
    packaging psutil pyzmq urllib3 regex cbor2 gguf aiohttp openai-harmony openai cloudpickle cachetools msgspec \
    prometheus_client blake3 pillow \
    'pydantic>=2.11,<3' 'PyYAML>=6.0.2,<7' 'rfc8785==0.1.4' 'click>=8.1.8,<9' 'safetensors>=0.5,<1' pytest hypothesis
  # --no-deps: each of them asks for another torch, and for much that its reference code never touches
  $pip --no-deps vllm==0.22.0 autoawq==0.2.9 mmasim==2.1.1
  touch "$venv/ready"
fi
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps -e .

TORCH_EXTENSIONS_DIR="$(cd "$venv" && pwd)/extensions" VLLM_LOGGING_LEVEL=CRITICAL \
  "$venv/bin/python" -m pytest -q -m cross -o filterwarnings=default -W ignore -p no:cacheprovider tests/cross
