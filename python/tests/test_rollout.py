"""The document as dataclasses, on documents of the real thing."""

import copy
import dataclasses
import json
import unittest

from capture_proxy import DocumentError, NotTrainableError, Rollout, rows_as_numpy
from rig import DOCUMENTS


def tangled() -> dict:
    return json.loads((DOCUMENTS / "tangled.json").read_bytes())


class RolloutTest(unittest.TestCase):
    def test_nothing_is_lost(self) -> None:
        files = sorted(DOCUMENTS.glob("*.json"))
        self.assertGreater(len(files), 3)
        for path in files:
            with self.subTest(path.name):
                self.assertEqual(Rollout.read(path).to_dict(), json.loads(path.read_bytes()))

    def test_every_field_is_known(self) -> None:
        def unknown(value: object, at: str = "") -> list[str]:
            if isinstance(value, list):
                return [name for item in value for name in unknown(item, at + "[]")]
            if not dataclasses.is_dataclass(value):
                return []
            names = [f"{at}.{name}" for name in value.extra]
            for field in dataclasses.fields(value):
                if field.name != "extra":
                    names += unknown(getattr(value, field.name), f"{at}.{field.name}")
            return names

        self.assertEqual(unknown(Rollout.from_dict(tangled())), [])

    def test_unknown_fields_are_kept(self) -> None:
        value = tangled()
        value["later"] = {"a": 1}
        value["turns"][0]["later"] = [2]
        value["sequences"][0]["later"] = 3
        doc = Rollout.from_dict(copy.deepcopy(value))
        self.assertEqual((doc.extra, doc.turns[0].extra, doc.sequences[0].extra), ({"later": {"a": 1}}, {"later": [2]}, {"later": 3}))
        self.assertEqual(doc.to_dict(), value)

    def test_what_is_no_document(self) -> None:
        for text, message in (
            ("", "no rollout document"),
            ("[]", "no schema_version"),
            ('{"session_id": "s"}', "no schema_version"),
            ('{"schema_version": 2}', "newer"),
            ('{"schema_version": 1}', "lacks the field session_id"),
            ('{"schema_version": 1, "reward": NaN}', "NaN"),
        ):
            with self.subTest(text), self.assertRaisesRegex(DocumentError, message):
                Rollout.from_json(text)

    def test_each_token_is_trained_once(self) -> None:
        doc = Rollout.from_dict(tangled())
        every = sum(sum(row.loss_mask) for row in doc.training_rows(shared="every"))
        once = sum(sum(row.loss_mask) for row in doc.training_rows())
        self.assertEqual(every, doc.stats.n_trainable_tokens)
        self.assertEqual(once, doc.stats.n_distinct_trainable_tokens)
        self.assertLess(once, every)
        for row in doc.training_rows():
            self.assertTrue(all(logprob == 0 for logprob, mask in zip(row.logprobs, row.loss_mask, strict=True) if not mask))
            self.assertEqual(row.n_trainable, sum(row.loss_mask))

    def test_what_is_masked_cannot_be_brought_back(self) -> None:
        value = tangled()
        value["shared"] = "once"
        with self.assertRaisesRegex(NotTrainableError, "shared=once"):
            Rollout.from_dict(value).training_rows(shared="every")
        with self.assertRaises(ValueError):
            Rollout.from_dict(value).training_rows(shared="twice")

    def test_a_shut_gate(self) -> None:
        for change, message in (
            ({"status": "running"}, "still running"),
            ({"rollout_type": "eval"}, "eval rollout"),
            ({"validation": ["[FATAL] capture_failed: the disk was full"]}, "capture_failed"),
            ({"trainable": False}, "no row is trainable"),
        ):
            with self.subTest(message), self.assertRaisesRegex(NotTrainableError, message):
                Rollout.from_dict(tangled() | change).training_rows()

    def test_arrays(self) -> None:
        doc = Rollout.from_dict(tangled())
        rows = doc.training_rows()
        for row, array in zip(rows, rows_as_numpy(doc), strict=True):
            self.assertEqual((array.input_ids.tolist(), array.logprobs.tolist()), (row.input_ids, row.logprobs))
            self.assertEqual((array.loss_mask.tolist(), array.prompt_len), ([bool(m) for m in row.loss_mask], row.prompt_len))
            self.assertEqual([a.dtype.name for a in (array.input_ids, array.loss_mask, array.logprobs)], ["int64", "bool", "float64"])

    def test_arrays_of_a_damaged_row(self) -> None:
        row = Rollout.from_dict(tangled()).training_rows()[0]
        with self.assertRaisesRegex(DocumentError, "damaged"):
            rows_as_numpy([dataclasses.replace(row, logprobs=row.logprobs[:-1])])


if __name__ == "__main__":
    unittest.main()
