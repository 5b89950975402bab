"""The paper's effect on this machine, in minutes: see pipeline.py."""
