#!/usr/bin/env bash
# install_torch.sh VENV   Installs the trainers whose loaders need torch, for a run by hand (2.4 GB, ten minutes and more; Python 3.12).
set -euo pipefail
venv=${1:?usage: install_torch.sh VENV}
[ -e "$venv/.installed" ] && exit 0
py=${PYTHON:-$(ls -d "$HOME"/.pyenv/versions/3.12*/bin/python 2>/dev/null | tail -1)}
"${py:-python3.12}" -m venv "$venv"
"$venv/bin/pip" install -q torch numpy 'pydantic>=2' fastapi httpx orjson pillow requests uvicorn 'pyvers<0.2' importlib_metadata cloudpickle jaxtyping loguru transformers accelerate datasets hydra-core trl==1.16.0
"$venv/bin/pip" install -q --no-deps areal==1.0.4 atroposlib==0.4.0 miles-rl==0.0.2 skyrl==0.4.0 verl==0.9.1 tensordict==0.10.0
"$venv/bin/pip" install -q --no-deps --ignore-requires-python nemo-gym==0.7.0
touch "$venv/.installed"
