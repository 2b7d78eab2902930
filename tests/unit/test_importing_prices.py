"""`--prices FILE`: what nodes cost, as CSV or YAML."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwok_operator.errors import ManifestError
from kwok_operator.importing.nodes.prices import read_prices

HEADING = "instanceType,zone,hourly\n"


@pytest.mark.parametrize(
    "text",
    [
        f"{HEADING}m5.large,,0.096\nm5.large,eu-1b,0.107\n",
        f"\ufeff# of today\r\n{HEADING}\r\n m5.large , , 0.096\r\nm5.large,eu-1b,0.107",
        'hourly,instanceType,zone\n0.096,m5.large,\n"0.107",m5.large,eu-1b\n',
        f"{HEADING}m5.large,,0.096\nm5.large,,0.096\nm5.large,eu-1b,0.107\n",
        "- {instanceType: m5.large, hourly: 0.096}\n"
        "- {instanceType: m5.large, zone: eu-1b, hourly: '0.107'}\n",
        '[{"instanceType": "m5.large", "zone": "", "hourly": 0.096},\n'
        '{"instanceType": "m5.large", "zone": "eu-1b", "hourly": "0.107"}]',
    ],
)
def test_prices_by_type_and_zone(text: str) -> None:
    prices = read_prices(text, where="prices")
    assert prices.of("m5.large", "eu-1b") == "0.107"
    assert prices.of("m5.large", "eu-1a") == prices.of("m5.large", "") == "0.096"
    assert prices.of("m5.xlarge", "eu-1b") is None


def test_without_a_column_for_zones() -> None:
    assert read_prices("instanceType,hourly\nm5.large,3\n", where="p").of("m5.large", "a") == "3"
    assert read_prices("- instanceType: x\n  hourly: 1e-5\n", where="p").of("x", "") == "0.00001"


def test_a_price_of_spot_goes_before_one_of_the_zone() -> None:
    text = "instanceType,zone,capacityType,hourly\n"
    text += "a,z,,3\na,x,,5\na,,spot,1\na,z,spot,2\nb,,on-demand,4\n"
    prices = read_prices(text, where="p")
    found = [prices.of("a", zone, kind) for zone in "zyx" for kind in ("spot", "on-demand")]
    assert found == ["2", "3", "1", None, "1", "5"]
    assert (prices.of("b", "z", "on-demand"), prices.of("b", "z", "spot")) == ("4", None)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (f"{HEADING}a,,1\nm5.large,,cheap\n", ["p.csv:3: hourly: 'cheap'", "such as 0.192"]),
        (f"{HEADING}m5.large,,-1\n", ["p.csv:2: hourly: '-1'"]),
        (f"{HEADING}m5.large,,1e3\n", ["p.csv:2: hourly: '1e3'"]),
        (f"{HEADING}m5.large,,\n", ["p.csv:2: hourly: is missing"]),
        (f"{HEADING},eu-1a,1\n", ["p.csv:2: instanceType: is missing"]),
        (f"{HEADING}m5.large,1\n", ["p.csv:2: has 2 columns", "heading has 3", "write instanceT"]),
        (f'{HEADING}"m5.large,,1\n', ["p.csv:2: is no CSV"]),
        (
            "type,zone,hourly\n",
            ["p.csv:1: 'type' is none of instanceType, zone, capacityT"],
        ),
        ("instanceType,zone\n", ["p.csv:1: the heading lacks hourly"]),
        ("zone,instanceType,hourly,zone\n", ["p.csv:1: the heading names a column twice"]),
        (
            f"{HEADING}m5.large,b,1\nm5.large,b,2\n",
            ["p.csv:3: hourly: '2' for m5.large b", "'1' on line 2", "remove one"],
        ),
        (HEADING, ["p.csv: has no prices"]),
        ("", ["p.csv: has no prices", "write a CSV file"]),
        ("prices: 1\n", ["p.csv:1: is no list"]),
        ("- instanceType: a\n  hourly: 1\n- 7\n", ["p.csv:3: entry 2, 7, is no object"]),
        ("- instanceType: a\n- x: 1\n", ["p.csv:1: hourly: is missing"]),
        ("- x: 1\n", ["p.csv:1: 'x' is none of"]),
        ("- instanceType: 5\n  hourly: 1\n", ["p.csv:1: instanceType: 5 must be text", "quotes"]),
        ("- instanceType: a\n  hourly: true\n", ["p.csv:1: hourly: True must be text"]),
        ("- instanceType: a\n  hourly: 1e20\n", ["p.csv:1: hourly:", "must be an amount"]),
        ("- [\n", ["p.csv, line 2", "is not YAML"]),
    ],
)
def test_mistakes_are_reported(text: str, parts: list[str]) -> None:
    with pytest.raises(ManifestError) as refused:
        read_prices(text, where="p.csv")
    for part in parts:
        assert part in str(refused.value)


@given(text=st.text() | st.text(alphabet=",\"\n-:{[ a1#'").map(HEADING.__add__))
def test_whatever_stands_there_it_is_read_or_refused(text: str) -> None:
    try:
        prices = read_prices(text, where="p")
    except ManifestError as refused:
        assert str(refused).startswith("p")
        return
    assert prices.hourly
