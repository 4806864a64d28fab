#!/usr/bin/env bash
# check_loaders.sh BINARY VENV LOADERS
#
# Exports three sets of rollouts with BINARY and reads each file with the trainer's own classes: the demo of the built-in
# engine, a forked, retried, multi-root session, and a group of eight. The trainer must see as many trained tokens as
# export printed. VENV has the trainers installed, LOADERS is the folder with a loader for each. FORMATS chooses the formats; the
# default are those whose loaders need no torch.
set -euo pipefail
usage="usage: check_loaders.sh BINARY VENV LOADERS"
binary=$(realpath "${1:?$usage}")
venv=${2:?$usage}
loaders=${3:?$usage}
here=$(cd "$(dirname "$0")" && pwd)
formats=${FORMATS:-openenv verifiers tinker tinker-sft atif}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The demo scores nothing. A reward lets the formats that need one take it.
(cd "$work" && "$binary" demo --out demo.json >/dev/null)
sed 's/"reward":null/"reward":1.0/' "$work/demo.json" >"$work/demo-scored.json"

# seen FORMAT prints the number of trained tokens in what a loader printed.
seen() {
	"$venv/bin/python" -c '
import json, sys
d = json.loads(sys.stdin.read())
keys = ("trained_tokens", "trainable_tokens", "sampled_tokens", "delivered")
print(next(d[k] for k in keys if k in d))'
}

failed=0
# check SET FORMAT [FLAG...] FILE...
check() {
	local set=$1 format=$2 loader out printed read
	shift 2
	loader=$(tr - _ <<<"$format")
	case $format in
	tinker-sft) loader=tinker ;;
	esac
	case $format in
	skyrl) out=$work/$set-$format.json ;;
	nemo-gym) out=$work/$set-$format ;;
	*) out=$work/$set-$format.jsonl ;;
	esac
	if ! "$binary" export --format "$format" --out "$out" "$@" 2>"$work/log"; then
		sed "s/^/$set $format: /" "$work/log"
		failed=1
		return
	fi
	printed=$(sed -n 's/.*trained tokens \([0-9]*\)$/\1/p' "$work/log")
	if ! read=$("$venv/bin/python" "$loaders/$loader.py" "$out" 2>"$work/log"); then
		echo "$set $format: refused: $(tail -1 "$work/log")"
		failed=1
	elif [ "$(seen <<<"$read")" != "$printed" ]; then
		echo "$set $format: export printed $printed trained tokens, the trainer sees: $read"
		failed=1
	else
		echo "$set $format: ok, $printed trained tokens"
	fi
}

for format in $formats; do
	check demo "$format" "$work/demo-scored.json"
	check tangled "$format" "$here"/rollouts/tangled.json
	check group "$format" "$here"/rollouts/group-*.json
	check examples "$format" "$here"/rollouts/example-*.json
	case $format in
	tinker | trl-async) check advantage "$format" --advantage group "$here"/rollouts/group-*.json ;;
	esac
done
exit $failed
