#!/usr/bin/env bash
# test.sh CACHE
#
# Builds the Python package as a wheel, installs it in clean environments, and tests it there against the real binary.
# CACHE keeps the environments from run to run.
set -euo pipefail
cache=$(realpath "${1:?usage: test.sh CACHE}")
cd "$(dirname "${BASH_SOURCE[0]}")"
unset PYTHONPATH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The environment with what the tests need beside the package is made once for each set of requirements.
venv=$cache/python-client
wanted=$(cat tests/requirements.txt ../internal/e2e/testdata/requirements.txt)
if [ "$(cat "$venv/.installed" 2>/dev/null)" != "$wanted" ]; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install -q --disable-pip-version-check -r tests/requirements.txt
  echo "$wanted" >"$venv/.installed"
fi

echo "wheel"
mkdir "$work/source"
cp -r pyproject.toml README.md src "$work/source/" # a build leaves files beside the source
"$venv/bin/pip" wheel -q --disable-pip-version-check --no-deps -w "$work" "$work/source"
"$venv/bin/pip" install -q --disable-pip-version-check --no-index --no-deps --force-reinstall "$work"/*.whl

echo "alone, without numpy and without anything else"
python3 -m venv --without-pip "$work/bare"
"$venv/bin/pip" --python "$work/bare/bin/python" install -q --disable-pip-version-check --no-index "$work"/*.whl
"$work/bare/bin/python" -I -c '
import capture_proxy
try:
    capture_proxy.rows_as_numpy([])
except ImportError as error:
    assert "capture-proxy[numpy]" in str(error), error
else:
    raise SystemExit("numpy is there, this is no bare environment")'

echo "types"
(cd "$work" && "$venv/bin/mypy" --strict --cache-dir "$cache/mypy" -p capture_proxy)
"$venv/bin/mypy" --strict --cache-dir "$cache/mypy" --follow-imports=silent --disable-error-code=import-not-found examples/collect.py examples/feed_trl.py examples/feed_verifiers.py

echo "binary"
(cd .. && go build -o "$work/capture-proxy" ./cmd/capture-proxy)
CAPTURE_PROXY_BINARY=$work/capture-proxy "$venv/bin/python" -W error::ResourceWarning -m unittest discover -s tests
