"""The encoder classes that Pyserini uses: texts in, impacts out, for any masked language model.

``SpladeRescaledDocumentEncoder`` and ``SpladeRescaledQueryEncoder`` have the interfaces of Pyserini's
``SpladeDocumentEncoder`` and ``SpladeQueryEncoder``, and for a checkpoint without our key in its config.json they
return the same integers, with two exceptions: impacts of zero are left out, and an empty title or text is left out
(Pyserini writes the word "None"). What they do is in base.py.

Importing this module imports pyserini, which starts a JVM.
"""

from pyserini.encode import DocumentEncoder, QueryEncoder

from pyserini_rescale.encode.base import DocumentTexts, QueryTexts


class SpladeRescaledDocumentEncoder(DocumentTexts, DocumentEncoder):
    """Documents to impacts; the class behind ``--encoder-class splade-rescaled``. Arguments: see ``DocumentTexts``."""


class SpladeRescaledQueryEncoder(QueryTexts, QueryEncoder):
    """Queries to impacts; what ``--encoder MODEL`` becomes in ``pyserini.search.lucene --impact``."""
