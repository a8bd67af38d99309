"""Features that look like an id or a time are named; columns of measurements are not."""

import numpy as np
import pandas as pd
import pytest

from lle.inputs import open_source
from lle.inputs.suspect_columns import _look, look_of, suspect_columns

N = 5000
RNG = np.random.default_rng(11)
SECONDS = 1.7e9 + RNG.integers(0, 10**7, N)
HALF_MINUTES, DELAYS = 1.7e9 + 30.0 * np.arange(N), np.random.default_rng(1).integers(-200, 201, N)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        pytest.param(np.arange(N), "a row number or an id", id="rising"),
        pytest.param(np.arange(N)[::-1], "that fall", id="falling"),
        pytest.param(RNG.permutation(N) + 7, "a different whole number", id="shuffled ids"),
        pytest.param(RNG.permutation(60), "a different whole number", id="shuffled ids of a small table"),
        pytest.param(SECONDS, "seconds since 1970", id="seconds"),
        pytest.param(np.sort(SECONDS) + RNG.integers(-900, 900, N), "seconds since 1970", id="seconds in some order"),
        pytest.param(HALF_MINUTES + DELAYS, "seconds since 1970", id="seconds with delays"),
        pytest.param(HALF_MINUTES - 200 * (np.arange(N) % 2), "seconds since 1970", id="two streams, one late"),
        pytest.param(SECONDS + 4e8, "seconds since 1970", id="seconds of the future"),
        pytest.param(SECONDS * 1e3 + 0.5, "milliseconds since 1970", id="milliseconds"),
        pytest.param(SECONDS * 1e9, "nanoseconds since 1970", id="nanoseconds"),
        pytest.param(np.cumsum(RNG.random(N)), "a time: numbers that rise", id="rising numbers"),
        pytest.param(np.repeat(np.arange(N // 5), 5), "an id of groups, or a time", id="groups"),
        pytest.param(np.concatenate([np.arange(n) for n in RNG.integers(15, 60, N)]), "a position in", id="positions"),
        pytest.param(np.delete(np.tile(np.arange(1, 301), 20), 9), "a position in", id="long positions with a gap"),
    ],
)
def test_ids_and_times_are_reported(values, words):
    look = look_of(values[:3000], len(values))
    assert words in look.says
    assert look.is_id == ("or an id" in words or "fall" in words or "different" in words)


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(RNG.normal(size=N), id="measurements"),
        pytest.param(RNG.integers(0, 4000, N), id="counts"),
        pytest.param(RNG.choice(10**6, 80, replace=False), id="few different whole numbers"),
        pytest.param(RNG.choice(10**8, N, replace=False), id="traded volumes"),
        pytest.param(np.full(N, 1.7e9), id="constant"),
        pytest.param(np.arange(20), id="few rows"),
        pytest.param(np.sort(RNG.integers(0, N, N))[::-1], id="sorted measurements that fall"),
        pytest.param(np.sort(RNG.lognormal(7, 2, N).astype(int)), id="sorted measurements"),
        pytest.param(np.sort(RNG.integers(0, 15, N)), id="sorted codes"),
        pytest.param(np.sort(RNG.poisson(RNG.exponential(9, N))) * (np.arange(N) > N / 2), id="sorted counts"),
        pytest.param(np.append(np.arange(N - 1.0), np.nan), id="gaps"),
        pytest.param(np.concatenate([a + np.arange(12) for a in RNG.integers(20, 70, N)]), id="ages in a panel"),
        pytest.param(np.tile(np.arange(12), N), id="twelve visits"),
        pytest.param(np.tile(np.arange(-90, 91), 30), id="latitudes of a grid"),
        pytest.param(np.sort(RNG.poisson(900, (60, 30)), axis=1).ravel(), id="sorted counts in groups"),
        pytest.param(1.4e9 + np.cumsum(RNG.integers(-99, 99, N)), id="way of a cyclist, in semicircles"),
    ],
)
def test_measurements_are_not_reported(values):
    assert look_of(values[-3000:], len(values)) is None


