"""How the heads of a circuit find their place, and what passes where: one file for each function, and what it needs."""
