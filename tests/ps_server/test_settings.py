"""Flags of ps-server that make no sense: each error names its flag."""

from pathlib import Path

import pytest

from ps_common.errors import SettingsError
from ps_server.settings import ServerSettings
from tests.rows import row


def test_what_makes_no_sense_is_told_with_the_flag() -> None:
    for fields, sentence in [
        ({"port": -1}, "--port -1"),
        ({"port": 65536}, "--port 65536"),
        ({"checkpoint_seconds": 0.0}, "--checkpoint-seconds 0.0: must be 0.001 to 1000000000"),
        ({"checkpoint_seconds": float("nan")}, "--checkpoint-seconds nan"),
        ({"lease_seconds": -1.0}, "--lease-seconds -1.0: must be 0.001 to 1000000000"),
        ({"lease_seconds": float("nan")}, "--lease-seconds nan"),
        ({"threads": 0}, "--threads 0"),
        ({"resume": "/no/such/run"}, "--resume /no/such/run: there is no such folder"),
        ({"resume": "s3://b/run", "checkpoint_dir": "s3://b/other"}, "leave out --checkpoint-dir"),
        (
            {"resume": "s3://b/run/shard-1-of-2", "shard": "1/2", "shards": ("a:1", "b:2")},
            "is the place of one shard; name that of the run, s3://b/run",
        ),
        ({"resume": "/", "run_dir": Path("x")}, "--resume and --run-dir"),
        ({"standby_of": "here"}, "--standby-of here: must be HOST:PORT"),
        ({"advertise": "here:5555"}, "--advertise here:5555: must be a name or an address, without a port"),
        ({"advertise": ""}, "--advertise : must be a name or an address, without a port"),
        ({"standby_of": "here:5555", "resume": "/"}, "--standby-of and --resume"),
    ]:
        with row(fields, sentence):
            with pytest.raises(SettingsError) as error:
                ServerSettings(**fields)
            assert sentence in str(error.value)
