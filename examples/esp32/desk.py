"""What main.py does, without a board: a simulated sensor, and no waiting between readings.

    micropython desk.py 127.0.0.1 8430 TOKEN 300       (or python3)
"""

import sys
import time

from brim import Sender, now_ms


def main():
    host, port, token, n = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    sender = Sender(host, port, "esp32-desk", token)
    start = now_ms()
    for i in range(n):
        sender.add({"mv": 1000 + i}, start - 5000 * (n - i))
    while sender.waiting or sender.request:
        if not sender.poll():
            time.sleep(0.05)
    print("%d delivered, %d refused, %d dropped" % (sender.delivered, sender.refused, sender.dropped))


main()
