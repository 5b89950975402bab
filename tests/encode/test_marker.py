"""The marker of an index or of topics: what it says, and which scales go together."""

import json

import pytest

from pyserini_rescale.encode import marker
from pyserini_rescale.encode.quantize import FIXED, Quantizer
from pyserini_rescale.errors import ConfigError, DataError

OURS = (5.0, 256)


def test_a_marker_is_read_as_it_was_written(tmp_path):
    value = marker.marker(Quantizer("calibrated", 3.21, 255, 255), counts={"documents": 3})
    marker.write_index_marker(tmp_path, value)
    assert marker.index_marker(tmp_path) == value and value["counts"] == {"documents": 3}
    assert marker.scale_of(value) == (3.21, 255)
    assert [path.name for path in tmp_path.iterdir()] == [marker.MARKER]


def test_equal_scales_pass_others_are_refused_and_an_unmarked_index_is_warned_about(tmp_path):
    warning = marker.check_scale(tmp_path, OURS, "MODEL")
    assert "does not say by which scale" in warning and "MODEL" in warning and "\n" not in warning
    marker.write_index_marker(tmp_path, marker.marker(FIXED["pyserini"]))
    assert marker.check_scale(tmp_path, OURS, "MODEL") is None
    assert marker.check_scale(tmp_path, (10.0, 512), "MODEL") is None
    with pytest.raises(ConfigError, match="made by 256/5, those of MODEL are made by 100/1: .*--like"):
        marker.check_scale(tmp_path, (1.0, 100), "MODEL")


@pytest.mark.parametrize(
    "text", ["{", "[]", "{}", '{"quantizer": 5}', '{"quantizer": {"weight_range": "x", "quant_range": 2}}',
             '{"quantizer": {"weight_range": 0, "quant_range": 2}}']
)  # fmt: skip
def test_a_damaged_marker_is_no_missing_marker(tmp_path, text):
    (tmp_path / marker.MARKER).write_text(text)
    with pytest.raises(DataError, match="cannot be used"):
        marker.check_scale(tmp_path, OURS, "MODEL")


def test_topics_have_theirs_beside(tmp_path):
    topics = tmp_path / "topics.json"
    assert marker.topics_marker(topics) is None
    marker.beside(topics).write_text(json.dumps(marker.marker(FIXED["x100"])))
    assert marker.scale_of(marker.topics_marker(topics)) == (1.0, 100)
