"""An ESP32 that measures a voltage every 5 seconds and sends it every minute, or later.

Copy brim.py and this file to the board (mpremote cp brim.py main.py :) and set the
names below.
"""

import time

import machine
import network
import ntptime

from brim import Sender

WIFI, PASSWORD = "name", "password"
HOST, PORT, TOKEN = "192.168.1.10", 8430, None
PIN = 34
SECONDS = 5

wlan = network.WLAN(network.STA_IF)
adc = machine.ADC(machine.Pin(PIN), atten=machine.ADC.ATTN_11DB)
sender = Sender(HOST, PORT, "esp32-" + machine.unique_id().hex(), TOKEN, batch=60 // SECONDS)


def online():
    """Reports whether there is a network, and connects where there is none."""
    if not wlan.active():
        wlan.active(True)
    if not wlan.isconnected() and wlan.status() != network.STAT_CONNECTING:
        wlan.connect(WIFI, PASSWORD)
    return wlan.isconnected()


def clock_is_set():
    """Sets the clock once, because a reading needs its time."""
    if time.gmtime()[0] < 2024 and online():
        try:
            ntptime.settime()
        except OSError as e:
            print("no time yet:", e)
    return time.gmtime()[0] >= 2024


while not clock_is_set():
    time.sleep(1)
due = time.ticks_ms()
while True:
    sender.add({"mv": adc.read_uv() // 1000})
    if online() and (len(sender.waiting) >= sender.batch or sender.request):
        while sender.poll():  # after an outage, everything that waits
            pass
    due = time.ticks_add(due, SECONDS * 1000)
    time.sleep_ms(max(0, time.ticks_diff(due, time.ticks_ms())))
