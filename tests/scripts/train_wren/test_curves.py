from scripts.train_wren.curves import read_log

LOG = """\
00:03:31 129 texts, 6103 frames
00:04:00 talker 50: 1.0 min, advance 0.500 c0 1.700 fine 4.900 latent 1.000
00:04:26 held out at 60 (1.2 min): advance 0.470, codes 1.50 3.00 5.00, latent 1.300
00:05:00 continuing from talker.pt
00:05:30 talker 50: 1.0 min, advance 0.400 c0 1.600 fine 4.800 latent 0.900
"""


def test_losses_of_training_and_of_the_held_out_sentences() -> None:
    curves = read_log(LOG)
    assert curves["advance"] == ([(50, 0.4)], [(60, 0.47)])
    assert curves["code 0"] == ([(50, 1.6)], [(60, 1.5)])
    assert curves["fine"] == ([(50, 4.8)], [(60, 4.0)])
    assert curves["latent"] == ([(50, 0.9)], [(60, 1.3)])


def test_an_empty_log_has_no_curves() -> None:
    assert all(pair == ([], []) for pair in read_log("").values())
