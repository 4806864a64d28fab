"""The control API call by call, the way through what was collected, and what goes wrong."""

import datetime
import http.server
import pickle
import threading
import unittest

import capture_proxy
from rig import ProxyTest


class ClientTest(ProxyTest):
    def test_rollouts_of_a_group_come_oldest_first(self) -> None:
        ids = []
        for reward in (1.0, 0.0, 1.0):
            with self.session(group="many", run={"kind": "train", "id": "run-1"}) as session:
                self.play(session)
                session.score(reward)
            ids.append(session.id)
        running = self.session(group="many").start()
        self.assertEqual([doc.session_id for doc in self.client.rollouts(group="many")], ids)
        self.assertEqual([doc.session_id for doc in capture_proxy.rollouts(self.proxy.url, run="run-1")], ids)
        self.assertEqual([doc.session_id for doc in self.client.rollouts(group="many", status="running")], [running.id])
        self.assertEqual(list(self.client.rollouts(group="none")), [])
        later = datetime.datetime.now() + datetime.timedelta(hours=1)
        self.assertEqual(list(self.client.rollouts(group="many", since=later)), [])

        group = self.client.group("many")
        self.assertEqual([line.session_id for line in group.sessions], [*ids, running.id])
        self.assertEqual((group.n_trainable, group.pass_rate), (3, 2 / 3))
        running.cancel()

    def test_deleted_meanwhile(self) -> None:
        sessions = [self.session(group="gone").start() for _ in range(2)]
        for session in sessions:
            session.close()
        documents = self.client.rollouts(group="gone")
        self.assertEqual(next(documents).session_id, sessions[0].id)
        sessions[1].delete()
        self.assertEqual(list(documents), [])

    def test_pages(self) -> None:
        ids = [self.session(env="paged").start().id for _ in range(7)]
        page = capture_proxy.client._PAGE
        capture_proxy.client._PAGE = 3
        try:
            self.assertEqual([line.session_id for line in self.client.sessions(env="paged")], ids[::-1])
        finally:
            capture_proxy.client._PAGE = page

    def test_trace_entries(self) -> None:
        with self.session() as session:
            calls = self.play(session)
        entries = self.client.trace_entries(session.id)
        self.assertEqual(len(entries), calls)
        self.assertEqual(len(entries[0]["completion_token_ids"]), len(entries[0]["per_token_logps"]))

    def test_policy_and_health(self) -> None:
        self.client.set_policy(5)
        self.assertEqual(self.client.policy(), 5)
        with self.session() as session:
            self.play(session)
        self.assertEqual(session.rollout.policy.start, 5)
        self.assertEqual(self.client.health()["status"], "ok")

    def test_errors_are_typed(self) -> None:
        with self.assertRaises(capture_proxy.NotFoundError):
            self.client.status("nobody")
        with self.assertRaises(capture_proxy.NotFoundError):
            self.client.group("nobody")
        with self.assertRaises(capture_proxy.InvalidRequestError) as caught:
            self.client.create(purpose="fun")
        self.assertEqual((caught.exception.status, caught.exception.param), (400, "purpose"))
        self.assertEqual(pickle.loads(pickle.dumps(caught.exception)).param, "purpose")
        self.client.create(session_id="mine", env="a")
        self.client.create(session_id="mine", env="a")
        with self.assertRaises(capture_proxy.ConflictError):
            self.client.create(session_id="mine", env="b")
        with self.assertRaises(TypeError):
            self.client.create(gruop="typo")  # type: ignore[call-arg]
        with self.assertRaises(ValueError):
            self.client.score("mine", float("nan"))

    def test_an_engine_is_no_proxy(self) -> None:
        with self.assertRaisesRegex(capture_proxy.ApiError, "."):
            capture_proxy.Client(self.engine.url).create()

    def test_nobody_there(self) -> None:
        with self.assertRaisesRegex(capture_proxy.ProxyUnreachableError, "cannot be reached"):
            capture_proxy.Client("http://127.0.0.1:1").health()
        for url in ("127.0.0.1:8100", "ftp://x", "http://"):
            with self.assertRaisesRegex(ValueError, "no URL of a proxy"):
                capture_proxy.Client(url)

    def test_several_threads_share_a_client(self) -> None:
        failures: list[BaseException] = []

        def one() -> None:
            try:
                with self.session(group="threads") as session:
                    self.play(session)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=one) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        self.assertEqual(self.client.group("threads").n_trainable, 8)


class AdminKeyTest(ProxyTest):
    key = "secret"
    flags = ("--admin-key", "secret")

    def test_the_key_opens_the_api(self) -> None:
        with self.session() as session:
            self.play(session)
        self.assertTrue(session.rollout.trainable)
        for wrong in ("", "other", session.key):
            with self.assertRaises(capture_proxy.AuthenticationError):
                capture_proxy.Client(self.proxy.url, wrong).status(session.id)


class Answers(http.server.BaseHTTPRequestHandler):
    """Sends whoever asks for /health elsewhere, and breaks off everything else."""

    asked: list[str] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        if self.path == "/health":
            self.send_response(302)
            self.send_header("Location", "/stolen")
            self.end_headers()
        else:
            self.send_response(200)
            self.send_header("Content-Length", "100")
            self.end_headers()
            self.wfile.write(b"{")

    def log_message(self, *args: object) -> None:
        pass


class StrangerTest(unittest.TestCase):
    def setUp(self) -> None:
        server = http.server.HTTPServer(("127.0.0.1", 0), Answers)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        self.addCleanup(lambda: (server.shutdown(), thread.join(), server.server_close()))
        self.client = capture_proxy.Client(f"http://127.0.0.1:{server.server_port}", "secret")

    def test_the_key_follows_no_redirect(self) -> None:
        with self.assertRaisesRegex(capture_proxy.ApiError, "302"):
            self.client.health()
        self.assertNotIn("/stolen", Answers.asked)

    def test_an_answer_that_breaks_off(self) -> None:
        with self.assertRaisesRegex(capture_proxy.ProxyUnreachableError, "broke off"):
            self.client.policy()


if __name__ == "__main__":
    unittest.main()
