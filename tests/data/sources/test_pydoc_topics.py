"""The help topics are split once and for all."""

from pydoc_data.topics import topics

from data.sources import PydocTopics


def test_every_topic_is_in_one_split():
    parts = [PydocTopics().open(split) for split in ("train", "validation")]
    assert {record["topic"]: record["text"] for part in parts for record in part} == topics
    assert sum(map(len, parts)) == len(topics)


def test_about_a_tenth_of_the_text_is_held_out():
    held_out = sum(len(record["text"]) for record in PydocTopics().open("validation"))
    assert 0.05 < held_out / sum(map(len, topics.values())) < 0.2


def test_the_identity_follows_the_records():
    source = PydocTopics()
    assert source.identity("train") == PydocTopics().identity("train")
    assert len({source.identity(split) for split in ("train", "validation", "train[:50%]")}) == 3
