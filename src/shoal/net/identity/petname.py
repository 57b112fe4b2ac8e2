"""A name for a node that people can say and remember, made from its id.

`brave-otter-42` is the same on every machine. It is for the eye only: two ids can
share one, and somebody with time can look for a key whose name is that of another.
Wherever it counts, the id counts. Words are never replaced or moved, or nodes would
change their names.
"""

import hashlib
from typing import Final

from shoal.model.ids import NodeId

_ADJECTIVES: Final = """
    able airy alert amber ample apt arctic azure balmy bold brave breezy brief bright
    brisk broad bronze busy calm candid chief civil clean clear clever coastal cool
    coral cosy crisp curious daring dapper deep deft distant eager early earnest easy
    even exact fair famous fancy fast fearless fleet floral fluent foggy fond frank free
    fresh frosty full gentle gifted glad golden grand great green happy hardy hidden
    high honest humble icy ideal indigo ivory jolly jovial keen kind lapis large lasting
    late lavish level light lively local long loud loyal lucid lucky lunar major mellow
    merry mighty mild mint misty modest mossy native neat new nimble noble north olive
    open patient pearl placid plain polar polite proud quick quiet rapid rare ready
    regal royal sharp solar sturdy sunny
"""
_ANIMALS: Final = """
    albatross anchovy angler auk avocet badger barb bass bat bear beaver beetle beluga
    bison bittern bream bunting buzzard capelin caribou carp cat chub cicada clam cod
    condor conger coot cormorant crab crane cricket crow curlew dace darter deer dipper
    dolphin dory dove duck dugong dunlin eagle eel egret eider elk ermine falcon ferret
    finch flounder fox frog fulmar gannet gecko gibbon goby goose grebe grouper grouse
    gull gurnard haddock hake halibut hare heron herring ibex ibis jackdaw jay kestrel
    kite kiwi koi krill lamprey lark lemur ling linnet lion lobster loon lynx mackerel
    magpie manatee marlin marten martin mink minnow mole moose moray mullet mussel
    narwhal newt octopus oriole osprey otter owl oyster panda parrot pelican perch
    petrel pigeon pike plover puffin quail raven ray robin seal skua
"""
ADJECTIVES: Final = tuple(_ADJECTIVES.split())
ANIMALS: Final = tuple(_ANIMALS.split())
CHECKS: Final = 100


def petname(node: NodeId) -> str:
    """Return the name of `node`: an adjective, an animal and two digits."""
    digest = hashlib.sha256(b"shoal-petname-v1\0" + node.encode()).digest()
    number = int.from_bytes(digest[:8], "big")
    number, check = divmod(number, CHECKS)
    number, animal = divmod(number, len(ANIMALS))
    adjective = number % len(ADJECTIVES)
    return f"{ADJECTIVES[adjective]}-{ANIMALS[animal]}-{check:02d}"
