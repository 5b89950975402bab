"""The direction of imports, read from the code: a layer imports from those above it in this list, and itself."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "pyserini_rescale"
LAYERS = [
    "errors", "environment", "files", "figures", "logs", "lucene", "processes", "yaml_files", "docstrings", "collections",
    "corpora", "model", "encode", "train", "plugin", "indexing", "regression", "quickstart", "doctor", "cli", "__main__",
]  # fmt: skip
EVERYWHERE = {"__init__", "errors"}


def layer_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports_of(path: Path) -> set[tuple[str, bool]]:
    """Return (layer, at module level) of everything of ours that a module imports."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = set()
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [node.module]
            if node.module == "pyserini_rescale":
                names = [f"pyserini_rescale.{alias.name}" for alias in node.names]
        for name in names:
            if name.startswith("pyserini_rescale."):
                layer = name.split(".")[1]
                if layer != "__version__":
                    found.add((layer, node in tree.body))
    return found


def test_every_module_belongs_to_a_layer():
    assert {layer_of(path) for path in PACKAGE.rglob("*.py")} <= {*LAYERS, "__init__"}


def test_imports_point_one_way():
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {layer}"
        for path in PACKAGE.rglob("*.py")
        for layer, _ in imports_of(path)
        if layer_of(path) != "__init__"
        and layer not in EVERYWHERE
        and LAYERS.index(layer) > LAYERS.index(layer_of(path))
    ]
    assert wrong == []


def test_model_knows_nothing_of_pyserini():
    for path in (PACKAGE / "model").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        modules = {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
        modules |= {alias.name for n in ast.walk(tree) if isinstance(n, ast.Import) for alias in n.names}
        assert not any(module.split(".")[0] == "pyserini" for module in modules), path


def test_package_and_plugin_can_be_imported_at_no_cost():
    for name in ("__init__.py", "plugin/__init__.py"):
        tree = ast.parse((PACKAGE / name).read_text(encoding="utf-8"))
        assert not [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))], name
