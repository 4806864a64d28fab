#!/usr/bin/env bash
# Other proxies that capture, and a gateway, measured beside capture-proxy on this machine: one command, nothing to configure.
#
#   docs/peers/run.sh             the table of docs/performance.md, "Beside other captures"
#   docs/peers/run.sh --json      what `capture-proxy bench` prints with the same flags
#
# Starts the bench's engine, every peer in front of it on a free port of 127.0.0.1, and the bench; ends what it started, and
# nothing else. Needs Go, and Python 3.11 or newer with venv. The peers are installed into a cache folder once (1 GB, some
# minutes); after that it takes about four minutes. Nothing else should be busy meanwhile.
#
#   CAPTURE_PROXY_TEST_CACHE   where to install; default ${XDG_CACHE_HOME:-$HOME/.cache}/capture-proxy
#   TMPDIR                     which disk the stores are on, capture-proxy's and the peers'
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
venv=${CAPTURE_PROXY_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/capture-proxy}/peers
work=$(mktemp -d "${TMPDIR:-/tmp}/capture-proxy-peers-XXXXXX")
pids=()

finish() {
  local pid
  for pid in "${pids[@]}"; do
    kill "$pid" 2>/dev/null || true # it may have ended by itself
  done
  for pid in "${pids[@]}"; do
    for _ in $(seq 100); do
      kill -0 "$pid" 2>/dev/null || break
      sleep 0.1
    done
    kill -KILL "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
  rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

stop() {
  printf 'STOPPED: %s\n' "$1" >&2
  exit 1
}

# --- install

command -v go >/dev/null || stop "go is missing: install Go"
python3 -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' || stop "install Python 3.11 or newer with venv"
if ! cmp -s "$here/requirements.txt" "$venv/.installed"; then
  echo "installing the peers into $venv" >&2
  rm -rf "$venv"
  { python3 -m venv "$venv" && "$venv/bin/pip" install -q --no-deps -r "$here/requirements.txt"; } >"$work/install.log" 2>&1 || {
    tail -n 30 "$work/install.log" >&2
    stop "installing the peers failed, see above"
  }
  cp "$here/requirements.txt" "$venv/.installed"
fi
(cd "$here/../.." && go build -o "$work/capture-proxy" ./cmd/capture-proxy)

# --- start

# start NAME COMMAND… runs a server; its output goes to a file of that name.
start() {
  local name=$1
  shift
  (cd "$work" && exec "$@") >"$work/$name.log" 2>&1 &
  pids+=($!)
  pid=$!
}

# ready NAME PID COMMAND… waits until a server is ready, as its command says.
ready() {
  local name=$1 pid=$2 until=$((SECONDS + 120))
  shift 2
  until "$@" >/dev/null 2>&1; do
    kill -0 "$pid" 2>/dev/null && ((SECONDS < until)) || {
      tail -n 30 "$work/$name.log" >&2
      stop "$name did not start, see above"
    }
    sleep 0.2
  done
}

answers() {
  "$venv/bin/python" -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=2)' "$1"
}

export NO_PROXY=127.0.0.1 no_proxy=127.0.0.1
export LITELLM_LOCAL_MODEL_COST_MAP=True LITELLM_MODE=PRODUCTION LITELLM_LOG=ERROR # no download at start, no debug output
read -r p1 p2 p3 p4 <<<"$("$venv/bin/python" -c '
import socket
taken = [socket.socket() for _ in range(4)]
for s in taken: s.bind(("127.0.0.1", 0))
print(*(s.getsockname()[1] for s in taken))')"

start engine "$work/capture-proxy" bench worker engine --stay
engine_pid=$pid
ready engine "$engine_pid" grep -q '^http://' "$work/engine.log"
engine=$(head -n 1 "$work/engine.log")

start openenv "$venv/bin/python" -m openenv.core.harness.capture.server --llm-url "$engine" --model bench --host 127.0.0.1 --port "$p1"
openenv=$pid
start rllm "$venv/bin/rllm-model-gateway" --host 127.0.0.1 --port "$p2" --worker "$engine/v1" --db-path "$work/traces.db" --log-level WARNING
rllm=$pid
start rllm-memory "$venv/bin/rllm-model-gateway" --host 127.0.0.1 --port "$p3" --worker "$engine/v1" --store memory --log-level WARNING
memory=$pid
key=sk-$("$venv/bin/python" -c 'import secrets; print(secrets.token_hex(16))')
cat >"$work/litellm.yaml" <<YAML
model_list:
  - model_name: bench
    litellm_params: {model: hosted_vllm/bench, api_base: "$engine/v1", api_key: none}
general_settings: {master_key: "$key"}
YAML
start litellm "$venv/bin/litellm" --config "$work/litellm.yaml" --host 127.0.0.1 --port "$p4" --num_workers 1 --telemetry False
litellm=$pid

ready openenv "$openenv" answers "http://127.0.0.1:$p1/health"
ready rllm "$rllm" answers "http://127.0.0.1:$p2/health"
ready rllm-memory "$memory" answers "http://127.0.0.1:$p3/health"
ready litellm "$litellm" answers "http://127.0.0.1:$p4/health/readiness"

# --- measure

"$work/capture-proxy" bench --engine "$engine" --dir "$work" "$@" \
  --peer "OpenEnv=http://127.0.0.1:$p1,sessions=openenv,pid=$openenv" \
  --peer "rllm, SQLite=http://127.0.0.1:$p2,sessions=rllm,pid=$rllm" \
  --peer "rllm, memory=http://127.0.0.1:$p3,sessions=rllm,pid=$memory" \
  --peer "LiteLLM=http://127.0.0.1:$p4,pid=$litellm,Authorization: Bearer $key" &
pids+=($!) # in the background, so that a signal to this script ends it at once
status=0
wait "$!" || status=$?
unset 'pids[-1]'
{
  "$venv/bin/python" --version
  grep -E '^(openenv|rllm-model-gateway|litellm|uvicorn)==' "$here/requirements.txt"
} >&2
exit $status
