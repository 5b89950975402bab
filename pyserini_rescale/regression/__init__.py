"""Regressions: one model on one collection, from YAML to verdict. Other parts are talked to by command line."""
