"""JSON lines are records."""

import pytest

from data.sources import JsonLines
from mistake import Mistake


def test_each_line_is_a_record(tmp_path):
    (tmp_path / "x.jsonl").write_text('{"text": "naïve", "label": 1}\n\n{"text": "b", "label": 0}', encoding="utf-8")
    records = JsonLines(str(tmp_path / "*.jsonl")).open("train")
    assert list(records) == [{"text": "naïve", "label": 1}, {"text": "b", "label": 0}]
    assert records[1] == {"text": "b", "label": 0}
    assert len(JsonLines(str(tmp_path / "x.jsonl")).open("train[:50%]")) == 1


@pytest.mark.parametrize(
    ("line", "message"), [("{", "the line at byte 3 is not JSON"), ("[1]", "the line at byte 3 is list")]
)
def test_a_line_that_is_no_object_is_a_mistake(tmp_path, line, message):
    (tmp_path / "x.jsonl").write_text("{}\n" + line)
    records = JsonLines(str(tmp_path / "x.jsonl")).open("train")
    with pytest.raises(Mistake, match=f"^json_lines.paths: .*x.jsonl: {message}"):
        records[1]
