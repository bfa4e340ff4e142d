"""Each meter's definition, the estimate's bounds, and its accuracy on held-out texts that need no network."""

import json
import random
import string
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_envelope import seal
from mcp_envelope.budget import METERS, Budget, _tokenizer, _total
from mcp_envelope.budget import meter_named as meter

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks import corpora
from benchmarks.languages import HELD

PRINTABLE = string.printable[:95]
utf8 = st.text(st.characters(exclude_categories=["Cs"]), max_size=400).map(str.encode)
# Long enough to cross the estimate's blocks: a short text, repeated.
long_utf8 = st.builds(lambda text, n: text * n, utf8, st.integers(1, 400))


@cache
def held_out() -> dict[str, bytes]:
    return corpora.held_out(offline=True)


@pytest.mark.parametrize("name", METERS)
def test_every_meter_says_what_it_is(name: str) -> None:
    found = meter(name)
    assert found.name == name
    assert found.unit == ("bytes" if name == "bytes" else "tokens")
    assert found is meter(name)
    assert found.count(b"") == 0


@pytest.mark.parametrize(
    ("wrong", "near"), [("exat", "exact"), ("byte", "bytes"), ("chars/4", "chars4"), ("", "")]
)
def test_an_unknown_name_gets_the_names_and_the_nearest(wrong: str, near: str) -> None:
    with pytest.raises(ValueError, match="unknown meter") as caught:
        meter(wrong)
    assert all(name in str(caught.value) for name in METERS)
    assert str(caught.value).endswith(f"the nearest is {near!r}" if near else "'")


def test_exact_counts_a_spelled_special_token_as_text() -> None:
    assert meter("exact").count(b"hello world") == 2
    for special in _tokenizer().special_tokens():
        assert meter("exact").count(special.encode()) > 1


@given(utf8)
def test_bytes_is_the_length(text: bytes) -> None:
    assert meter("bytes").count(text) == len(text)


@given(utf8)
def test_chars4_is_a_quarter_of_the_utf16_units(text: bytes) -> None:
    units = len(text.decode().encode("utf-16-le")) // 2
    assert meter("chars4").count(text) == (units + 3) // 4


@pytest.mark.parametrize("name", METERS)
@given(text=long_utf8)
def test_no_count_exceeds_the_bytes(name: str, text: bytes) -> None:
    assert (1 if text else 0) <= meter(name).count(text) <= len(text)


@given(long_utf8, long_utf8)
def test_the_estimate_never_falls_when_text_is_added(one: bytes, two: bytes) -> None:
    assert meter("estimate").count(one + two) >= meter("estimate").count(one)


@given(long_utf8)
def test_the_estimate_is_at_least_an_eighth_of_the_bytes(text: bytes) -> None:
    assert meter("estimate").count(text) >= len(text) / 8


@pytest.mark.parametrize("cut", [1, 7, 1_000, 16_384, 30_001])
def test_the_estimate_of_a_whole_is_the_sum_of_its_parts(cut: int) -> None:
    count = meter("estimate").count
    for text in held_out().values():
        one, two = text[:cut], text[cut:]
        # Only the joint and the places where blocks begin can differ, a few tokens each.
        assert abs(count(text) - count(one) - count(two)) <= 20 + count(text) // 100


@given(st.binary(max_size=5_000))
def test_the_sum_of_costs_is_exact(costs: bytes) -> None:
    small = bytes(cost & 127 for cost in costs)
    assert _total(small) == sum(small)
    assert _total(b"\x7f" * len(costs)) == 127 * len(costs)


def test_the_fitted_costs_leave_the_sum_room() -> None:
    from mcp_envelope import budget as meters

    for table in (meters._PAIR_COSTS, meters._BYTE_COSTS, meters._UNIT_COSTS):
        assert len(table) == 256
        assert max(table) <= 127


def test_the_two_sets_of_texts_share_nothing() -> None:
    fitted = set(corpora.calibration(offline=True).values())
    assert not fitted & set(held_out().values())


@pytest.mark.parametrize(
    "name",
    [
        "JSON records",
        "JSON records, indented",
        "JSON numbers",
        "CSV",
        "base64",
        "hex",
        "Python, stdlib",
        "docstrings",
    ],
)
def test_the_estimate_is_close_on_common_text(name: str) -> None:
    text = held_out()[name]
    error = meter("estimate").count(text) / meter("exact").count(text) - 1
    assert -0.05 <= error <= 0.15


def test_the_estimate_is_not_far_under_on_any_text() -> None:
    # The words come from the standard library, so each Python has texts of its own.
    errors = {
        name: meter("estimate").count(text) / meter("exact").count(text) - 1
        for name, text in held_out().items()
    }
    assert {name: f"{error:+.0%}" for name, error in errors.items() if not -0.1 <= error <= 0.7} == {}


def test_the_estimate_is_close_on_chinese() -> None:
    # Written for this test, so that it needs no download.
    sentences = [
        "这个工具返回的结果太长，所以我们只保留前面的部分，并告诉用户如何读取其余的内容。",
        "今天下午的会议改到三点，请大家提前准备好上个季度的销售数据和客户反馈。",
        "如果服务器没有响应，请检查网络连接是否正常，然后重新启动程序再试一次。",
        "他从小在海边长大，每年夏天都和父亲一起出海捕鱼，对天气的变化非常敏感。",
        "数据库中的每一条记录都包含编号、名称、创建时间和最后一次修改的时间。",
        "虽然这本书出版已经二十多年了，书中的许多观点在今天看来仍然很有价值。",
    ]
    text = "\n".join(random.Random(3).choices(sentences, k=40)).encode()
    error = meter("estimate").count(text) / meter("exact").count(text) - 1
    assert -0.05 <= error <= 0.2


