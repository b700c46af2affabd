# Everything sets itself up: a virtual environment in .venv, then the run. A second call starts in seconds.

PYTHON ?= python3.11
PRESET ?= pong
WORKERS ?= 2
ARGS ?=
PEERS ?= .peers
OTHERS ?= .others
PYTHONS ?= python3.12 python3.13 python3.14

VENV := .venv
BIN := $(VENV)/bin
# What running needs, with the extra that a preset's environment takes; and all extras with the developers' tools.
ID := $(shell sed -n 's/^id = "\(.*\)"/\1/p' common/ps_common/presets/$(PRESET).toml 2>/dev/null)
EXTRA := $(if $(filter Vizdoom%,$(ID)),doom)$(if $(filter MinAtar/%,$(ID)),minatar)$(if $(filter \
	Inverted% Hopper% HalfCheetah%,$(ID)),mujoco)$(if $(filter LunarLander% BipedalWalker% CarRacing%,$(ID)),box2d)
RUN := $(VENV)/run$(EXTRA).ready
READY := $(VENV)/ready

# Every target with a line of help.
.PHONY: $(shell sed -n 's/^\([a-z-]*\):.*## .*/\1/p' $(MAKEFILE_LIST))

train: $(RUN)  ## a server and workers learn a game on this machine: PRESET=… WORKERS=… ARGS="--seed 1 …"
	$(BIN)/rl-cluster --preset $(PRESET) --workers $(WORKERS) $(ARGS)

# One process more than cores: tests wait for programs a fifth of their time. And where Python may write no bytecode,
# each program that a test starts would compile the sources.
# mypy runs beside the tests: it takes one core for most of a minute.
test: style  ## lint, types, tests
	$(BIN)/python -m compileall -q -j 0 common ps_* rl_*
	@$(BIN)/mypy & types=$$!; \
		$(BIN)/pytest -n $$(($$(env -u OMP_NUM_THREADS nproc) + 1)) --dist worksteal --durations 25; tests=$$?; \
		wait $$types || { echo "mypy has found errors: they stand above"; exit 1; }; exit $$tests

test-price: $(READY)  ## what the tests cost, by folder, test and program: CPU, waits, starts of programs: ARGS="tests/ps_web …"
	$(BIN)/python -m compileall -q -j 0 common ps_* rl_*
	$(BIN)/pytest -q -n $$(env -u OMP_NUM_THREADS nproc) --dist worksteal -p tests.price $(ARGS)

check: lint  ## lint, types, who may import whom: seconds, before the tests
	$(BIN)/pytest -q tests/test_layers.py

lint: style  ## ruff, mypy --strict
	$(BIN)/mypy

style: $(READY)  ## ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(READY)  ## have ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)  ## the benchmark table, in less than ten minutes
	$(BIN)/python -m benchmarks

nightly: $(READY)  ## what takes too long for every commit: further real runs, each preset for 5,000 steps, the pages' commands, zoo/
	$(BIN)/pytest -n $$(env -u OMP_NUM_THREADS nproc) --dist worksteal --durations 25 -m nightly

# In virtual environments of their own, with ps-rl and no extra.
UNIT_TESTS := $(addprefix tests/,ps_common ps_client rl_agent ps_server rl_worker simulation)
FOR_TESTS := hypothesis psutil pytest pytest-timeout pytest-xdist pyyaml tensorboard

lowest: $(OTHERS)/lowest.txt  ## the unit tests with the lowest version of each dependency that pyproject.toml allows
	$(or $(shell command -v $(PYTHON)),python3) -m venv $(OTHERS)/lowest
	$(OTHERS)/lowest/bin/pip install -c $< -e . $(FOR_TESTS)
	$(OTHERS)/lowest/bin/pytest -n auto --dist worksteal $(OF_NUMPY) $(UNIT_TESTS)

# Numpy 2.0 warns of tensors of torch that it takes for numbers, until torch knows its new keyword.
OF_NUMPY := -W "ignore:__array__ implementation:DeprecationWarning"

$(OTHERS)/lowest.txt: pyproject.toml
	mkdir -p $(OTHERS)
	sed -n '/^dependencies/,/^]/s/^ *"\([A-Za-z-]*\).*>=\(.*\)",/\1==\2/p' $< >$@

