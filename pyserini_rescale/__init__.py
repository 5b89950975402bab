"""Strong learned sparse retrievers (SPLADE) out of any masked language model, inside Pyserini.

Importing this package does nothing and imports nothing: the start-up hook passes through here in every interpreter.
"""

__version__ = "0.1.0"
