"""The words of the questions, and their continuation after the end of a list."""

from string import ascii_lowercase

VARIABLES = tuple(ascii_lowercase)

NAMES = (
    *("Alice", "Bob", "Charlie", "David", "Eve", "Frank", "Grace", "Henry", "Isabelle", "Jack", "Kate", "Larry"),
    *("Mary", "Nick", "Olivia", "Peter", "Queen", "Rose", "Sam", "Tom", "Ursula", "Victor", "Wendy", "Xavier"),
    *("Yvonne", "Zach", "Anna", "Ben", "Clara", "Daniel", "Emma", "Fred", "Gloria", "Hugo", "Irene", "James"),
    *("Karen", "Leo", "Maria", "Noah", "Oscar", "Paula", "Quentin", "Ruth", "Simon", "Tina", "Umberto", "Vera"),
    *("William", "Xenia", "Yusuf", "Zoe"),
)

CITIES = (
    *("Amsterdam", "Berlin", "Cairo", "Delhi", "Edinburgh", "Florence", "Geneva", "Havana", "Istanbul", "Jakarta"),
    *("Kyoto", "Lima", "Madrid", "Nairobi", "Oslo", "Paris", "Quito", "Rome", "Sydney", "Tokyo", "Utrecht", "Vienna"),
    *("Warsaw", "Xiamen", "York", "Zurich"),
)


def word(words: tuple[str, ...], number: int) -> str:
    """Return a word by number, from 0. After the last word the list repeats with numbers: z, a2, b2, ..., z2, a3."""
    again, place = divmod(number, len(words))
    return words[place] if again == 0 else f"{words[place]}{again + 1}"
