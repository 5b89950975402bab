"""Train a SPLADE model: configuration, data, loss, monitors, checkpoints, export."""
