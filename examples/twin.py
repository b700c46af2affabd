"""
The idea of ps-rl in one file, without its guarantees. `python examples/twin.py` learns CartPole in about a minute.

What the rest of the repository adds, and where:

    each push counts once, no acknowledged one is lost, memory is bounded   ps_server/{machine,state} common/ps_client
    a standby that takes over; shards; checkpoints, also in object stores   ps_server/{standby,replication,storage}
    messages that are typed and checked, codecs, encryption; settings       common/ps_common
    Atari, ViZDoom, MuJoCo, your environment; LSTM, V-trace, Q-learning     common/rl_agent
    one command for many workers, on this machine or on a cluster           rl_cluster deploy
    scores that others can verify, policies to take away             rl_eval
    a page, a terminal, metrics, experiment trackers                        ps_web ps_ctl ps_track
"""

import subprocess
import sys
from collections import deque
from typing import Any

import gymnasium
import msgpack
import numpy as np
import torch
import zmq
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.wrappers import RecordEpisodeStatistics
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

GOAL = 475.0  # mean return of the last 100 games
WORKERS, ENVIRONMENTS, UNROLL = 2, 8, 16  # a push is the gradient of 16 steps in each of a worker's 8 environments
LEARNING_RATE, GRADIENT_NORM, ENTROPY_WEIGHT = 2e-3, 0.5, 0.01
DISCOUNT, LAMBDA, REWARD_SCALE = 0.99, 0.95, 0.1
REPLY_MS = 60_000  # a worker that waits longer for a reply ends


class ParameterServer:
    """Holds the weights as one flat vector, and the optimizer. It knows no network, no game and no socket."""

    def __init__(self, goal: float) -> None:
        self.goal, self.is_solved = goal, False
        self.version = self.steps = self.staleness = 0
        self.returns: deque[float] = deque(maxlen=100)  # of the last games, whoever played them

    def receive(self, push: dict[str, Any], body: bytearray) -> dict[str, Any]:
        """Apply a gradient at once, whichever version of the weights it was computed on. Returns the reply's header."""
        vector = torch.frombuffer(body, dtype=torch.float32)
        if self.version == 0:  # a run begins with the weights of the worker that comes first
            self.version, self.weights = 1, nn.Parameter(vector)
            self.optimizer = torch.optim.Adam([self.weights], lr=LEARNING_RATE)
        elif push["computed_on"]:  # 0 from a worker that has just joined, and only needs the weights
            self.weights.grad = vector
            self.optimizer.step()
            self.staleness = self.version - push["computed_on"]
            self.version += 1
            self.steps += push["steps"]
            self.returns.extend(push["returns"])
            self.is_solved |= len(self.returns) == 100 and float(np.mean(self.returns)) >= self.goal
        return {"version": self.version, "is_over": self.is_solved}


