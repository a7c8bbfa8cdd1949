#!/bin/sh
# What can be proved of the engine `vllm` without a GPU, against the real torch 2.11.0 and the real vllm 0.22.0 wheel.
# Usage: tests/vllm_engine/with_wheel.sh [FOLDER]   FOLDER: environment to make or reuse, default .wheel-venv
# Makes 5 to 6 GB of environment in a few minutes, a stub libcuda.so.1 with gcc, and runs the tests marked vllm_wheel.
set -eu
cd "$(dirname "$0")/../.."
venv="${1:-.wheel-venv}"
python="${PYTHON:-python3}"

if [ ! -e "$venv/ready" ]; then
  "$python" -m venv "$venv"
  pip="$venv/bin/python -m pip install --quiet --disable-pip-version-check"
  $pip torch==2.11.0 numpy
  $pip --no-deps vllm==0.22.0
  # what `import vllm...marlin_moe` needs, and no more
  $pip packaging psutil pyzmq urllib3 regex pydantic cbor2 transformers gguf aiohttp openai-harmony openai cloudpickle \
    cachetools msgspec prometheus_client blake3 pillow PyYAML click 'rfc8785==0.1.4' safetensors pytest
  touch "$venv/ready"
fi
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps -e .

# four names are all that the libraries want of the driver before they are asked to compute
mkdir -p "$venv/stub"
cat > "$venv/stub/libcuda.c" <<'C'
int cuInit(unsigned flags) { return 100; }
int cuGetProcAddress_v2(void) { return 100; }
int cuPointerGetAttribute(void) { return 100; }
int cuTensorMapEncodeTiled(void) { return 100; }
C
gcc -shared -fPIC -Wl,-soname,libcuda.so.1 -o "$venv/stub/libcuda.so.1" "$venv/stub/libcuda.c"

LD_LIBRARY_PATH="$venv/stub" VLLM_LOGGING_LEVEL=ERROR "$venv/bin/python" -m pytest -q -m vllm_wheel \
  -o filterwarnings=default -p no:cacheprovider tests/vllm_engine
