"""Row norms of a head before any training, as it comes and after the rescale (a stage of its own).

    python -m pyserini_rescale.regression.head_figures --config CONFIG [--set KEY=VALUE ...] [--backbone MODEL] --output FILE

The head is prepared exactly as training prepares it (train/prepare.py), so a wrong checkpoint, or a rescale that does not
reach the head, shows before hours are spent. arXiv 2606.18811 gives the norms in Table 1 and, after the rescale, Table 2.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from pyserini_rescale.errors import ConfigError, reported
from pyserini_rescale.files import write_json


def head_figures(config_name: str, changes: list[str]) -> dict[str, float]:
    """Return the figures of spec.HEAD for a training configuration with ``changes`` as --set takes them.

    Raises ConfigError where the rescale is to be measured on training data, which is not there yet.
    """
    from pyserini_rescale.train.config import resolve
    from pyserini_rescale.train.prepare import prepare

    config = resolve(config_name, changes)
    if config.rescale.factor == "auto" or isinstance(config.rescale.shift, str):
        raise ConfigError(
            f"{config_name}: rescale is measured on training data: its head has no figures before training"
        )
    with tempfile.TemporaryDirectory() as scratch:
        found = prepare(config, [], Path(scratch) / "start")
    before, after = found["row_norm_before"], found["row_norm"]
    return {
        "row_norm_mean": before["mean"],
        "row_norm_max": before["max"],
        "rescaled_row_norm_mean": after["mean"],
        "rescaled_row_norm_max": after["max"],
    }


@reported
def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m pyserini_rescale.regression.head_figures", description=__doc__)
    parser.add_argument("--config", required=True, help="training configuration, FILE:VARIANT")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", dest="changes", help="changes of its keys")
    parser.add_argument("--backbone", help="folder, Hub id or built-in backbone in place of the configuration's")
    parser.add_argument("--output", type=Path, required=True, help="JSON file to write")
    args = parser.parse_args(argv)
    backbone = [] if args.backbone is None else [f"backbone.name={json.dumps(args.backbone)}"]
    write_json(args.output, head_figures(args.config, [*args.changes, *backbone]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
