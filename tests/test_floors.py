"""The oldest versions that setup.cfg allows are those that `tox -e oldest` installs and tests."""

import configparser
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
# cuda is TensorFlow again, and no test builds the documentation
EXTRAS = ("plot", "tables", "monitor", "dev")


def requirements(lines):
    """By name; the package itself, with extras, is left out."""
    lines = [line for line in lines.splitlines() if line and not line.startswith("#")]
    found = {each.name: each for each in map(Requirement, lines)}
    return {name: each for name, each in found.items() if name != "gpflow_sparse"}


def configured(name):
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(ROOT / name, encoding="utf-8")
    return parser


def test_every_floor_of_the_package_is_installed_by_the_oldest_environment():
    setup, tox = configured("setup.cfg"), configured("tox.ini")
    asked = requirements(setup["options"]["install_requires"])
    for extra in EXTRAS:
        asked |= requirements(setup["options.extras_require"][extra])
    cuda = requirements(setup["options.extras_require"]["cuda"])
    assert cuda["tensorflow"].specifier == asked["tensorflow"].specifier
    pinned = requirements(tox["testenv:oldest"]["deps"])
    for name, each in asked.items():
        floors = [one.version for one in each.specifier if one.operator == ">="]
        if not floors:
            assert name == "setuptools"  # any that has distutils
            continue
        (pin,) = pinned[name].specifier
        assert (pin.operator, [pin.version]) == ("==", floors), name
        assert pinned[name].marker == each.marker
    assert set(pinned) == set(asked) - {"setuptools"}


def test_a_page_names_the_extra_of_gpflows_monitors():
    extra = configured("setup.cfg")["options.extras_require"]["monitor"]
    assert list(requirements(extra)) == ["tensorboard"]
    page = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    assert "`ToTensorBoard`" in page
    assert '".[monitor]"' in page
