"""--mode=prove says yes where the configuration is one program, and exits with 1 where it is not."""

import train

COMMON = [
    "--gin_file=tests/end_to_end/tiny.gin",
    "--mode=prove",
    "--simulated_devices=8",
    "--gin.prove.layouts=('configs/parallel/zero3.gin',)",
    "--gin.prove.accumulations=(2,)",
    "--gin.prove.steps=2",
    "--gin.prove.shrink={'bert.num_layers': 1}",
]


def test_layouts_that_agree_are_shown_to(capsys):
    assert train.main(COMMON) == 0
    out = capsys.readouterr().out
    for row in ("as configured", "single.gin", "zero3.gin"):
        assert row in out
    assert out.count("agrees") == 4  # Three rows, and the sentence below them.
    assert "DIFFERS" not in out and "One program" in out


def test_a_difference_is_shown_and_exits_with_1(capsys, tmp_path):
    # Another seed is another program: as large a fault as a layout that draws its noise by device.
    wrong = tmp_path / "wrong.gin"
    wrong.write_text("include 'configs/parallel/data.gin'\nexperiment.seed = 1\n")
    layouts = f"--gin.prove.layouts=({str(wrong)!r},)"
    assert train.main([flag for flag in COMMON if "layouts" not in flag] + [layouts]) == 1
    out = capsys.readouterr().out
    assert out.count("DIFFERS") == 1 and "Not one program" in out
