"""Records in files have the declared types, or the error names the field."""

import json
from dataclasses import dataclass

import pytest

from gpflow_sparse.persistence.schema import Between, Given, parse_json, read_json


@dataclass
class Options:
    size: int = 1
    name: str | None = None


SCHEMA = {
    "flag": bool,
    "count": int,
    "rate": Between(0.0, 1.0),
    "jitter": Between(0.1, 1.0, or_null=True),
    "value": float,
    "names": list[str],
    "rows": [{"title": str}],
    "options": Options,
    "rest": dict,
    "versions": dict[str, str],
    "scores": Given({"rmse": float}),
}
GOOD = {
    "flag": True,
    "count": 3,
    "rate": 1,
    "jitter": None,
    "value": 2,
    "names": [],
    "rows": [{"title": "a", "more": 1}],
    "options": {"name": None},
    "rest": {"any": [1]},
    "versions": {"numpy": "2"},
    "scores": {"more": "1"},
    "extra": 1,
}


def parse(record):
    return parse_json(json.dumps(record), SCHEMA, "the file", "copy it again")


def test_a_record_of_the_declared_types_comes_back_as_it_is():
    assert parse(GOOD) == GOOD
    assert parse(GOOD | {"jitter": 0.5, "value": float("inf"), "names": ["a"]})["jitter"] == 0.5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"versions": []}, "versions must be an object, got []"),
        ({"versions": {"numpy": 2}}, "versions.numpy must be text, got 2"),
        ({"scores": 1}, "scores must be an object, got 1"),
        ({"scores": {"rmse": "1"}}, "scores.rmse must be a number, got '1'"),
        ({"flag": 1}, "flag must be true or false, got 1"),
        ({"count": True}, "count must be an integer of at most 63 bits, got True"),
        ({"count": 3.0}, "count must be an integer of at most 63 bits, got 3.0"),
        ({"count": 2**63}, "count must be an integer of at most 63 bits, got 9223372036854775808"),
        ({"rate": 1.5}, "rate must be a number from 0 to 1, got 1.5"),
        ({"rate": float("nan")}, "rate must be a number from 0 to 1, got nan"),
        ({"rate": None}, "rate must be a number from 0 to 1, got None"),
        ({"jitter": 0.0}, "jitter must be a number from 0.1 to 1 or null, got 0.0"),
        ({"value": "1"}, "value must be a number, got '1'"),
        ({"value": False}, "value must be a number, got False"),
        ({"names": "abc"}, "names must be a list, got 'abc'"),
        ({"names": ["a", None]}, "names[1] must be text, got None"),
        ({"rows": []}, "rows must be a list with an entry, got []"),
        ({"rows": [{}]}, "rows[0].title must be present, got []"),
        ({"rows": [1]}, "rows[0] must be an object, got 1"),
        ({"options": {"size": "1"}}, "options.size must be an integer of at most 63 bits, got '1'"),
        ({"options": {"name": 1}}, "options.name must be text or null, got 1"),
        ({"options": {"other": 1}}, "options must be known options only, got 'other'"),
        ({"rest": []}, "rest must be an object, got []"),
    ],
)
def test_the_first_field_of_another_type_is_named(change, message):
    with pytest.raises(ValueError) as caught:
        parse(GOOD | change)
    assert str(caught.value) == f"the file is damaged: {message}; copy it again."


def test_files_that_cannot_be_read_are_named(tmp_path):
    (tmp_path / "a.json").write_bytes(b"\xff\xfe")
    for path in (tmp_path / "a.json", tmp_path, tmp_path / "none"):
        with pytest.raises(ValueError, match=f"{path} cannot be read: .*; copy it again"):
            read_json(path, SCHEMA, "copy it again")
