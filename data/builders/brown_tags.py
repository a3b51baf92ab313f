"""Brown's 472 tags as the 12 parts of speech of Petrov et al. 2012, "A Universal Part-of-Speech Tagset"."""

import functools

TAGS = ("NOUN", "VERB", "ADJ", "ADV", "PRON", "DET", "ADP", "NUM", "CONJ", "PRT", ".", "X")

# Base tags as the corpus's manual lists them (Francis and Kucera 1979, section 3).
_CLASSES = {
    "NOUN": "nn nns np nps nr nrs pn",
    "VERB": "be bed bedz beg bem ben ber bez do dod doz hv hvd hvg hvn hvz md vb vbd vbg vbn vbz",
    "ADJ": "ap jj jjr jjs jjt od",
    "ADV": "* ql qlp rb rbr rbt rn wql wrb",
    "PRON": "ex pp$$ ppl ppls ppo pps ppss wpo wps",
    "DET": "abl abn abx at dt dti dts dtx pp$ wdt wp$",
    "ADP": "in",
    "NUM": "cd",
    "CONJ": "cc cs",
    "PRT": "rp to uh",
    ".": ". , : ( ) -- ' `` ''",
    "X": "nil",
}
_CLASS = {tag: name for name, tags in _CLASSES.items() for tag in tags.split()}


@functools.cache
def reduce(tag: str) -> str:
    """One of TAGS. Foreign words ('fw-') are X; a contraction ('pps+bez') is what its first word is; where a word stood
    (title, headline, quoted: '-tl', '-hl', '-nc') and the possessive and negated forms ('nn$', 'md*') don't matter."""
    if tag.startswith("fw-"):
        return "X"
    tag = tag.split("+")[0]
    for suffix in ("-nc", "-hl", "-tl"):
        tag = tag.removesuffix(suffix)
    for base in (tag, tag.removesuffix("*"), tag.removesuffix("$")):
        if base in _CLASS:
            return _CLASS[base]
    return "X"
