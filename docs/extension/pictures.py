"""
The pictures of docs/how-it-works.md: `python -m docs.extension.pictures` draws them into docs/images.

They are kept in the repository, so that a repository viewer shows them; a test compares them with what is drawn here.
"""

from pathlib import Path

from docs.extension.drawing import GREEN, RED, SOFT, Arrow, Box, Link, Note, boxes, sequence

FOLDER = Path(__file__).parent.parent / "images"


def push() -> str:
    """A push whose reply is lost, and which is applied once."""
    steps = [
        Arrow(1, 0, "WEIGHTS, version 7"),
        Note(0, "plays, computes a gradient"),
        Arrow(0, 1, "PUSH sequence 3, computed on 7"),
        Note(1, "ledger: 3 is new → apply", GREEN),
        Note(1, "version 8; staleness 7 − 7 = 0"),
        Arrow(1, 0, "WEIGHTS 8 + settled: 3 applied", is_lost=True),
        Note(0, "no reply: connects again", RED),
        Arrow(0, 1, "PUSH sequence 3, again"),
        Note(1, "ledger: 3 is settled → nothing", GREEN),
        Arrow(1, 0, "WEIGHTS 8 + settled: 3 applied"),
        Note(0, "drops 3 when a checkpoint has it"),
    ]
    return sequence("A push whose reply is lost is applied once", ["worker", "server"], steps)


def restart() -> str:
    """A killed server gets again what its checkpoint lacks."""
    steps = [
        Arrow(0, 1, "PUSH 4"),
        Arrow(1, 2, "checkpoint with 1 to 4"),
        Arrow(1, 0, "settled 4, durable 4"),
        Note(0, "resend buffer: empty"),
        Arrow(0, 1, "PUSH 5, PUSH 6"),
        Arrow(1, 0, "settled 6, durable 4"),
        Note(0, "resend buffer: 5, 6", GREEN),
        Note(1, "killed (−9)", RED),
        Arrow(2, 1, "ps-server --resume: has 1 to 4"),
        Arrow(0, 1, "HELLO"),
        Arrow(1, 0, "WELCOME: settled through 4"),
        Arrow(0, 1, "PUSH 5, PUSH 6, again"),
        Note(1, "ledger: new → apply, once", GREEN),
    ]
    return sequence("A killed server gets again what its checkpoint lacks", ["worker", "server", "disk"], steps)


def takeover() -> str:
    """The standby takes over, and the old primary is fenced."""
    steps = [
        Arrow(1, 2, "STATE, then UPDATE for each change"),
        Arrow(2, 1, "FOLLOWED: has everything to 92"),
        Arrow(0, 1, "PUSH 31"),
        Arrow(1, 2, "UPDATE 93"),
        Arrow(1, 0, "settled 31"),
        Note(1, "silent", RED),
        Arrow(0, 1, "PUSH 32", is_lost=True),
        Arrow(0, 2, "HELLO: I know both, A is silent"),
        Note(2, "1 s without A: epoch + 1, serves", GREEN),
        Arrow(2, 0, "WELCOME: settled through 31"),
        Arrow(0, 2, "PUSH 32"),
        Arrow(2, 1, "FENCE: a later epoch serves"),
        Note(1, "comes back: fenced, exits", SOFT),
    ]
    return sequence("The standby takes over", ["worker", "primary A", "standby B"], steps)


def shards() -> str:
    """One vector, three servers."""
    found = [
        Box(250, 20, 260, 84, "worker", ("one flat vector of all weights", "clips it, then cuts it")),
        Box(20, 200, 220, 104, "shard 1/3", ("elements 0 … a", "ledger, checkpoints", "optimizer of its range")),
        Box(270, 200, 220, 104, "shard 2/3", ("elements a … b", "ledger, checkpoints", "optimizer of its range")),
        Box(520, 200, 220, 104, "shard 3/3", ("elements b … P", "ledger, checkpoints", "optimizer of its range")),
        Link(330, 104, 150, 200, "PUSH 9, steps 20"),
        Link(380, 104, 380, 200, "PUSH 9"),
        Link(430, 104, 620, 200, "PUSH 9, steps 20"),
    ]
    return boxes("One vector, three servers", 760, 324, found)


def machines() -> str:
    """Two pure machines in two thin shells."""
    found = [
        Box(20, 20, 330, 260, "rl_worker", (), GREEN),
        Box(410, 20, 330, 260, "ps_server", (), GREEN),
        Box(40, 60, 290, 60, "training.py", ("pull, collect with rl_agent, learn, push",)),
        Box(40, 130, 290, 60, "ps_client/shell/: sockets, clocks", ("carries effects out",)),
        Box(40, 200, 290, 64, "ps_client/machine/: pure", ("message, now → effects",)),
        Box(430, 60, 290, 60, "records/, storage/", ("files of the run, in threads of their own",)),
        Box(430, 130, 290, 60, "shell/: sockets, keys", ("carries effects out",)),
        Box(430, 200, 290, 64, "machine/ and state/: pure", ("message, now → effects",)),
        Link(330, 160, 430, 160, "tcp 5555"),
        Box(
            20,
            300,
            720,
            64,
            "common/ps_common/: the contract",
            ("messages, codecs, settings, names of files; imports no other package of ours",),
        ),
    ]
    return boxes("Two pure machines in two thin shells", 760, 384, found)


PICTURES = {
    "how-push": push,
    "how-restart": restart,
    "how-takeover": takeover,
    "how-shards": shards,
    "how-machines": machines,
}


def main() -> None:
    for name, draw in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(draw())


if __name__ == "__main__":
    main()