pythons:  ## the unit tests with other versions of Python that are installed here: PYTHONS="python3.13 python3.14"
	for python in $(PYTHONS); do \
		$$python -m venv $(OTHERS)/$$python && $(OTHERS)/$$python/bin/pip install -c constraints.txt -e . $(FOR_TESTS) && \
		$(OTHERS)/$$python/bin/pytest -n auto --dist worksteal $(UNIT_TESTS) || exit 1; done

spaces: $(READY)  ## tasks with known answers for every cell of masks, Dict, MultiDiscrete and Box, LSTM: their times
	$(BIN)/pytest -n auto --dist worksteal --durations 30 -m "" tests/rl_agent/algorithms/test_spaces.py

explore: $(READY)  ## thousands of new examples for every property: any bytes, any history of crashes and losses
	$(BIN)/pytest -n auto --dist worksteal --hypothesis-profile explore --timeout 3600 -m hypothesis

mutants: $(READY)  ## one place of the code changed at a time, and which changes no test notices: SEED=… PLACES=… PARTS="…"
	$(BIN)/python -m tests.mutants $(PARTS) --seed $(or $(SEED),0) --places $(or $(PLACES),300)

swarm: $(READY)  ## simulated worlds, each drawn from a seed, exact and live in the end: SEED=… (one, as a table) or MINUTES=… FIRST=…
	$(BIN)/python -m tests.simulation.swarm

chaos: $(READY)  ## pushes and steps counted while server and workers are killed behind a bad network: SEED=… KILLS=… SWARM=… SHARDS=… GANG=…
	$(BIN)/python -m benchmarks.trials.chaos

fuzz: $(READY)  ## a real server among liars, for minutes: SEED=… MESSAGES=… RATE=…
	$(BIN)/python -m benchmarks.trials.fuzz

soak: $(READY)  ## 200 workers come and go; memory and descriptors are watched: SEED=… MINUTES=… WORKERS=… NAMES=…
	$(BIN)/python -m benchmarks.trials.soak

torn: $(READY)  ## a million pulls under full load, each checked to be whole: PULLS=… SIZE=… KILLS=…
	$(BIN)/python -m benchmarks.trials.torn

upgrade: $(READY)  ## servers and workers replaced by the next release under load, every push counted: WORKERS=… SHARDS=… KILLS=…
	$(BIN)/python -m benchmarks.trials.upgrade

partition: $(READY)  ## virtual hosts cut off, made silent, gone; every push counted (as root): SEED=… EVENTS=… SWARM=…
	$(BIN)/python -m benchmarks.trials.partition

load: $(READY)  ## a thousand synthetic workers at one server, of its own or another: ARGS="--workers … --server …"
	$(BIN)/python -m benchmarks.load $(ARGS)

seeds: $(READY)  ## how soon a preset comes to its score, seed by seed: PRESET=… SEEDS=… ARGS="--envs 16 …" (of the runs)
	$(BIN)/python -m benchmarks.learning.seeds --preset $(PRESET) --seeds $(or $(SEEDS),10) -- $(ARGS)

speedrun: $(READY)  ## minutes to the mark of a track of benchmarks/SPEEDRUN.md, seeds 0 to 4: TRACK=pong|pong-sticky|breakout-sticky|cartpole|doom
	$(BIN)/python -m benchmarks.learning.seeds --track $(or $(TRACK),pong)

zoo: $(READY)  ## train presets and keep their policies in zoo/: PRESETS="pong cartpole …" SEED=…
	$(BIN)/python -m benchmarks.learning.zoo $(if $(PRESETS),--presets $(PRESETS)) --seed $(or $(SEED),0)

zoo-test: $(READY)  ## a hundred games of each policy in zoo/, and the network of every preset as ONNX
	$(BIN)/pytest -q -s -m "" tests/zoo tests/rl_eval/test_preset_networks.py

scale: $(READY)  ## what this machine gives with 1 to all cores and a GPU, and the command that uses it: PRESET=… MINUTES=…
	$(BIN)/python -m benchmarks.scale --preset $(PRESET) --minutes $(or $(MINUTES),10) $(ARGS)

peers: $(READY) $(PEERS)/ready  ## steps/s beside Stable-Baselines3 and CleanRL's settings on EnvPool, same network; 10 minutes: ARGS="--turns 3 …"
	$(BIN)/python -m benchmarks.peers --venvs $(PEERS) $(ARGS)

peers-scores: $(READY) $(PEERS)/ready  ## each as its authors recommend, and its score; 101 minutes: ARGS="--minutes 8 …"
	$(BIN)/python -m benchmarks.peers --scores --venvs $(PEERS) $(ARGS)

