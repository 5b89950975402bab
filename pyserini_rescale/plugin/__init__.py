"""How Pyserini comes to know our encoders. Kept empty of imports: the start-up hook passes through here."""
