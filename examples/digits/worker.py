"""
A worker that learns digits: gradients of batches to a ps-server, weights back. Start as many as you like.

    ps-server --port 5555
    python -m examples.digits.worker 127.0.0.1:5555
    python -m examples.digits.worker 127.0.0.1:5555
"""

import argparse

import torch
from torch.nn.functional import cross_entropy

from examples.digits.digits import accuracy, digits, network
from ps_rl import ParameterServerClient, RunEnded

BATCH = 50


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("server", help="HOST:PORT of ps-server")
    parser.add_argument("--images", type=int, default=60_000, help="that all workers learn from together")
    arguments = parser.parse_args()

    images, wanted = digits(for_test=False)
    module = network()
    settings = {"optimizer": "adam", "learning_rate": 2e-3, "max_steps": arguments.images}
    with ParameterServerClient(arguments.server, **settings) as server:
        torch.manual_seed(server.number)
        weights = server.seed(dict(module.named_parameters()))
        try:
            while True:
                module.load_state_dict(weights)
                batch = torch.randint(len(images), (BATCH,))
                loss = cross_entropy(module(images[batch]), wanted[batch])
                gradients = torch.autograd.grad(loss, list(module.parameters()))
                weights = server.push_pull(dict(zip(weights, gradients, strict=True)), steps=BATCH)
        except RunEnded as ended:
            print(f"{ended}: {server.steps} images, {accuracy(module):.1%} of the test images are right")


if __name__ == "__main__":
    main()
