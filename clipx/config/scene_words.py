"""The vocabulary of the tokenizer `words:scenes`: the words that captions and prompts of rendered scenes can contain.

Token ids: 0 for padding, 1 for a word outside the vocabulary, then WORDS in this order, then the end token. The end
token has the largest id, because open_clip's text transformers take the position of the largest id as the end.
"""

NAME = "words:scenes"  # value of `Inputs.tokenizer`
WORDS = (
    # numbers: counts, and unrelated numbers up to twenty
    "a", "an", "single", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
    "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty",
    # shapes and nouns
    "circle", "ring", "square", "diamond", "triangle", "star", "cross", "heart",
    "circles", "rings", "squares", "diamonds", "triangles", "stars", "crosses", "hearts",
    "object", "shape", "thing", "figure", "objects", "shapes", "things", "figures",
    # colours, sizes, orientations, places
    "red", "green", "blue", "yellow", "purple", "cyan", "white", "black",
    "small", "large", "pointing", "up", "right", "down", "left", "top", "bottom", "centre",
    # wordings
    "picture", "image", "of", "with", "showing", "here", "we", "see", "and", "next", "to", "on", "the", "at", "in",
    "that", "are", "is", "all",
    # faulty captions
    "photo", "page", "day", "click", "full", "size", "from", "our", "last", "holiday", "no", "description", "available",
    "free", "shipping", "orders", "my", "new", "favourite", "week", "may", "be", "subject", "copyright", "download",
    "this", "wallpaper", "for", "your", "desktop", "what", "lovely", "it", "was",
)  # fmt: skip
PADDING, UNKNOWN, FIRST = 0, 1, 2
END = FIRST + len(WORDS)
VOCABULARY = END + 1  # number of token ids
