"""This project's own TFDS data sets, made from fetched packages. Importing a module registers its builder."""

# Each is the name of a fetched package, of a module here, and of the TFDS builder in it.
NAMES = ("brown", "debian_fashion_mnist", "digits", "spam_assassin", "spoken_digits")
