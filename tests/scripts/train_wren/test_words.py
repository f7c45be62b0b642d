import pytest

from scripts.train_wren.whisper import words


@pytest.mark.parametrize(
    ("written", "heard"),
    [
        ("It costs $12.50.", "it costs twelve dollars and fifty cents"),
        ("Novak, N, O, V, A, K.", "Novak N-O-V-A-K"),
        ("My zip code is 60614.", "My zip code is 6 0 6 1 4."),
        ("I don't know.", "I do not know"),
        ("on March 3, 1987", "On March third, nineteen eighty seven."),
    ],
)
def test_two_ways_to_write_the_same_words(written: str, heard: str) -> None:
    assert words(written) == words(heard)


@pytest.mark.parametrize(
    ("written", "heard"),
    [("$12.50", "$12.15"), ("I don't know.", "I know."), ("N, O", "N, A")],
)
def test_other_words_are_other_words(written: str, heard: str) -> None:
    assert words(written) != words(heard)