dear: $(READY) $(PEERS)/ready  ## SAC on a simulator of 20 ms a step, beside Stable-Baselines3's; half an hour: ARGS="--seeds 1 …"
	$(BIN)/python -m benchmarks.dear --venvs $(PEERS) $(ARGS)

dear-mujoco: $(READY) $(PEERS)/ready  ## Hopper and HalfCheetah beside Stable-Baselines3's SAC, hours; continues where it stopped: ARGS="--seeds 1 …"
	$(BIN)/python -m benchmarks.dear.mujoco --venvs $(PEERS) $(ARGS)

engine-test: $(READY)  ## ps-rl on a real cluster engine of deploy/, started, scaled and hurt: ENGINE=docker|slurm|kubernetes|ray
	deploy/engine_test.sh $(ENGINE)

docs-test: $(READY)  ## every command and snippet of the pages, checked, and run with short budgets; minutes
	$(BIN)/pytest -m "nightly or not nightly" tests/documents

reference: $(READY)  ## write the tables of docs/reference from the code
	$(BIN)/python -m docs.extension.generated_pages

docs: $(READY)  ## the documentation site, into build/docs; a warning is an error
	$(BIN)/sphinx-build -c docs -b html -q -E -a -W --keep-going . build/docs
	@echo "open build/docs/index.html"

docs-links: $(READY)  ## ask for every address of other hosts that the pages name; needs a network
	$(BIN)/sphinx-build -c docs -b linkcheck -d build/links-cache -q . build/links

trackers: $(READY)  ## the tests of all experiment trackers; installs MLflow, too
	$(BIN)/pip install -q -c constraints.txt -e ".[wandb,mlflow]"
	$(BIN)/pytest -m "nightly or not nightly" tests/ps_track

release: $(READY)  ## check, build, try and tag what the tip of main is, on this machine alone: VERSION=…
	$(BIN)/pip install -q -c constraints.txt build twine
	$(BIN)/python -m deploy.release $(or $(VERSION),$(error VERSION=… is the version to release))

docker-test: ENGINE := docker
docker-test: engine-test  ## the same for ENGINE=docker

size:  ## lines and files of the product's Python, and of its tests
	@for part in "common ps_* rl_*" tests; do \
		files=$$(find $$part -name '*.py'); \
		echo "$$part: $$(cat $$files | wc -l) lines in $$(echo "$$files" | wc -l) files"; done

clean:  ## remove the virtual environment
	rm -rf $(VENV)

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(BIN)/python:
	$(or $(shell command -v $(PYTHON)),python3) -m venv $(VENV)

# Each peer has a virtual environment of its own, outside that of ps-rl.
$(PEERS)/ready: $(wildcard benchmarks/peers/*.txt) constraints.txt
	for file in $(wildcard benchmarks/peers/*.txt); do \
		venv=$(PEERS)/$$(basename $$file .txt); \
		$(or $(shell command -v $(PYTHON)),python3) -m venv $$venv && $$venv/bin/pip install -r $$file || exit 1; done
	touch $@

$(RUN): pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing what ps-rl needs to run into $(VENV): once, for a minute or two"
	$(BIN)/pip install -c constraints.txt -e ".$(if $(EXTRA),[$(EXTRA)])"
	touch $@

$(READY): pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing what ps-rl needs to be tested, too, into $(VENV): once, for a few minutes"
	$(BIN)/pip install -c constraints.txt -e ".[dev]"
	@command -v chromium > /dev/null || { echo "installing chromium for the tests of the page (as root; else they are skipped)"; \
		test "$$(id -u)" = 0 && apt-get install -y -q chromium > /dev/null 2>&1; } || echo "no chromium here"
	@command -v promtool >/dev/null || test -e $(BIN)/promtool || { cd $(BIN) && apt-get download -q prometheus && \
		dpkg -x prometheus_*.deb ../prometheus && ln -s ../prometheus/usr/bin/prom* . && rm prometheus_*.deb; } >/dev/null 2>&1 || \
		echo "no Prometheus here: its tests are skipped"
	@$(BIN)/python -m deploy.kubernetes.kustomize >/dev/null 2>&1 || echo "no kubectl here: some tests of manifests are skipped"
	touch $@ $(VENV)/run.ready $(patsubst %,$(VENV)/run%.ready,box2d doom minatar mujoco)
