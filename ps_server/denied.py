"""How the parts of the server machine say no: a code for programs and a sentence for people."""

from common.errors import PsRlError


class Denied(PsRlError):
    """What a peer asked for will not be done. The machine answers with the code and the sentence, and counts it."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
