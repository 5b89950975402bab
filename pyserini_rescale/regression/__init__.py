"""Regressions: one model on one collection, from YAML to verdict. Encoding, indexing and searching are command lines."""
