"""An S3 on loopback (moto), with one bucket: `python -m tests.integration.s3_server` prints its URL and serves."""

import logging
import threading
import urllib.request

from moto.server import ThreadedMotoServer

BUCKET = "runs"


def main() -> None:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # a line for each request
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    urllib.request.urlopen(urllib.request.Request(f"{url}/{BUCKET}", method="PUT")).close()
    print(url, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
