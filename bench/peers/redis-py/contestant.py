"""The Lock of redis-py as a contestant of the benchmarks: the same words, lines and workloads as those in Rust; a task is a thread."""

import json
import sys
import threading
import time

import redis

# It renews nothing, so the lease is what we have by default.
LEASE = 30


def cycle(locks, order, seconds):
    start = time.monotonic_ns()
    until = start + int(seconds * 1e9)

    def work(task, part):
        began = time.monotonic_ns()
        while began < until:
            locks[task].acquire()
            locks[task].release()
            ended = time.monotonic_ns()
            part["nanos"].append(ended - began)
            part["count"] += 1
            began = ended

    report = run_all(locks, work)
    report["seconds"] = (time.monotonic_ns() - start) / 1e9
    report["nanos"] = report["nanos"][:: len(report["nanos"]) // 20000 + 1]
    return report


def contend(locks, order, seconds):
    until = time.monotonic_ns() + int(seconds * 1e9)
    hold, rest = (float(order.get(what, 0)) / 1e6 for what in ("hold", "rest"))

    def work(task, part):
        while time.monotonic_ns() < until:
            asked = time.monotonic_ns()
            locks[task].acquire()
            granted = time.monotonic_ns()
            if hold:
                time.sleep(hold)
            released = time.monotonic_ns()
            locks[task].release()
            if rest:
                time.sleep(rest)
            if granted < until:
                part["count"] += 1
                part["turns"].append([task, asked, granted, released])

    report = run_all(locks, work)
    report["seconds"] = seconds
    return report


def run_all(locks, work):
    parts = [{"count": 0, "nanos": [], "turns": []} for _ in locks]
    threads = [threading.Thread(target=work, args=(task, part)) for task, part in enumerate(parts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {
        "counts": [part["count"] for part in parts],
        "nanos": [nanos for part in parts for nanos in part["nanos"]],
        "turns": [turn for part in parts for turn in part["turns"]],
        "facts": {},
    }


def main():
    order = dict(word.split("=", 1) for word in sys.argv[2:])
    heat = {"cycle": cycle, "contend": contend}[sys.argv[1]]
    client = redis.Redis.from_url(order["url"])
    own = sys.argv[1] == "cycle"
    tasks = range(int(order.get("tasks", 1)))
    locks = [client.lock(f"{order['name']}:{task}" if own else order["name"], timeout=LEASE) for task in tasks]
    if float(order.get("warm", 0)) > 0:
        heat(locks, order, float(order["warm"]))
    print(json.dumps("ready"), flush=True)
    for _ in sys.stdin:
        print(json.dumps(heat(locks, order, float(order["seconds"]))), flush=True)


main()
