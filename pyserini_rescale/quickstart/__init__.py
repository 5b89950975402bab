"""The main job on a small collection that every machine has, see pipeline.py."""
