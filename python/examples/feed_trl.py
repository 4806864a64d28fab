"""Feeds TRL's SFT trainer with the good rollouts of a group or a run.

    python feed_trl.py --group task-7 --out sft.jsonl
    python feed_trl.py --group task-7 --train Qwen/Qwen2.5-0.5B-Instruct

Without --train it needs nothing but this package. The rows have `input_ids` and `labels`, full length, with the id as
label where the token was sampled by the policy and -100 elsewhere; TRL uses labels as they are. It ignores a
completion_mask unless told otherwise, does not check that the two are equally long, and cuts at its max_length.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from capture_proxy import Rollout, rollouts

IGNORED = -100


def sft_rows(documents: Iterable[Rollout], min_reward: float) -> Iterator[dict[str, list[int]]]:
    """One row for each path that is trained. Each sampled token is trained once."""
    for rollout in documents:
        if not rollout.trainable or rollout.reward is None or rollout.reward < min_reward:
            continue
        for row in rollout.training_rows():
            labels = [token if trained else IGNORED for token, trained in zip(row.input_ids, row.loss_mask, strict=True)]
            yield {"input_ids": row.input_ids, "labels": labels}


def train(model: str, rows: list[dict[str, list[int]]], output: str) -> None:
    import torch
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    gpu = torch.cuda.is_available()
    # max_length=None: TRL would otherwise cut what is longer than 1,024 tokens.
    config: Any = SFTConfig(output_dir=output, max_length=None, num_train_epochs=1, use_cpu=not gpu, bf16=gpu, report_to="none")
    SFTTrainer(model=model, args=config, train_dataset=Dataset.from_list(rows)).train()


def main() -> None:
    parser = argparse.ArgumentParser(description="Feed TRL's SFT trainer.")
    parser.add_argument("--group", help="take the rollouts of this group")
    parser.add_argument("--run", help="take the rollouts of this run")
    parser.add_argument("--min-reward", type=float, default=1.0, help="leave out what was scored lower")
    parser.add_argument("--out", help="file for the rows (JSONL)")
    parser.add_argument("--train", metavar="MODEL", help="train this model; it must be the one that was served")
    args = parser.parse_args()

    rows = list(sft_rows(rollouts(group=args.group, run=args.run), args.min_reward))
    if not rows:
        sys.exit("feed_trl: no rollout is trainable and good enough")
    if args.out:
        with open(args.out, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    print(f"{len(rows)} rows, {sum(label != IGNORED for row in rows for label in row['labels'])} trained tokens")
    if args.train:
        train(args.train, rows, "sft-out")


if __name__ == "__main__":
    main()