@pytest.fixture(params=["csv"])
def looks_of(tmp_path, request):
    """`looks_of(**columns)`: the suspect columns of a table that is read from a file."""
    path = tmp_path / f"x.{request.param}"

    def looks_of(**columns):
        getattr(pd.DataFrame(columns), f"to_{request.param}")(path, index=False)
        return suspect_columns(open_source(request.param, path=path))

    return looks_of


def test_rows_at_start_middle_and_end_are_checked(looks_of):
    assert set(looks_of(x=RNG.normal(size=N), row=np.arange(N), resets=7 * (np.arange(N) % 2000))) == {"row"}


def test_positions_in_groups_longer_than_the_checked_rows_are_reported(looks_of):
    """As those of records of several sensors, one below the other: at most one group begins in these rows."""
    looks = looks_of(x=RNG.normal(size=N), second=np.arange(N) % (N // 3), record=1 + np.arange(N) % (N // 2 + 40))
    assert {name: look.says[:10] for name, look in looks.items()} == dict.fromkeys(("second", "record"), "a position")


def test_positions_are_named_by_their_name_first(looks_of):
    looks = looks_of(x=RNG.normal(size=N), hour=np.arange(N) % 24, beat=np.arange(N) % 24)
    assert [looks[name].says[:10] for name in ("hour", "beat")] == ["a time by ", "a position"]


@pytest.mark.parametrize("values", [np.arange(1, 13), RNG.permutation(12), 7 * RNG.permutation(99)[:12]])
def test_ids_of_a_short_table_are_known_by_their_name(looks_of, values):
    names = ["rownames", "row", "index", "Unnamed: 0", "id", "case", "width", "height"]
    looks = looks_of(**dict.fromkeys(names, values), idx=values / 8, obs=values % 5)
    assert [name for name, look in looks.items() if look.is_id] == names[:6]


def test_arrays_and_short_tables_have_no_suspect_columns(tmp_path, looks_of):
    np.save(tmp_path / "x.npy", np.arange(200.0).reshape(100, 2))
    assert suspect_columns(open_source("npy", path=tmp_path / "x.npy")) == {}
    assert looks_of(width=np.arange(10)) == {}


@pytest.mark.parametrize("looks_of", ["csv", "parquet"], indirect=True)
def test_ids_that_float64_would_round_are_reported(looks_of):
    ids = RNG.permutation(N)
    looks = looks_of(
        x=RNG.normal(size=N),
        next=2**53 + np.arange(N),
        shuffled=2**62 + ids,
        user_id=2**60 + ids,
        when=2**60 + ids,
        count=2**60 + 4096 * (ids // 2),
    )
    assert {name for name, look in looks.items() if look.is_id} == {"next", "shuffled", "user_id"}
    assert looks["when"].says == "a time: nanoseconds since 1970"


@pytest.mark.parametrize("looks_of", ["parquet"], indirect=True)
def test_whole_numbers_named_as_an_id_are_reported_although_some_repeat_or_are_missing(looks_of):
    ids = np.append(RNG.permutation(N - 50) + 1.0, np.arange(49) + 1.0)
    others = {"kunden": np.append(ids, 7), "note": RNG.normal(size=N), "side_id": RNG.integers(0, 15, N)}
    ids = np.append(ids, np.nan)
    assert set(looks_of(kunden_id=ids, **others, mass_id=RNG.normal(size=N))) == {"kunden_id"}
    ids[[3, 9]] += 0.5
    assert looks_of(kunden_id=ids)["kunden_id"].says == "an id by its name: nearly all entries are whole numbers"


def test_ids_of_the_size_of_seconds_since_1970_are_ids_by_their_name(looks_of):
    numbers = 1_600_000_000 + RNG.permutation(N)
    repeated = np.append(numbers[:-9], numbers[:9])
    looks = looks_of(x=RNG.normal(size=N), id=numbers, user_id=repeated, seen=numbers)
    assert [name for name, look in looks.items() if look.is_id] == ["id"]
    assert looks["user_id"].says.startswith("an id by its name")
    assert looks["seen"].says == "a time: seconds since 1970"


def test_seconds_since_1970_are_times_by_their_name_in_any_order(looks_of):
    """Each user rates many things in a few minutes, and users are in no order of time."""
    seconds = np.repeat(1.4e9 + RNG.integers(0, 10**8, N // 50), 50) + RNG.integers(0, 900, N)
    looks = looks_of(timestamp=seconds, rating_date=seconds, time=seconds, lat=seconds)
    assert set(looks) == {"timestamp", "rating_date"}  # a time may be a duration in nanoseconds


NAMES = {
    "an id by its name": "persnum;Sample Number;obsno;nr;subject;case_no;user_id;userId;playerID;idPlayer;patientid;ID;"
    "pid;IDunit;childid",
    "a name of the row": "rownames;row.names",
    "a code by its name": "zip;county;soil_type;ZipCode;homeTeam;plate;tumour.status;sky (code);postcode;politycode;"
    "cowcode2;STATEFIP;cntyfips",
    "a time by its name": "year;Month;day_of_week;DayOfYear;day of week;sold_day_of_month;model_year;birthYear;"
    "Order Year Number;week_no",
    "": "cases;persons;fish_per_year;perYear;trips_last_year;TripsLastYear;lowKey;years;miles_per_hour;aluminum;"
    "n_class;ideal;platinum",
}


@pytest.mark.parametrize(("name", "words"), [(name, words) for words, of in NAMES.items() for name in of.split(";")])
def test_whole_numbers_are_reported_by_their_name(looks_of, name, words):
    look = looks_of(**{"x": RNG.normal(size=N), name: RNG.integers(1, 60, N)}).get(name)
    assert (look is not None) == bool(words)
    assert look is None or look.says.startswith(words)


DAYS = pd.date_range("1996-01-02", "2003-05-09", N).strftime("%Y%m%d").to_numpy(int)
DATES = {"whole": DAYS, "short": DAYS % 1_000_000, "fractions": 1996 + RNG.integers(0, 100, N) / 12}


@pytest.mark.parametrize("values", DATES.values(), ids=DATES)
@pytest.mark.parametrize("name", ["sdate", "saledate", "sale_date", "saleDate", "date", "TIME", "time_period", "ano"])
def test_dates_and_years_are_times_by_their_name(looks_of, name, values):
    look = looks_of(**{"x": RNG.normal(size=N), name: RNG.permutation(values)})[name]
    assert look.says.startswith("a time by its name")


@pytest.mark.parametrize("name", ["update", "candidate", "mandate", "sales_to_date", "salesToDate"])
def test_other_words_that_end_in_date_are_no_times(looks_of, name):
    x = RNG.normal(size=N)
    assert looks_of(x=x, **{name: RNG.integers(101, 131, N)}) == {}
    assert looks_of(x=x, **{name: 100 * RNG.integers(0, 1000, N)}) == {}
    assert looks_of(x=x, **{name: RNG.integers(1, 60, N)}) == {}
    assert looks_of(x=x, **{name: 1000 * RNG.random(N)}) == {}


def test_csv_numbers_with_leading_zeros_are_codes(looks_of):
    town = [f"{i:05}" for i in RNG.integers(900, 99999, N)]
    looks = looks_of(x=RNG.normal(size=N), town=town, zero=0.25, count=RNG.integers(0, 900, N))
    assert {name: look.says for name, look in looks.items()} == {"town": "a code: numbers with leading zeros"}


NAMES = "x", "id", "year", "date", "zip code", "row", "unit"


def test_fractions_are_not_suspect_by_their_name():
    fractions = np.random.default_rng(29).random(200)
    measured = [fractions, -fractions, 1e4 * fractions - 5e3, np.where(fractions > 0.9, np.nan, fractions)]
    assert [_look(name, values, 200) for values in measured for name in NAMES] == [None] * len(measured) * len(NAMES)
