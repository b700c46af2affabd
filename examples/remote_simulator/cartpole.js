// CartPole as a simulator in JavaScript, with the physics of Gymnasium's CartPole-v1.
//
//     node examples/remote_simulator/cartpole.js HOST PORT [GAMES]
//
// Each game has a connection of its own. A game that loses it connects again, and all end after a minute without a run.

const net = require("node:net");

const [host, port, games = "1"] = process.argv.slice(2);
const RETRY_MS = 100;
const GIVE_UP_MS = 60_000;
const STEPS = 500; // a game is truncated after so many
let heard = Date.now(); // when any game was last connected

class CartPole {
  reset(seed) {
    this.random = seed >>> 0;
    this.steps = 0;
    this.state = [0, 0, 0, 0].map(() => 0.1 * this.uniform() - 0.05);
    return { observation: this.state };
  }

  step(action) {
    let [x, speed, angle, turn] = this.state;
    const force = action === 1 ? 10 : -10;
    const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
    const push = (force + 0.05 * turn * turn * sin) / 1.1; // 1.1 kg of cart and pole; 0.05 is the pole's kg times m
    const bend = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - (0.1 * cos * cos) / 1.1));
    const pull = push - (0.05 * bend * cos) / 1.1;
    this.state = [x + 0.02 * speed, speed + 0.02 * pull, angle + 0.02 * turn, turn + 0.02 * bend];
    [x, , angle] = this.state;
    const terminated = Math.abs(x) > 2.4 || Math.abs(angle) > (12 * Math.PI) / 180;
    this.steps += 1;
    return { observation: this.state, reward: 1, terminated, truncated: this.steps >= STEPS };
  }

  uniform() { // mulberry32: a small generator with a seed
    this.random = (this.random + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(this.random ^ (this.random >>> 15), 1 | this.random);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }
}

function play() {
  const game = new CartPole();
  const socket = net.connect(Number(port), host);
  let received = "";
  socket.setNoDelay(true);
  socket.on("connect", () => { heard = Date.now(); });
  socket.on("data", (chunk) => {
    heard = Date.now();
    const lines = (received + chunk).split("\n");
    received = lines.pop();
    for (const line of lines) {
      const question = JSON.parse(line);
      if (question.error) console.error(`dropped: ${question.error}`);
      else if ("reset" in question) socket.write(JSON.stringify(game.reset(question.reset)) + "\n");
      else socket.write(JSON.stringify(game.step(question.action)) + "\n");
    }
  });
  socket.on("error", () => {}); // "close" follows
  socket.on("close", () => {
    if (Date.now() - heard < GIVE_UP_MS) setTimeout(play, RETRY_MS);
  });
}

for (let game = 0; game < Number(games); game += 1) play();
