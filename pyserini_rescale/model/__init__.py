"""The masked language model as a SPLADE: backbones, the MLM head and its rescaling, pooling, and the policy it carries."""
