"""``plot loss``: what is drawn, read from matplotlib's objects, the table, and what is refused."""

import math
import os
import subprocess
import sys

import pytest

from pyserini_rescale.cli import main
from pyserini_rescale.errors import ConfigError, DataError
from pyserini_rescale.train import plot
from pyserini_rescale.train.log import JsonlLog
from tests.train.conftest import ROOT


def write_run(folder, losses, *, epochs=1.0, measure="contrastive", **more):
    """Log one value per 10 steps, evenly over the epochs."""
    log = JsonlLog(folder / "log.jsonl")
    for number, loss in enumerate(losses, start=1):
        log.write({"step": 10 * number, "epoch": epochs * number / len(losses), measure: loss, **more})
    return folder


def draw(folders, measure="contrastive", *, linear=False, **options):
    runs = plot.load_runs(folders)
    return plot.draw([plot.curve(run, measure, linear=linear) for run in runs], measure, linear=linear, **options)


def points(line):
    return [*zip(*(list(map(float, data)) for data in line.get_data()), strict=True)]


def near(*expected):
    return [pytest.approx(point) for point in expected]


def inset_of(figure):
    (inset,) = figure.axes[0].child_axes
    return inset


def test_figure_4(tmp_path):
    runs = [
        write_run(tmp_path / "k1", [1000.0, 100.0, 10.0, 9.0, 8.0]),
        write_run(tmp_path / "k16", [20.0, 2.0, 1.5, 1.0, 0.5]),
    ]
    figure = draw(runs, title="ModernBERT $16")
    (axes,) = figure.axes
    first, second = axes.get_lines()
    assert points(first) == near((0.2, 1000.0), (0.4, 100.0), (0.6, 10.0), (0.8, 9.0), (1.0, 8.0))
    assert points(second) == near((0.2, 20.0), (0.4, 2.0), (0.6, 1.5), (0.8, 1.0), (1.0, 0.5))
    assert (axes.get_yscale(), axes.get_xscale()) == ("log", "linear")
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_title()) == ("epoch", "contrastive loss", "ModernBERT $16")
    assert not axes.title.get_parse_math()
    inset = inset_of(figure)
    assert points(inset.get_lines()[0]) == near((0.6, 10.0), (0.8, 9.0), (1.0, 8.0))
    assert points(inset.get_lines()[1]) == near((0.6, 1.5), (0.8, 1.0), (1.0, 0.5))
    assert inset.get_yscale() == "log" and inset.get_xlim() == pytest.approx((0.6, 1.0))
    for line, shown in zip(axes.get_lines(), inset.get_lines(), strict=True):
        assert (line.get_color(), line.get_linestyle()) == (shown.get_color(), shown.get_linestyle())
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["k1", "k16"]
    assert [line.get_color() for line in legend.get_lines()] == [first.get_color(), second.get_color()]


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("losses", [[3.0] * 50, [1.0 + n for n in range(50)], [1e4 * 0.8**n for n in range(50)]])
def test_the_inset_covers_no_line(tmp_path, losses, linear):
    figure = draw([write_run(tmp_path / "run", losses)], linear=linear)
    figure.draw_without_rendering()
    (axes,) = figure.axes
    box = inset_of(figure).get_tightbbox()
    inside = [box.contains(*axes.transData.transform(point)) for point in points(axes.get_lines()[0])]
    assert not any(inside)
    assert axes.bbox.contains(box.x0, box.y0) and axes.bbox.contains(box.x1, box.y1)  # its own labels included


def test_lines_can_be_told_apart_with_and_without_colour(tmp_path):
    figure = draw([write_run(tmp_path / f"run{n}", [3.0, 2.0]) for n in range(35)])
    looks = [
        (line.get_color(), line.get_linestyle(), line._unscaled_dash_pattern) for line in figure.axes[0].get_lines()
    ]
    assert len(set(map(str, looks))) == 35
    assert len({colour for colour, _, _ in looks[:7]}) == 7
    assert len({str(pattern) for _, _, pattern in looks[:5]}) == 5
    assert "#F0E442" not in {colour.upper() for colour, _, _ in looks}


def test_running_mean():
    assert plot.running_mean([4.0, 2.0, 6.0, 1.0], 1) == [4.0, 2.0, 6.0, 1.0]
    assert plot.running_mean([4.0, 2.0, 6.0, 1.0], 3) == [4.0, 3.0, 4.0, 3.0]
    assert plot.running_mean([], 3) == []


