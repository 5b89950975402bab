"""A search by another scale than the index's: the patches of the searcher class and of the search command, without Java."""

import argparse
import json
import types

import pytest

from pyserini_rescale.encode.marker import beside, marker, write_index_marker
from pyserini_rescale.encode.quantize import FIXED, Quantizer
from pyserini_rescale.errors import ConfigError
from pyserini_rescale.model.policy import Policy
from pyserini_rescale.plugin import patches


class OurEncoder:
    name, vocabulary_size = "MODEL", 30_000

    def __init__(self, **policy):
        self.policy = Policy(**policy)


class SpladeQueryEncoder:
    """Stands for Pyserini's, whose scale is in its code."""


class OtherEncoder:
    """Says nothing of a scale."""


@pytest.fixture
def searcher(monkeypatch):
    """Pyserini's module as the patch knows it, patched, and what it told Lucene; encoders of ours are ``OurEncoder``."""
    limits = types.SimpleNamespace(most=1024)
    limits.getMaxClauseCount, limits.setMaxClauseCount = lambda: limits.most, lambda most: setattr(limits, "most", most)

    class LuceneImpactSearcher:
        def __init__(self, index_dir, query_encoder, min_idf=0, encoder_type="pytorch", prebuilt_index_name=None):
            self.index_dir, self.query_encoder, self.min_idf, self.idf = (
                index_dir,
                query_encoder,
                min_idf,
                dict.fromkeys(range(5000)),
            )

        @staticmethod
        def _init_query_encoder_from_str(query_encoder):
            return None

    module = types.ModuleType("pyserini.search.lucene._impact_searcher")
    module.LuceneImpactSearcher, module.autoclass, module.limits = LuceneImpactSearcher, lambda name: limits, limits
    monkeypatch.setattr(patches, "_is_query_encoder", lambda encoder: isinstance(encoder, OurEncoder))
    patches._impact_searcher(module)
    return module


def mark(folder, quantizer: Quantizer):
    write_index_marker(folder, marker(quantizer))
    return str(folder)


def test_equal_scales_are_searched_without_a_word(searcher, tmp_path, capsys):
    index = mark(tmp_path, FIXED["pyserini"])
    for encoder in (OurEncoder(), OurEncoder(weight_range=10.0, quant_range=512), SpladeQueryEncoder(), OtherEncoder()):
        searcher.LuceneImpactSearcher(index, encoder)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("encoder", [OurEncoder(), SpladeQueryEncoder()])
def test_another_scale_is_refused(searcher, tmp_path, encoder):
    with pytest.raises(ConfigError, match="made by 100/1, those of .* are made by 256/5"):
        searcher.LuceneImpactSearcher(mark(tmp_path, FIXED["x100"]), encoder)


def test_an_unmarked_index_is_warned_about_with_encoders_of_ours_only(searcher, tmp_path, capsys):
    searcher.LuceneImpactSearcher(str(tmp_path), SpladeQueryEncoder())
    searcher.LuceneImpactSearcher(str(tmp_path), None)
    assert capsys.readouterr().err == ""
    searcher.LuceneImpactSearcher(str(tmp_path), OurEncoder())
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and "does not say by which scale" in lines[0]


def test_queries_encoded_before_are_searched_whole_in_an_index_of_ours(searcher, tmp_path):
    plain = searcher.LuceneImpactSearcher(str(tmp_path), None)
    assert plain.min_idf == 0 and searcher.limits.most == 1024  # as Pyserini does it
    ours = searcher.LuceneImpactSearcher(mark(tmp_path, FIXED["x100"]), None)
    assert ours.min_idf == -1 and searcher.limits.most == 5000
    assert searcher.LuceneImpactSearcher(str(tmp_path), None, 0).min_idf == 0  # typed


@pytest.fixture
def read_topics(tmp_path):
    """A function: topics' scale (None: not ours), the index's, whether an encoder is given -> reads the topics."""

    def read(topics_scale, index_scale, encoder=None):
        topics, index = tmp_path / "topics.json", tmp_path / "index"
        index.mkdir(exist_ok=True)
        topics.write_text("{}")
        beside(topics).unlink(missing_ok=True)
        if topics_scale:
            beside(topics).write_text(json.dumps(marker(FIXED[topics_scale])))
        if index_scale:
            mark(index, FIXED[index_scale])
        namespace = {
            "argparse": argparse,
            "args": argparse.Namespace(impact=True, encoder=encoder, index=str(index), topics=str(topics)),
            "get_output_writer": lambda *given: None,
            "get_query_iterator": lambda *given: "topics",
        }
        patches._SearchCommand.adapt(namespace)
        return namespace["get_query_iterator"](str(topics), "default")

    return read


def test_topics_of_another_scale_are_refused(read_topics):
    with pytest.raises(ConfigError, match="made by 256/5, those of .*topics.json are made by 100/1"):
        read_topics("x100", "pyserini")


def test_topics_of_the_same_scale_of_nobody_and_for_an_encoder_pass(read_topics, capsys):
    assert (
        read_topics("x100", "x100") == read_topics(None, "x100") == read_topics("pyserini", "x100", "MODEL") == "topics"
    )
    assert capsys.readouterr().err == ""


def test_topics_of_ours_in_an_unmarked_index_are_warned_about(read_topics, capsys):
    assert read_topics("x100", None) == "topics"
    assert capsys.readouterr().err.count("does not say by which scale") == 1
