"""Devices that are not there are refused."""

import pytest

from transencoder.devices import checked_device
from transencoder.errors import InputError


@pytest.mark.parametrize("name", ["gpu", "cuda:99", "cpu:x"])
def test_a_device_that_is_not_there_is_refused(name):
    with pytest.raises(InputError, match="cannot be used here"):
        checked_device(name)