def test_smooth_draws_means_and_says_so(tmp_path):
    run = write_run(tmp_path / "run", [4.0, 2.0, 6.0, 1.0])
    figure = draw([run], smooth=3)
    assert [value for _, value in points(figure.axes[0].get_lines()[0])] == [4.0, 3.0, 4.0, 3.0]
    assert figure.axes[0].get_ylabel() == "contrastive loss, mean of 3 points"
    with pytest.raises(ConfigError, match="--smooth 0"):
        draw([run], smooth=0)


def test_points_without_a_place_are_counted(tmp_path):
    (run,) = plot.load_runs([write_run(tmp_path / "run", [4.0, math.nan, 0.0, -1.0, math.inf, 3.0])])
    logarithmic, linear = plot.curve(run, "contrastive"), plot.curve(run, "contrastive", linear=True)
    assert logarithmic.values == (4.0, 3.0) and logarithmic.epochs == pytest.approx((1 / 6, 1.0))
    assert logarithmic.note() == (
        "run: 4 of 6 points left out (2 not finite, 2 zero or negative, without a place on a log scale)"
    )
    assert linear.values == (4.0, 0.0, -1.0, 3.0)
    assert linear.note() == "run: 2 of 6 points left out (2 not finite)"
    assert plot.curve(run, "step").note() is None


def test_a_run_without_points_keeps_the_styles_of_the_others(tmp_path):
    lost = write_run(tmp_path / "lost", [math.nan, math.nan])
    good = write_run(tmp_path / "good", [3.0, 2.0])
    (line,) = draw([lost, good]).axes[0].get_lines()
    assert line.get_color() == plot.COLOURS[1]
    assert [text.get_text() for text in draw([lost, good]).legends[0].get_texts()] == ["good"]


@pytest.mark.parametrize("losses", [[2.0], [3.0, math.nan, math.nan, math.nan, 2.0]])
def test_no_inset_without_a_line_for_it(tmp_path, losses):
    assert draw([write_run(tmp_path / "run", losses)]).axes[0].child_axes == []


def test_extreme_values_are_drawn(tmp_path):
    largest = 3.4e38  # of float32
    run = write_run(tmp_path / "run", [1 / largest] + [largest] * 9)
    draw([run]).draw_without_rendering()


def test_summary_by_hand(tmp_path):
    losses = [50.0, *[3.0] * 17, 2.0, 1.0]
    folder = write_run(tmp_path / "run", losses, document_active=123.4)
    assert plot.summary(plot.load_runs([folder])[0], "contrastive") == plot.Summary("run", 200, 50.0, 1.5, 1.0, 123.4)
    lost = write_run(tmp_path / "lost", [9.0, 8.0, math.nan])
    found = plot.summary(plot.load_runs([lost])[0], "contrastive")
    assert (found.first, found.lowest, found.active) == (9.0, 8.0, None) and math.isnan(found.last)
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "log.jsonl").touch()
    nothing = plot.summary(plot.load_runs([tmp_path / "empty"])[0], "contrastive")
    assert nothing == plot.Summary("empty", None, None, None, None, None)


def test_labels(tmp_path):
    folders = [tmp_path / "a" / "run", tmp_path / "b" / "run", tmp_path / "json", tmp_path / "yaml", tmp_path / "hf"]
    for folder in folders:
        write_run(folder, [1.0])
    (tmp_path / "json" / "config.json").write_text('{"name": "Ettin\\n k = 4"}')
    (tmp_path / "yaml" / "config.yaml").write_text("name: ModernBERT\n")
    (tmp_path / "hf" / "config.json").write_text('{"model_type": "bert"}')
    alone = tmp_path / "other.jsonl"
    alone.write_text('{"step": 1}\n')
    paths = [*folders, alone]
    names = [run.label for run in plot.load_runs(paths)]
    assert names == [str(folders[0]), str(folders[1]), "Ettin k = 4", "ModernBERT", "hf", "other"]
    assert plot.load_runs([folders[2] / "log.jsonl"])[0].label == "Ettin k = 4"
    assert [run.label for run in plot.load_runs(paths, list("uvwxyz"))] == list("uvwxyz")
    with pytest.raises(ConfigError, match="5 labels for 6 runs"):
        plot.load_runs(paths, list("uvwxy"))
    with pytest.raises(ConfigError, match="two runs are called u"):
        plot.load_runs(paths, list("uvwxyu"))
    with pytest.raises(ConfigError, match="two runs are called"):
        plot.load_runs([folders[3], folders[3]])
    (tmp_path / "yaml" / "config.yaml").write_text("name: [\n")
    with pytest.raises(ConfigError, match=r"config\.yaml.*--labels"):
        plot.load_runs(paths)
    assert plot.load_runs(paths, list("uvwxyz"))


