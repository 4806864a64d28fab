"""Sessions from their creation to their document."""

import json
import subprocess
import sys
import unittest
import warnings

import capture_proxy
from rig import BINARY, STEPS, ProxyTest, clean_environment


class SessionTest(ProxyTest):
    def test_a_session_gives_its_document(self) -> None:
        with self.session(group={"id": "g1", "size": 2}, env="tests", purpose="train", metadata={"task": 7}) as session:
            self.assertEqual(session.created.capture_level, "tokens")
            calls = self.play(session)
            status = session.status()
            self.assertEqual((status.status, status.n_turns, status.in_flight), ("running", calls, 0))
            session.score(0.5, rewards={"style": 1.0})
        doc = session.rollout
        self.assertEqual((doc.status, doc.reward, doc.rewards), ("completed", 0.5, {"style": 1.0}))
        self.assertEqual((doc.group.id, doc.group.size, doc.env.id, doc.metadata), ("g1", 2, "tests", {"task": 7}))
        self.assertTrue(doc.trainable, doc.validation)
        self.assertEqual(len(doc.turns), STEPS + 1)
        (row,) = doc.training_rows()
        self.assertEqual(row.n_turns, STEPS + 1)
        self.assertEqual(sum(row.loss_mask), sum(turn.n_sampled for turn in doc.turns))
        self.assertEqual(sum(row.loss_mask), doc.stats.n_trainable_tokens)
        for turn, (start, end) in zip(doc.turns, row.turn_spans, strict=True):
            self.assertEqual(row.logprobs[start:end], turn.sampled_logprobs)

    def test_messages_come_when_asked_for(self) -> None:
        with self.session() as session:
            self.play(session)
        self.assertIsNone(session.rollout.turns[0].request_messages)
        doc = session.document(include_messages=True)
        self.assertEqual(doc.turns[0].request_messages[0]["content"], "Do the steps.")
        self.assertEqual(doc.turns[-1].response_message["role"], "assistant")

    def test_an_exception_fails_the_session_and_goes_on(self) -> None:
        session = self.session()
        with self.assertRaisesRegex(ZeroDivisionError, "by zero"), session:
            self.play(session)
            1 / 0
        self.assertEqual((session.rollout.status, session.rollout.outcome.error), ("failed", "ZeroDivisionError: division by zero"))

    def test_an_exception_is_not_hidden_by_a_failing_close(self) -> None:
        session = self.session()
        with warnings.catch_warnings(record=True) as said, self.assertRaisesRegex(KeyError, "mine"), session:
            warnings.simplefilter("always")
            self.client.delete(session.id)
            raise KeyError("mine")
        self.assertIn("could not be closed", str(said[0].message))

    def test_no_call_is_a_failure(self) -> None:
        with self.session() as session:
            pass
        self.assertEqual(session.rollout.status, "failed")
        with self.assertRaisesRegex(capture_proxy.NotTrainableError, "no_turns"):
            session.rollout.training_rows()

    def test_cancelled_inside_the_block(self) -> None:
        with self.session() as session:
            self.play(session)
            self.assertEqual(session.cancel("enough").status, "cancelled")
        self.assertEqual(session.rollout.status, "cancelled")

    def test_closed_inside_the_block(self) -> None:
        with self.session() as session:
            self.play(session)
            first = session.close(reward=1.0, include_messages=True)
        self.assertIs(session.rollout, first)
        self.assertEqual(first.reward, 1.0)

    def test_deleted_inside_the_block(self) -> None:
        with self.session() as session:
            session.delete()
        with self.assertRaises(capture_proxy.NotFoundError):
            session.status()

    def test_scores_come_late_and_none_removes(self) -> None:
        with self.session(run={"kind": "train", "id": "r1", "metadata": {"kind": "train"}}) as session:
            self.play(session)
        session.score(1.0, rewards={"a": 1.0, "b": 2.0}, metadata={"k": "v"})
        scored = session.score(rewards={"a": None}, run={"metadata": {"step": 3}})
        self.assertEqual((scored.reward, scored.rewards, scored.metadata), (1.0, {"b": 2.0}, {"k": "v"}))
        self.assertEqual(scored.run["metadata"], {"kind": "train", "step": 3})
        self.assertIsNone(session.score(None).reward)

    def test_budget(self) -> None:
        with self.session(max_model_calls=1) as session:
            messages = [{"role": "user", "content": "Hi"}]
            self.post(session, {"model": "policy", "messages": messages})
            stop = self.post(session, {"model": "policy", "messages": messages + messages})
        self.assertIn("budget", stop["choices"][0]["message"]["content"])
        self.assertEqual((session.rollout.budget_stop_count, len(session.rollout.turns)), (1, 1))

    def test_eval_rollouts_have_no_training_rows(self) -> None:
        with self.session(purpose="eval") as session:
            self.play(session)
        self.assertEqual(session.rollout.rollout_type, "eval")
        with self.assertRaisesRegex(capture_proxy.NotTrainableError, "eval rollout"):
            session.rollout.training_rows()
        with self.assertRaises(capture_proxy.ConflictError):
            self.client.trace_entries(session.id)

    def test_used_out_of_order(self) -> None:
        session = self.session()
        with self.assertRaisesRegex(capture_proxy.CaptureProxyError, "not created"):
            session.key
        with session:
            with self.assertRaisesRegex(capture_proxy.CaptureProxyError, "not closed"):
                session.rollout
            with self.assertRaisesRegex(capture_proxy.CaptureProxyError, "already"):
                session.start()
            self.assertNotIn(session.id, repr(session))

    def test_environment(self) -> None:
        with self.session() as session:
            env = session.environment(
                {"PATH": "/bin", "CAPTURE_PROXY_ADMIN_KEY": "secret", "ANTHROPIC_AUTH_TOKEN": "mine", "OPENAI_API_KEY": "sk-mine", "no_proxy": "x"}
            )
            self.assertEqual(env["PATH"], "/bin")
            self.assertEqual((env["OPENAI_BASE_URL"], env["OPENAI_API_KEY"]), (self.proxy.url + "/v1", session.key))
            self.assertEqual((env["ANTHROPIC_BASE_URL"], env["no_proxy"]), (self.proxy.url, "x,127.0.0.1,localhost"))
            self.assertFalse({"secret", "mine", "sk-mine"} & set(env.values()))
            self.assertEqual(session.base_url, f"{self.proxy.url}/s/{session.id}")

    def test_the_environment_is_the_one_that_run_gives(self) -> None:
        parent = clean_environment(ANTHROPIC_AUTH_TOKEN="mine", no_proxy="x")
        command = [BINARY, "run", "--upstream", self.engine.url, "--out", "/dev/null", "--", sys.executable, "-c",
                   "import json, os; print(json.dumps(dict(os.environ)))"]  # fmt: skip
        by_run = json.loads(subprocess.run(command, env=parent, capture_output=True, text=True).stdout)
        with self.session() as session:
            ours = session.environment(parent)

        def plain(env: dict[str, str]) -> dict[str, str]:
            url, key = env["CAPTURE_PROXY_URL"], env["CAPTURE_PROXY_SESSION"]
            return {name: value.replace(url, "URL").replace(key, "KEY") for name, value in env.items() if name != "PWD"}

        self.assertEqual(plain(by_run), plain(ours))


if __name__ == "__main__":
    unittest.main()
