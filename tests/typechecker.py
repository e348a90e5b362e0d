"""How the signatures of book_utils are checked while tests run: beartype, where an int passes as a float (PEP 484)."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