def test_labels_are_written_as_they_are(tmp_path):
    runs = plot.load_runs([write_run(tmp_path / "run", [2.0, 1.0])], ["_k $1$"])
    figure = plot.draw([plot.curve(run, "contrastive") for run in runs], "contrastive")
    (text,) = figure.legends[0].get_texts()
    assert text.get_text() == "_k $1$" and not text.get_parse_math()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"step": 2, "epoch": 0.2, "contrastive": "low"}', "contrastive is 'low', not a number"),
        ('{"step": 2, "epoch": 0.2, "contrastive": true}', "contrastive is True, not a number"),
        ('{"step": 2, "contrastive": 2.0}', "no epoch"),
        ('{"step": 2, "epoch": null, "contrastive": 2.0}', "no epoch"),
        ('{"step": 2, "epoch": 0.2, "contrastive"', "not JSON"),
    ],
)
def test_malformed_records_are_named(tmp_path, line, reason):
    log = tmp_path / "log.jsonl"
    log.write_text(f'{{"step": 1, "epoch": 0.1, "contrastive": 3.0}}\n{line}\n')
    with pytest.raises(DataError, match=reason) as caught:
        draw([tmp_path])
    assert f"{log}, line 2: " in str(caught.value)


# ---- the command


@pytest.mark.parametrize(("suffix", "start"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".PDF", b"%PDF")])
def test_command_draws_and_prints(tmp_path, capsys, suffix, start):
    write_run(tmp_path / "modernbert-k1", [4000.0, math.nan, *[2.5] * 8], document_active=12345.0)
    write_run(tmp_path / "k16", [0.01] * 10)
    output = tmp_path / f"loss{suffix}"
    output.write_text("an earlier figure")
    runs = [str(tmp_path / "modernbert-k1"), str(tmp_path / "k16" / "log.jsonl")]
    assert main(["plot", "loss", *runs, "--output", str(output), "--title", "a title"]) == 0
    assert output.read_bytes().startswith(start)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted(["k16", f"loss{suffix}", "modernbert-k1"])
    printed = capsys.readouterr()
    assert printed.out.splitlines() == [
        "run            steps  first contrastive  last 10%  lowest  document terms at end",
        "modernbert-k1    100          4,000.000     2.500   2.500                 12,345",
        "k16              100               0.01      0.01    0.01                      -",
        f"figure: {output}",
    ]
    assert printed.err == "note: modernbert-k1: 1 of 10 points left out (1 not finite)\n"


def test_command_draws_any_measure_under_the_given_labels(tmp_path, capsys):
    folder = write_run(tmp_path / "run", [0.0, 0.0, 0.0], measure="query_empty")
    base = ["plot", "loss", str(folder), "--output", str(tmp_path / "x.svg"), "--measure", "query_empty"]
    assert main(base) == 2  # zeros alone: nothing for a log scale
    error = capsys.readouterr().err
    assert error.startswith("error: there is no point of query_empty") and "--linear" in error
    assert not (tmp_path / "x.svg").exists()
    assert main([*base, "--linear", "--labels", "k = 1", "--smooth", "2"]) == 0
    assert "k = 1" in capsys.readouterr().out


