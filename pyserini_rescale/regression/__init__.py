"""Regressions: from one YAML to encode, index, search and a verdict."""
