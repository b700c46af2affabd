"""
The accuracy of the digits that a ps-server learns at this moment, beside its workers.

    python -m examples.digits.accuracy 127.0.0.1:5555
"""

import sys

from examples.digits.digits import accuracy, network
from ps_rl import ParameterServerClient


def main(address: str) -> None:
    module = network()
    with ParameterServerClient(address) as server:
        module.load_state_dict(server.pull())
        print(f"after {server.steps} images: {accuracy(module):.1%} of the test images are right")


if __name__ == "__main__":
    main(*sys.argv[1:])
