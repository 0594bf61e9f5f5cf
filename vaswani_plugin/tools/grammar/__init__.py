"""A synchronous grammar: English sentences and their German translations, built side by side.

`lexicon` holds the words, `phrases` inflects them (case, gender, number, tense), `clauses` puts them in order in either
language, and `sentences` draws whole sentence pairs at random. Only the standard library is used. In the first three
nothing is random, so that any sentence can be built by hand and checked.
"""
