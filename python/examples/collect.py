"""Collects the rollouts of one task: runs a command again and again, each time in a session of its own.

    python collect.py --group task-7 --size 8 --out rollouts -- my-agent --prompt "Fix the failing test."

The command finds the proxy in its environment (OPENAI_BASE_URL and OPENAI_API_KEY, and those of Anthropic's and
Google's clients). Its rollout gets reward 1 when it exits with 0, else 0. One that does not end in time, or cannot be
started, is a failed session without a reward: that says nothing about the policy.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from capture_proxy import Client, Rollout, Session


def collect_one(client: Client, group: str, size: int, command: list[str], timeout: float) -> Rollout:
    """Runs the command once."""
    session = Session(client=client, group={"id": group, "size": size}, purpose="train")
    try:
        with session:
            done = subprocess.run(command, env=session.environment(), stdin=subprocess.DEVNULL, timeout=timeout)
            session.score(1.0 if done.returncode == 0 else 0.0, metadata={"exit_code": done.returncode})
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"collect: {error}", file=sys.stderr)
    return session.document(include_messages=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Collect the rollouts of one task.")
    parser.add_argument("--group", required=True, help="id of the group; a new one each time the task is planned")
    parser.add_argument("--size", type=int, default=4, help="rollouts to collect")
    parser.add_argument("--parallel", type=int, default=2, help="rollouts at a time")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds for one rollout")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("rollouts"), help="directory for the documents")
    parser.add_argument("command", nargs="+", help="the agent's command line, after --")
    args = parser.parse_args()

    args.out.mkdir(parents=True, exist_ok=True)
    client = Client()
    with ThreadPoolExecutor(args.parallel) as pool:
        running = [pool.submit(collect_one, client, args.group, args.size, args.command, args.timeout) for _ in range(args.size)]
        for rollout in (task.result() for task in running):
            (args.out / f"{rollout.session_id}.json").write_text(json.dumps(rollout.to_dict()))
    group = client.group(args.group)
    print(f"group {group.group_id}: {len(group.sessions)} sessions, {group.n_trainable} trainable, mean reward {group.mean_reward}")


if __name__ == "__main__":
    main()
