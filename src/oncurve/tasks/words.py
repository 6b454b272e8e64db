"""Common English words of 4 to 12 letters, for questions about spelling."""

_TEXT = """
above across address afternoon airplane already although animal answer apple apricot arrow autumn balance balloon
banana banner basket beautiful because bedroom behind believe better between bicycle blossom blueberry bookkeeper
border bottle bottom breakfast bridge brother bubble building butter butterfly button cabbage calendar camera candle
canyon carpet carrot castle ceiling celebration center cherry chicken children chocolate circle coffee committee
common company computer cookie corner cottage cotton cousin cricket curtain daughter december desert different
difficult dinner discussion doctor dolphin dragon drawer eleven elephant engine engineer evening excellent family
farmer feather february fellow fifteen finger flower follow football forest forever fountain freedom friend garden
gentle giraffe glasses goose grammar grandmother grapefruit grasshopper green guitar hammer happiness harbor heart
hello hippopotamus history holiday honey hospital hundred imagine important independent information insect island
jacket january jellyfish journey jungle kangaroo keyboard kitchen kitten ladder language lantern lesson letter
lettuce library little lizard lobster machine magazine mammal mannequin market meadow measure middle minute mirror
mississippi moment monkey morning mountain mushroom narrow nature necessary needle neighbor nothing notebook
november number occasion ocean october office onion orange orchestra oxygen pancake paper parallel parrot passenger
peanut pebble pencil pepper piano picture pillow planet pocket possible potato powder practice president pumpkin
puzzle question quick rabbit railroad rainbow raspberry recommend remember restaurant river robot rocket running
sailor salad sandwich saxophone school science scissors season secret sentence september seventeen shadow shoulder
silver sister sixteen snow soccer spaghetti spring squirrel station storm strawberry street success suggestion
summer sunset sweater swimming table teacher telephone television temperature tennessee theater thirteen thunder
tiger together tomato tomorrow tractor travel treasure triangle trumpet tunnel turtle umbrella uncle under
understand university valley vegetable village violin volcano vowel wagon walnut watermelon weather weekend whisper
whistle window winter wonder wooden yellow yesterday zebra zucchini
"""

WORDS = tuple(_TEXT.split())
