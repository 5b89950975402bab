"""Defaults that can be told from what somebody typed. Light: the plug-in needs it before Pyserini has been imported."""


class UntypedInt(int):
    """A number that is only a default: the checkpoint's policy goes before it."""


class UntypedStr(str):
    """A device that is only a default: where the machine lacks it, the CPU is used without a word."""
