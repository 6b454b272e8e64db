"""Units and currencies: what a unit phrase is worth in base units, so that 50 mm is 5 cm and no number of euros."""

from fractions import Fraction

from oncurve.verify.answers.vocabulary import word_set

Dimensions = tuple[tuple[str, int], ...]
"""Base units with their powers, sorted: (("length", 2),)."""


def _table() -> dict[str, tuple[Fraction, str]]:
    table: dict[str, tuple[Fraction, str]] = {}

    def add(names: str, factor: Fraction | int | str, base: str) -> None:
        table.update(dict.fromkeys(names.split(), (Fraction(factor), base)))

    for prefix, long, factor in (
        ("", "", "1"), ("k", "kilo", "1000"), ("c", "centi", "1/100"), ("m", "milli", "1/1000"),
        ("d", "deci", "1/10"), ("n", "nano", "1/1000000000"), ("M", "mega", "1000000"), ("G", "giga", "1000000000"),
    ):  # fmt: skip
        scale = Fraction(factor)
        add(f"{prefix}m {long}meter {long}meters {long}metre {long}metres", scale, "length")
        add(f"{prefix}g {long}gram {long}grams {long}gramme {long}grammes", scale, "mass")
        add(f"{prefix}L {prefix}l {long}liter {long}liters {long}litre {long}litres", scale, "volume")
        add(f"{prefix}s {long}second {long}seconds {prefix}sec", scale, "time")
        add(f"{prefix}J {long}joule {long}joules", scale, "energy")
        add(f"{prefix}W {long}watt {long}watts", scale, "power")
        add(f"{prefix}N {long}newton {long}newtons", scale, "force")
        add(f"{prefix}V {long}volt {long}volts", scale, "voltage")
        add(f"{prefix}A {long}ampere {long}amperes {prefix}amp {prefix}amps", scale, "current")
        add(f"{prefix}Hz {long}hertz", scale, "frequency")
        add(f"{prefix}Pa {long}pascal {long}pascals", scale, "pressure")
        add(f"{prefix}mol {long}mole {long}moles", scale, "amount")
    add("μm um micrometer micrometers micron microns", Fraction(1, 10**6), "length")
    add("in inch inches", Fraction(254, 10000), "length")
    add("ft foot feet", Fraction(3048, 10000), "length")
    add("yd yard yards", Fraction(9144, 10000), "length")
    add("mi mile miles", Fraction(1609344, 1000), "length")
    add("oz ounce ounces", Fraction(1, 16), "pound")
    add("ton tons tonne tonnes", 10**6, "mass")
    add("min mins minute minutes", 60, "time")
    add("h hr hrs hour hours", 3600, "time")
    add("day days", 86400, "time")
    add("week weeks", 604800, "time")
    add("month months", 1, "month")
    add("yr yrs year years", 12, "month")
    add("gal gallon gallons", 1, "gallon")
    add("dollar dollars USD usd bucks buck", 1, "dollar")
    add("cent cents", Fraction(1, 100), "dollar")
    add("euro euros EUR eur", 1, "euro")
    add("pound pounds lb lbs GBP gbp quid", 1, "pound")  # weight or money: the word does not say
    add("pence pennies", Fraction(1, 100), "pound")
    add("yen JPY jpy", 1, "yen")
    add("yuan RMB rmb CNY cny 元", 1, "yuan")
    add("角", Fraction(1, 10), "yuan")
    add("分", Fraction(1, 100), "yuan")
    add("rupee rupees INR", 1, "rupee")
    add("degree degrees deg 度", 1, "angle")
    add("米 公尺", 1, "length")
    add("千米 公里", 1000, "length")
    add("厘米", Fraction(1, 100), "length")
    add("克", 1, "mass")
    add("千克 公斤", 1000, "mass")
    add("升", 1, "volume")
    add("秒", 1, "time")
    add("分钟", 60, "time")
    add("小时", 3600, "time")
    add("天", 86400, "time")
    add("岁 年", 12, "month")
    for name in ["平方米", "平方厘米", "立方米", "立方厘米"]:
        power = 2 if name.startswith("平方") else 3
        table[name] = (table[name[2:]][0] ** power, f"length^{power}")
    return table


_UNITS = _table()
_SYMBOLS = {"\\$": "dollar", "$": "dollar", "€": "euro", "£": "pound", "¥": "yuan", "₹": "rupee"}
_CODES = {"USD": "dollar", "EUR": "euro", "GBP": "pound", "RMB": "yuan", "CNY": "yuan", "JPY": "yen", "INR": "rupee"}
_CODES |= {"Rs": "rupee", "Rs.": "rupee"}
_SPEEDS = {"mph": Fraction(1609344, 1000), "kph": Fraction(1000), "kmh": Fraction(1000), "kmph": Fraction(1000)}
_MULTIPLIERS = {
    "hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "trillion": 10**12, "dozen": 12, "万": 10**4,
    "亿": 10**8, "百": 100, "千": 1000, "百万": 10**6,
}  # fmt: skip
_COUNTERS = word_set(
    "个 人 只 本 条 名 张 种 辆 棵 支 件 次 位 块 颗 头 朵 组 份 页 道 间 根 粒 瓶 盒 户 台 艘 units unit"
)
POWERS_IN_WORDS = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
"""Words in front of a unit of length."""
AMBIGUOUS = frozenset(["m", "g", "s", "h", "L", "l", "N", "J", "W", "V", "A"])
"""One-letter units that are read as variables unless they are set as text or follow a blank."""


def currency_of(symbol: str) -> str | None:
    """The base unit of a currency sign."""
    return _SYMBOLS.get(symbol)


def currency_of_code(code: str) -> str | None:
    """The base unit of a code in front of an amount: USD 5."""
    return _CODES.get(code)


def multiplier_of(word: str) -> int | None:
    """What ``million`` and the like multiply by."""
    return _MULTIPLIERS.get(word) or _MULTIPLIERS.get(word.lower().rstrip("s"))


def look_up(word: str) -> tuple[Fraction, Dimensions] | None:
    """Factor and dimensions of a known unit; a counter of things has none."""
    if word in _COUNTERS:
        return Fraction(1), ()
    if word in _SPEEDS:
        return _SPEEDS[word] / 3600, (("length", 1), ("time", -1))
    found = _UNITS.get(word) or _UNITS.get(word.lower() if len(word) > 2 else word)
    if found is None:
        return None
    base, _, power = found[1].partition("^")
    if base == "volume":
        return found[0] / 1000, (("length", 3),)
    return found[0], ((base, int(power or 1)),)


def multiply(left: Dimensions, right: Dimensions, power: int = 1) -> Dimensions:
    """Dimensions of a product; what cancels disappears."""
    powers = dict(left)
    for base, exponent in right:
        powers[base] = powers.get(base, 0) + power * exponent
    return tuple(sorted((base, exponent) for base, exponent in powers.items() if exponent))


def noun(words: list[str]) -> Dimensions:
    """What is counted, as a dimension of its own: singular and lower case, so that apple and apples agree."""
    return ((" ".join(_singular(word.lower()) for word in words), 1),)


def _singular(word: str) -> str:
    for ending, replacement in (("ies", "y"), ("sses", "ss"), ("xes", "x"), ("ches", "ch"), ("shes", "sh")):
        if word.endswith(ending):
            return word[: -len(ending)] + replacement
    return word[:-1] if word.endswith("s") and not word.endswith("ss") and len(word) > 3 else word
