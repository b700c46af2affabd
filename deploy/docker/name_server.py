"""
`name_server.py ADDRESS`: a name server that knows no name and says so at once, by UDP on port 53.

Every network has one that answers, and the engines of the scenarios are cut off from all of them: without a reply, each
look-up of a name that is not there takes ten seconds, such as that of a container that is being started again.
"""

import socket
import sys

LONGEST_QUERY_BYTES = 4096
NO_SUCH_NAME = b"\x81\x83"  # a response, recursion available, NXDOMAIN
ONE_QUESTION_NO_RECORDS = b"\0\1\0\0\0\0\0\0"

with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening:
    listening.bind((sys.argv[1], 53))
    while True:
        query, sender = listening.recvfrom(LONGEST_QUERY_BYTES)
        name_ends = query.find(b"\0", 12) + 5  # after it: type and class
        listening.sendto(query[:2] + NO_SUCH_NAME + ONE_QUESTION_NO_RECORDS + query[12:name_ends], sender)
