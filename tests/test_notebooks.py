"""Every notebook runs from top to bottom without a warning, and is stored with its outputs."""

from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
NotebookClient = pytest.importorskip("nbclient", reason="nbclient is not installed").NotebookClient

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
MOST_BYTES = 1_500_000


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def problems(notebook):
    """Errors and what was written to standard error."""
    outputs = [output for cell in code_cells(notebook) for output in cell.outputs]
    return [o for o in outputs if o.output_type == "error" or o.get("name") == "stderr"]


def test_the_notebooks_are_there():
    assert {path.stem[:2] for path in NOTEBOOKS} >= {"01", "02", "03", "04", "05", "06", "07"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path):
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=180, resources={"metadata": {"path": str(FOLDER)}})
    client.execute()
    assert not problems(notebook)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_stored_with_its_outputs_in_order(path):
    notebook = nbformat.read(path, as_version=4)
    counts = [cell.execution_count for cell in code_cells(notebook)]
    assert counts == list(range(1, len(counts) + 1))
    assert any(cell.outputs for cell in code_cells(notebook)) and not problems(notebook)
    assert path.stat().st_size < MOST_BYTES
    assert str(FOLDER.parent) not in path.read_text("utf-8")
