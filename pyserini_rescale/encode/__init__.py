"""Text to impacts: quantisers, index terms, and the encoder classes that Pyserini uses."""
