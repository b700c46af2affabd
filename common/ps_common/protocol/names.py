"""
The names, texts, addresses and numbers of messages and files. Names and texts of a peer are printable ASCII, since all
of them end in logs and on terminals.

Control characters could move a cursor. Format and direction characters (U+202E) could make one line look like another,
and look-alikes two names like one. The integers are whole numbers that every language holds exactly.

An import path names a custom part: "my_pkg.sub:MyTorso", a module and a name in it. A Gymnasium id behind a module
("my_games:Line-v0") ends with a version, whose hyphen no Python name has: so an environment's id is one or the other.

An address is HOST:PORT, as users type it: the host is a name, an IPv4 address, or an IPv6 address in brackets.
"""

import ipaddress
import re
from typing import Annotated

import msgspec

from ps_common.errors import SettingsError

NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.:@/+-]*\Z"
PRINTABLE = r"^[ -~]*\Z"
LONGEST_NAME, LONGEST_TEXT, LONGEST_SENTENCE = 100, 200, 4000
LONGEST_PREFIX = 80  # of names that a program numbers
_DOTTED = r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*"
IMPORT_PATH = f"{_DOTTED}:{_DOTTED}"

Name = Annotated[
    str, msgspec.Meta(min_length=1, max_length=LONGEST_NAME, pattern=NAME)
]  # of a worker, a meter, a codec
Text = Annotated[str, msgspec.Meta(max_length=LONGEST_TEXT, pattern=PRINTABLE)]  # a reason, a setting, a host
Address = Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_TEXT, pattern=r"^[!-~]+\Z")]  # HOST:PORT
Sentence = Annotated[str, msgspec.Meta(max_length=LONGEST_SENTENCE, pattern=PRINTABLE)]  # of a server, for people
ImportPath = Annotated[str, msgspec.Meta(max_length=LONGEST_TEXT, pattern=rf"^{IMPORT_PATH}\Z")]

MOST = 2**53 - 1  # the largest integer that encoders of doubles write as an integer
MOST_NUMBER = 1e30  # either way: sums and squares of such numbers stay finite
Count = Annotated[int, msgspec.Meta(ge=0, le=MOST)]
Sequence = Annotated[int, msgspec.Meta(ge=1, le=MOST)]
Signed = Annotated[int, msgspec.Meta(ge=-MOST, le=MOST)]
Minutes = Annotated[float, msgspec.Meta(ge=0, le=MOST)]
Number = Annotated[float, msgspec.Meta(ge=-MOST_NUMBER, le=MOST_NUMBER)]  # NaN is within no bounds
# A step's share of a return, either way. The largest rewards of the Atari games are below it, and float32 holds sums of
# the squares of discounted returns of it.
MOST_REWARD = 1e8


def is_name(text: str) -> bool:
    """Whether it is a Name."""
    return len(text) <= LONGEST_NAME and re.match(NAME, text) is not None


def is_text(text: str) -> bool:
    """Whether it is a Text."""
    # As PRINTABLE, ten times as fast: a run has sixty texts, and a thousand workers join at once.
    return len(text) <= LONGEST_TEXT and text.isascii() and text.isprintable()


def as_name(text: str) -> str:
    """The nearest Name: each other character becomes a minus sign."""
    return re.sub(r"[^A-Za-z0-9_.:@/+-]", "-", text).lstrip("-.:@/+")[:LONGEST_NAME] or "unnamed"


def check_name(flag: str, name: str, *, longest: int = LONGEST_NAME) -> None:
    """Raises SettingsError naming the flag unless it is a Name of at most so many characters."""
    if not is_name(name) or len(name) > longest:
        raise SettingsError(
            f"{flag} {name!r}: must have 1 to {longest} letters, digits and _.:@/+-, and begin with a letter, a digit "
            f"or _; for example {as_name(name)[:longest]}"
        )


def printable(text: str) -> str:
    """The text as UTF-8 can hold it: escapes stand for bytes of a path that are not UTF-8."""
    return text.encode(errors="backslashreplace").decode()


def as_text(text: str, longest: int = LONGEST_TEXT) -> str:
    """A text of any origin as a Text: escapes stand for other characters."""
    escaped = re.sub(r"[^ -~]", lambda match: ascii(match[0])[1:-1], text)
    return escaped if len(escaped) <= longest else escaped[: longest - 3] + "..."


def is_import_path(text: str) -> bool:
    """Whether it is an ImportPath."""
    return len(text) <= LONGEST_TEXT and re.fullmatch(IMPORT_PATH, text) is not None


def module_of(path: str) -> str:
    """The module before the last colon of an import path; "" without one."""
    return path.rpartition(":")[0]


NAMED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*):([0-9]{1,5})")
BRACKETED = re.compile(r"\[([0-9A-Fa-f:.]+(?:%[A-Za-z0-9._-]+)?)\]:([0-9]{1,5})")
EVERY_INTERFACE = {"0.0.0.0", "*", "::"}


def check_address(flag: str, address: str) -> None:
    """Raises SettingsError naming the flag unless the address is HOST:PORT."""
    match = NAMED.fullmatch(address) or BRACKETED.fullmatch(address)
    if match is None or not 0 < int(match[2]) <= 65535 or ("[" in address and not is_ipv6(match[1])):
        raise SettingsError(f"{flag} {address}: must be HOST:PORT, for example 192.168.1.7:5555 or [fd00::7]:5555")


def is_host(host: str) -> bool:
    """Whether it is a name or an address that HOST of HOST:PORT can be."""
    return is_ipv6(host) or NAMED.fullmatch(f"{host}:1") is not None


def split_address(address: str) -> tuple[str, int]:
    """Host, without brackets, and port."""
    host, _, port = address.rpartition(":")
    return bare_host(host), int(port)


def join_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if is_ipv6(host) else f"{host}:{port}"


def bare_host(host: str) -> str:
    """Without the brackets that an IPv6 address may be typed in."""
    return host.removeprefix("[").removesuffix("]")


def ip_version(host: str) -> int | None:
    """4 or 6 of an address; None of a name, which has to be looked up."""
    try:
        return ipaddress.ip_address(host).version
    except ValueError:
        return None


def is_ipv6(host: str) -> bool:
    """Whether it is an IPv6 address, rather than a name or an IPv4 address."""
    return ip_version(host) == 6


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
