"""Every example runs, as far as it needs no trainer; what it writes is what export writes."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from capture_proxy import Rollout
from rig import BINARY, EXAMPLES, PYTHON, STEPS, ProxyTest, clean_environment

# An agent as any other: it knows nothing of the proxy but its environment.
AGENT = """\
import os
import sys

from openai import OpenAI

llm = OpenAI()
messages = [{"role": "user", "content": "Do the steps."}]
shell = {"type": "function", "function": {"name": "shell", "parameters": {"type": "object", "properties": {}}}}
while True:
    answer = llm.chat.completions.create(model="policy", messages=messages, tools=[shell]).choices[0].message
    messages.append(answer.to_dict())
    if not answer.tool_calls:
        break
    messages += [{"role": "tool", "tool_call_id": call.id, "content": "done"} for call in answer.tool_calls]
sys.exit(int(os.environ["CAPTURE_PROXY_SESSION"][-1], 16) % 2)  # as good as a coin
"""


class ExamplesTest(ProxyTest):
    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)

    def run_example(self, name: str, *args: str) -> str:
        env = clean_environment(CAPTURE_PROXY_URL=self.proxy.url, CAPTURE_PROXY_BINARY=BINARY)
        done = subprocess.run([sys.executable, str(EXAMPLES / name), *args], env=env, cwd=self.directory, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def export(self, form: str, *args: str) -> pathlib.Path:
        path = self.directory / f"by-export.{form}"
        subprocess.run([BINARY, "export", "--format", form, "--url", self.proxy.url, "--out", str(path), *args],
                       env=clean_environment(), check=True, capture_output=True)  # fmt: skip
        return path

    def collect(self, group: str) -> list[Rollout]:
        """Has a scripted agent with the official SDK play the task, with a session of its own each time."""
        agent = self.directory / "agent.py"
        agent.write_text(AGENT)
        said = self.run_example("collect.py", "--group", group, "--size", "4", "--", sys.executable, str(agent))
        self.assertIn(f"group {group}: 4 sessions, 4 trainable", said)
        return [Rollout.read(path) for path in (self.directory / "rollouts").iterdir()]

    def test_quickstart(self) -> None:
        said = self.run_example("quickstart.py")
        doc = list(self.client.rollouts(group="task-7"))[-1]
        self.assertTrue(doc.trainable)
        self.assertEqual(doc.reward, 1.0)
        self.assertRegex(doc.turns[0].harness.name or "", "^OpenAI")
        (row,) = doc.training_rows()
        self.assertEqual(said, f"{STEPS + 1} turns, {len(row.input_ids)} tokens, of which {sum(row.loss_mask)} are trained\n")

    def test_quickstart_is_what_the_readme_shows(self) -> None:
        text = (EXAMPLES / "quickstart.py").read_text()
        self.assertLessEqual(len(text.splitlines()), 20)
        self.assertIn(f"```python\n{text}```", (PYTHON / "README.md").read_text())

    def test_collect(self) -> None:
        for doc in self.collect("collected"):
            self.assertEqual((doc.status, doc.group.id, doc.group.size), ("completed", "collected", 4))
            self.assertEqual(doc.reward, 1.0 if doc.metadata["exit_code"] == 0 else 0.0)
            self.assertIsNotNone(doc.turns[0].request_messages)
        group = self.client.group("collected")
        self.assertIsNotNone(group.mean_reward)

    def test_collect_notes_what_cannot_be_started(self) -> None:
        self.run_example("collect.py", "--group", "broken", "--size", "1", "--", str(self.directory / "nothing"))
        (doc,) = self.client.rollouts(group="broken")
        self.assertEqual((doc.status, doc.reward, doc.trainable), ("failed", None, False))
        self.assertRegex(doc.outcome.error, "^FileNotFoundError: ")

    def test_feed_trl(self) -> None:
        self.collect("for-trl")
        said = self.run_example("feed_trl.py", "--group", "for-trl", "--min-reward", "0", "--out", "sft.jsonl")
        ours = [json.loads(line) for line in (self.directory / "sft.jsonl").read_text().splitlines()]
        theirs = [json.loads(line) for line in self.export("trl-sft", "--group", "for-trl", "--min-reward", "0").read_text().splitlines()]
        self.assertEqual(ours, theirs)
        trained = sum(label != -100 for row in ours for label in row["labels"])
        self.assertEqual(said, f"4 rows, {trained} trained tokens\n")

    def test_feed_verifiers(self) -> None:
        documents = self.collect("for-verifiers")
        said = self.run_example("feed_verifiers.py", "--group", "for-verifiers")
        sampled = sum(doc.stats.n_distinct_trainable_tokens for doc in documents)
        self.assertTrue(said.endswith(f"4 episodes, {sampled} sampled tokens\n"), said)


if __name__ == "__main__":
    unittest.main()