def serve(server: ParameterServer) -> None:
    """Start the workers, and answer each push with the newest weights, until all workers have left."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        socket.linger = 0
        address = f"tcp://127.0.0.1:{socket.bind_to_random_port('tcp://127.0.0.1')}"
        command = [sys.executable, __file__, address]
        workers = [subprocess.Popen([*command, str(seed)], process_group=0) for seed in range(WORKERS)]
        try:
            while any(worker.poll() is None for worker in workers):  # one that dies keeps nobody waiting
                if socket.poll(100):
                    peer, header, body = socket.recv_multipart()  # a ROUTER puts the sender's id before a message
                    reply = server.receive(msgpack.unpackb(header), bytearray(body))
                    socket.send_multipart([peer, msgpack.packb(reply), server.weights.detach().numpy().data])
                    if server.version % 100 == 0 or server.is_solved:
                        mean, late = np.mean(server.returns), server.staleness
                        print(f"{server.steps:7,} steps, mean return {mean:5.1f}, newest gradient {late} versions late")
        except KeyboardInterrupt:  # reaches this process alone, since each worker is in a process group of its own
            print("interrupted")
        finally:
            for worker in workers:
                worker.terminate()
                worker.wait()


def work(address: str, seed: int) -> None:
    """Push a gradient, get newer weights in the same round trip, play, compute the next, until the run is over."""
    torch.manual_seed(seed)
    same_step = {"autoreset_mode": AutoresetMode.SAME_STEP}
    games = gymnasium.make_vec("CartPole-v1", ENVIRONMENTS, "sync", same_step, [RecordEpisodeStatistics])
    seen = torch.as_tensor(games.reset(seed=seed)[0])
    network = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 3))
    push, vector = dict[str, Any](computed_on=0), parameters_to_vector(network.parameters()).detach()
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger = 0
        socket.connect(address)
        while True:
            socket.send_multipart([msgpack.packb(push), vector.numpy().data])
            if not socket.poll(REPLY_MS):
                sys.exit(f"no reply from the server at {address} in {REPLY_MS // 1000} s")
            header, body = socket.recv_multipart()
            reply = msgpack.unpackb(header)
            if reply["is_over"]:
                return
            vector_to_parameters(torch.frombuffer(bytearray(body), dtype=torch.float32), network.parameters())
            seen, steps, returns = play(games, network, seen)
            vector = gradient(network, steps)
            push = {"computed_on": reply["version"], "steps": UNROLL * ENVIRONMENTS, "returns": returns}


def play(games: VectorEnv[Any, Any, Any], network: nn.Module, seen: Tensor) -> tuple[Tensor, list[Tensor], list[float]]:
    """Play T steps in B environments: what is seen then, the steps as columns [T, B, …], the returns of ended games."""
    rows, returns = [], list[float]()
    for _ in range(UNROLL):
        with torch.no_grad():
            action = torch.multinomial(network(seen)[:, :2].softmax(-1), 1)
        following, reward, terminated, truncated, info = games.step(action[:, 0].numpy())
        after = following.copy()  # where a game ended: its last observation, not the first of the next game
        if "final_obs" in info:
            ended = info["_final_obs"]
            after[ended] = np.stack(info["final_obs"][ended])
            returns += info["final_info"]["episode"]["r"][ended].tolist()
        # A game that terminated has no future; one that the time limit cut off has the value of its last observation.
        row = (seen, action, REWARD_SCALE * reward, after, DISCOUNT * ~terminated, LAMBDA * ~truncated)
        rows.append([torch.as_tensor(column, dtype=torch.float32) for column in row])
        seen = torch.as_tensor(following)
    return seen, [torch.stack(column) for column in zip(*rows, strict=True)], returns


def gradient(network: nn.Module, steps: list[Tensor]) -> Tensor:
    """A3C's (Mnih et al. 2016, algorithm S3), with λ-returns. The network returns two logits and a value."""
    seen, action, rewards, after, discounts, mix = steps
    log_policy, values = network(seen)[..., :2].log_softmax(-1), network(seen)[..., 2]
    next_values = network(after)[..., 2].detach()
    targets, following = torch.empty_like(values), next_values[-1]
    for t in reversed(range(UNROLL)):
        following = targets[t] = rewards[t] + discounts[t] * torch.lerp(next_values[t], following, mix[t])
    advantages = nn.functional.layer_norm((targets - values).detach(), values.shape)
    chosen, entropy = log_policy.gather(-1, action.long())[..., 0], -(log_policy.exp() * log_policy).sum(-1)
    loss = (0.5 * (targets - values) ** 2 - chosen * advantages - ENTROPY_WEIGHT * entropy).mean()
    flat = parameters_to_vector(torch.autograd.grad(loss, list(network.parameters())))
    return flat * torch.clamp(GRADIENT_NORM / flat.norm(), max=1.0)


if __name__ == "__main__":
    torch.set_num_threads(1)
    if len(sys.argv) > 1:
        work(sys.argv[1], seed=int(sys.argv[2]))
    else:
        serve(ParameterServer(GOAL))