def test_command_says_that_a_run_has_logged_nothing(tmp_path, capsys):
    write_run(tmp_path / "run", [2.0, 1.0])
    (tmp_path / "log.jsonl").touch()
    output = tmp_path / "x.png"
    assert main(["plot", "loss", str(tmp_path), str(tmp_path / "run"), "--output", str(output)]) == 0
    assert capsys.readouterr().err == f"note: {tmp_path.name}: nothing logged, no line\n"
    output.unlink()
    assert main(["plot", "loss", str(tmp_path), "--output", str(output)]) == 2
    assert "there is no point of contrastive to draw" in capsys.readouterr().err and not output.exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"--output": "loss.jpg"}, "has to end in .png, .svg, .pdf"),
        ({"--output": "none/loss.png"}, "there is no folder"),
        ({"--output": "folder.png"}, "it is a folder"),
        ({"--measure": "accuracy"}, "has no accuracy; it has contrastive, epoch, step"),
        ({"run": "nowhere"}, "there is no run"),
        ({"run": "folder.png"}, "has no log.jsonl"),
        ({"--smooth": "0"}, "--smooth 0"),
        ({"--labels": "a b"}, "1 labels for 2 runs"),
    ],
)
def test_command_refuses_in_one_line(tmp_path, monkeypatch, capsys, change, message):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "run", [2.0, 1.0])
    write_run(tmp_path / "second", [2.0, 1.0])
    (tmp_path / "folder.png").mkdir()
    options = {"--output": "loss.png"} | {name: value for name, value in change.items() if name != "run"}
    words = [word for pair in options.items() for word in pair]
    assert main(["plot", "loss", change.get("run", "run"), "second", *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and message in error and error.count("\n") == 1
    assert not (tmp_path / "loss.png").exists()


def test_a_figure_that_cannot_be_written_leaves_the_earlier_one(tmp_path, monkeypatch, capsys):
    write_run(tmp_path / "run", [2.0, 1.0])
    output = tmp_path / "loss.png"
    output.write_text("an earlier figure")

    def full(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    assert main(["plot", "loss", str(tmp_path / "run"), "--output", str(output)]) == 2
    assert "No space left" in capsys.readouterr().err
    assert output.read_text() == "an earlier figure"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["loss.png", "run"]


# ---- nothing but one clear line


def command(folder, *options, output="loss.png"):
    """Run the command in a process of its own, where warnings and tracebacks would be seen."""
    done = subprocess.run(
        [sys.executable, "-W", "always", "-m", "pyserini_rescale", "plot", "loss", *options, "--output", output],
        capture_output=True, check=False, cwd=folder, timeout=120, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    return done.returncode, done.stdout.decode(), done.stderr.decode().splitlines()


def write_lines(folder, *lines):
    folder.mkdir(exist_ok=True)
    (folder / "log.jsonl").write_text("\n".join(lines) + "\n")
    return str(folder)


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("smooth", [1, 3])
@pytest.mark.parametrize(
    "losses",
    [
        [1e308, 1e308, 1e308, 2.0, 1.0],
        [1e-308, 2.0, 1e-308, 1.0, 5e-324],
        [1e308, 1e-308, -1e308, 1e308, 1.0],
        [1e100, 1e-100, 1.0, 1e100, 1e-100],
    ],
)
@pytest.mark.filterwarnings("error")
def test_values_beyond_any_scale_are_counted_or_drawn(tmp_path, capsys, losses, smooth, linear):
    folder = write_run(tmp_path / "run", losses)
    options = ["--smooth", str(smooth), *(["--linear"] if linear else [])]
    assert main(["plot", "loss", str(folder), "--output", str(tmp_path / "x.png"), *options]) == 0
    beyond = sum(abs(loss) > 1e100 or (loss < 1e-100 and not linear) for loss in losses)
    error = capsys.readouterr().err
    assert error.count("\n") == (1 if beyond else 0)
    assert not beyond or f"run: {beyond} of 5 points left out" in error
    figure = draw([folder], smooth=smooth, linear=linear)
    figure.draw_without_rendering()
    assert len(figure.axes[0].get_lines()[0].get_xdata()) == 5 - beyond


def test_means_whose_sum_overflows(tmp_path):
    assert plot.running_mean([1e308, 1.5e308], 2) == pytest.approx([1e308, 1.25e308])
    folder = write_run(tmp_path / "run", [1e308] * 20)
    found = plot.summary(plot.load_runs([folder])[0], "contrastive")
    assert (found.first, found.last, found.lowest) == pytest.approx((1e308,) * 3)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"step": 2, "epoch": 1e308, "contrastive": 2.0}', "line 2: no epoch to draw at"),
        ('{"step": 2, "epoch": -1e308, "contrastive": 2.0}', "line 2: no epoch to draw at"),
        ('{"step": 2, "epoch": 1e999, "contrastive": 2.0}', "line 2: no epoch to draw at"),
        (f'{{"step": {"9" * 400}, "epoch": 1, "contrastive": 2.0}}', 'line 2: the number under "step" is too large'),
        (f'{{"step": {"9" * 5000}, "epoch": 1, "contrastive": 2.0}}', "line 2: "),
    ],
)
def test_steps_and_epochs_that_cannot_be_are_refused(tmp_path, capsys, line, message):
    folder = write_lines(tmp_path / "run", '{"step": 1, "epoch": 0.1, "contrastive": 3.0}', line)
    for linear in ([], ["--linear"]):
        assert main(["plot", "loss", folder, "--output", str(tmp_path / "x.png"), *linear]) == 2
        printed = capsys.readouterr()
        assert printed.err.startswith("error: ") and message in printed.err and printed.err.count("\n") == 1
        assert printed.out == "" and [entry.name for entry in tmp_path.iterdir()] == ["run"]


@pytest.mark.filterwarnings("error")
def test_figures_of_any_size_have_a_place_in_the_table(tmp_path, capsys):
    digits = "9" * 400
    folder = write_lines(
        tmp_path / "run",
        f'{{"step": 1, "epoch": 0.1, "contrastive": 1e308, "document_active": {digits}}}',
        '{"step": 2, "epoch": 0.2, "contrastive": 1e-308, "document_active": 1e308}',
        '{"step": 3, "epoch": 0.3, "contrastive": 3.0}',
    )
    assert main(["plot", "loss", folder, "--output", str(tmp_path / "x.png")]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["run", "3", "1e+308", "3.000", "1e-308", "1e+308"]


def test_texts_that_no_font_or_terminal_has(tmp_path):
    """A byte that is no UTF-8 in a title and a folder's name, line ends, letters without a shape."""
    name = os.fsdecode(b"run\xff")
    write_run(tmp_path / name, [3.0, 2.0])
    write_run(tmp_path / "second", [3.0, 2.0])
    options = [name, "second", "--title", os.fsdecode(b"a \xfe title") + "\nof \U0001faae\u4e00\nlines"]
    status, out, err = command(tmp_path, *options, output=os.fsdecode(b"\xfd.svg"))
    assert status == 0
    assert err == ["note: matplotlib's font lacks some letters of the labels or the title: they are boxes"]
    assert [line.split()[0] for line in out.splitlines()[1:3]] == ["run?", "second"]
    assert out.splitlines()[3] == "figure: ?.svg"
    assert sorted(map(os.fsencode, os.listdir(tmp_path))) == sorted([b"run\xff", b"second", b"\xfd.svg"])


@pytest.mark.filterwarnings("error")
def test_labels_of_many_lines_become_one(tmp_path, capsys):
    folder = write_run(tmp_path / "run", [3.0, 2.0])
    second = write_run(tmp_path / "second", [3.0, 2.0])
    label = "k\n= 1\r\n" * 200
    options = ["--labels", label, "k\x1b= 2\ud800", "--title", "a\n\n\nb " * 300]
    assert main(["plot", "loss", str(folder), str(second), *options, "--output", str(tmp_path / "x.png")]) == 0
    table = capsys.readouterr().out.splitlines()
    assert len(table) == 4 and table[1].startswith("k = 1 k = 1 ") and table[2].startswith("k?= 2? ")
    runs = plot.load_runs([folder, second], ["k\n= 1 " * 200, "b"])
    figure = plot.draw([plot.curve(run, "contrastive") for run in runs], "contrastive", title="a\nb " * 300)
    long, short = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "\n" not in long and len(long) < 110 and short == "b"
    assert "\n" not in figure.axes[0].get_title() and len(figure.axes[0].get_title()) < 110
    with pytest.raises(ConfigError, match="two runs are called a b"):
        plot.load_runs([folder, second], ["a\nb", "a b"])


@pytest.mark.parametrize(
    ("run", "output"),
    [
        ("run", "x" * 300 + ".png"),
        ("run", "x" * 300 + "/loss.png"),
        ("x" * 300, "loss.png"),
        ("run", "/proc/loss.png"),  # where even root cannot make a file
    ],
)
def test_places_that_cannot_be_used(tmp_path, monkeypatch, capsys, run, output):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "run", [3.0, 2.0])
    assert main(["plot", "loss", run, "--output", output]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("error: ") and printed.err.count("\n") == 1
    assert printed.out == "" and os.listdir(tmp_path) == ["run"]


def test_the_longest_name_a_file_can_have(tmp_path):
    write_run(tmp_path / "run", [3.0, 2.0])
    output = tmp_path / ("x" * 251 + ".png")
    assert main(["plot", "loss", str(tmp_path / "run"), "--output", str(output)]) == 0
    assert output.read_bytes().startswith(b"\x89PNG")


def test_the_command_needs_no_torch():
    code = "import sys, pyserini_rescale.cli.plot; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False, timeout=60).returncode == 0