@pytest.mark.parametrize("name", HELD)
def test_the_estimate_is_close_in_every_language(name: str) -> None:
    # A few sentences vary more than a page does; what matters is that none is far too low.
    for text in (HELD[name].encode(), HELD[name].upper().encode()):
        error = meter("estimate").count(text) / meter("exact").count(text) - 1
        assert -0.15 <= error <= 0.4


def test_the_estimate_of_a_script_that_was_not_fitted_is_never_low() -> None:
    mixed = random.Random(9)
    scripts = {
        "Cherokee": (0x13A0, 0x13F5),
        "Vai": (0xA500, 0xA60B),
        "Yi": (0xA000, 0xA48C),
        "Linear B": (0x10000, 0x1000B),
    }
    scripts |= {
        "Tifinagh": (0x2D30, 0x2D65),
        "Cuneiform": (0x12000, 0x12399),
        "Han, rare": (0x20000, 0x2A6DF),
    }
    scripts |= {"Canadian": (0x1401, 0x166C), "N'Ko": (0x7CA, 0x7E7), "Mongolian": (0x1820, 0x1842)}
    for name, (first, last) in scripts.items():
        text = " ".join(
            "".join(chr(mixed.randint(first, last)) for _ in range(5)) for _ in range(60)
        ).encode()
        assert meter("estimate").count(text) >= 0.95 * meter("exact").count(text), name


@given(st.text(string.printable, min_size=1, max_size=12), st.integers(1, 300))
def test_a_change_of_byte_is_a_fifth_of_a_token_at_least(text: str, times: int) -> None:
    repeated = (text * times).encode()
    changes = sum(one != other for one, other in pairwise(repeated))
    assert meter("estimate").count(repeated) >= changes // 5


def test_ascii_made_to_fool_the_estimate_is_at_most_five_times_too_low() -> None:
    mixed = random.Random(5)
    for unit in ("~}", ")~", "nN", "hcMm", "dhm", *("".join(mixed.sample(PRINTABLE, 2)) for _ in range(300))):
        for text in (unit * 400, "".join(mixed.choices(unit, k=800))):
            assert meter("exact").count(text.encode()) <= 5 * meter("estimate").count(text.encode()), unit


@given(
    st.lists(st.sampled_from(["1234567", "99", "a", "é", '"', " ", "漢", "\\"]), min_size=1),
    st.integers(0, 9),
)
def test_where_a_text_is_divided_does_not_count(parts: list[str], shift: int) -> None:
    """The estimate takes texts in blocks. Where they meet depends on what stands before, and must not matter."""
    unit = "".join(parts)
    text = (unit * (50_000 // len(unit.encode()) + 1)).encode()
    # Blocks of another size meet elsewhere.
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr("mcp_envelope.budget._BLOCK", 16_384 - 100 - shift)
        other = meter("estimate").count(text)
    assert meter("estimate").count(text) == other


# Texts that an estimate counts up to eight times too low.
FOOLING = {
    "a rare sign": "\u0482" * 40_000,
    "two signs": "}~}~" * 30_000,
    "two letters": "".join(random.Random(1).choices("ch", k=120_000)),
    "letters in any order": "".join(
        random.Random(2).choices([chr(code) for code in range(0xAC00, 0xD7A4)], k=30_000)
    ),
}


@pytest.mark.parametrize("name", FOOLING)
@pytest.mark.parametrize("tokens", [200, 2000])
def test_no_text_fools_the_default_meter(name: str, tokens: int) -> None:
    exact = meter("exact")
    for size in (tokens, 4 * tokens, len(FOOLING[name])):
        text = FOOLING[name][:size]
        payloads: tuple[Any, ...] = (text, {"text": text}, [text[at : at + 50] for at in range(0, size, 50)])
        for payload in payloads:
            sealed = seal(payload, tokens=tokens)
            blocks = json.loads(sealed.content)
            assert exact.count("\n\n".join(block["text"] for block in blocks).encode()) <= tokens
            if sealed.structured is not None:
                assert exact.count(sealed.structured) <= tokens


@given(
    text=long_utf8.map(bytes.decode) | st.sampled_from([*FOOLING.values(), " " * 90_000, "\n" * 30_000]),
    tokens=st.integers(1, 3000),
)
def test_the_beginning_of_a_text_tells_only_the_truth(text: str, tokens: int) -> None:
    """What is given up after a look at its beginning would not have been within, had it been counted whole."""
    budget, written = Budget(tokens, meter("exact")), text.encode()
    for limit in (tokens, len(written) // 9):
        if len(written) <= budget.most_bytes and budget.is_hopeless(written, limit):
            assert meter("exact").count(written) > limit


def test_exact_counts_what_is_not_utf8() -> None:
    assert meter("exact").count(b"a \xff word") == meter("exact").count("a \ufffd word".encode())
