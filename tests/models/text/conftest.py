import pytest

from omni_speak.models.wren.text.front_end import FrontEnd

from .alphabet import ALPHABET


@pytest.fixture(scope="session")
def front_end() -> FrontEnd:
    front_end = FrontEnd(ALPHABET)
    front_end.warm_up()
    return front_end
