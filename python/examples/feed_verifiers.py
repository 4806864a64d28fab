"""Feeds verifiers, and prime-rl behind it, with the rollouts of a group or a run.

    python feed_verifiers.py --group task-7 --out traces

The file is written by `capture-proxy export --format verifiers`, which must be on the PATH (or in $CAPTURE_PROXY_BINARY):
traces.jsonl, an episode a line. With --read it is read back by verifiers' own loader, which then has to be installed.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys

from capture_proxy import Client


def export(choice: list[str], path: pathlib.Path) -> None:
    """Has the proxy's sessions written in the trainer's form; the admin key goes by the environment."""
    binary = os.environ.get("CAPTURE_PROXY_BINARY", "capture-proxy")
    command = [binary, "export", "--format", "verifiers", "--url", Client().url, *choice, "--out", str(path)]
    if subprocess.run(command).returncode != 0:
        sys.exit("feed_verifiers: nothing was exported, see above")


def count(path: pathlib.Path) -> tuple[int, int]:
    """Counts episodes and sampled tokens. A node that several branches share is trained in the first only."""
    episodes = sampled = 0
    with path.open(encoding="utf-8") as file:
        for line in file:
            episodes += 1
            for trace in json.loads(line)["traces"]:
                for node in trace["nodes"]:
                    assert len(node["logprobs"]) == sum(node["mask"])  # compact: one for each true in the mask
                    sampled += sum(node["mask"])
    return episodes, sampled


def read_with_verifiers(directory: pathlib.Path) -> None:
    from verifiers.v1.trace import WireTrace
    from verifiers.v1.utils.trace_store import read_episodes

    for episode in read_episodes(directory, WireTrace):
        for trace in episode.traces:
            print(f"reward {trace.reward}, {len(trace.branches)} branches")


def main() -> None:
    parser = argparse.ArgumentParser(description="Feed verifiers and prime-rl.")
    parser.add_argument("--group", help="take the rollouts of this group")
    parser.add_argument("--run", help="take the rollouts of this run")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("traces"), help="directory for traces.jsonl")
    parser.add_argument("--read", action="store_true", help="read it back with verifiers")
    args = parser.parse_args()

    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / "traces.jsonl"
    export([f"--{name}={value}" for name, value in (("group", args.group), ("run", args.run)) if value], path)
    episodes, sampled = count(path)
    print(f"{episodes} episodes, {sampled} sampled tokens")
    if args.read:
        read_with_verifiers(args.out)


if __name__ == "__main__":
    main()
