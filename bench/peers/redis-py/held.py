"""Two of the control group: `held.py lock|set-nx URL NAME LEASE_MS`; the lines are those of verify/src/command/held.rs.

`lock` is redis-py's Lock, renewed by `reacquire` every third of the lease; a refused one is how it is told of a loss. `set-nx` is what people write by hand:
SET NX PX, nothing that renews, and a script that deletes the key if it has the own value.
"""

import json
import sys
import threading
import time
import uuid

import redis

DELETE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"


def say(**words):
    print(json.dumps(words), flush=True)


class ByHand:
    def __init__(self, client, name, lease):
        self.client, self.name, self.lease, self.value = client, name, lease, None
        self.delete = client.register_script(DELETE)

    def lock(self):
        self.value = str(uuid.uuid4())
        while not self.client.set(self.name, self.value, nx=True, px=self.lease):
            time.sleep(0.02)

    def ask(self):
        return self.client.get(self.name) == self.value.encode()

    def unlock(self):
        return self.delete(keys=[self.name], args=[self.value]) == 1


class Theirs:
    def __init__(self, client, name, lease):
        self.held = client.lock(name, timeout=lease / 1000, thread_local=False, sleep=0.02)
        self.period, self.renewing = lease / 3000, None

    def lock(self):
        self.held.acquire()
        self.renewing = threading.Event()
        threading.Thread(target=self.renew, args=(self.renewing,), daemon=True).start()

    def renew(self, ended):
        while not ended.wait(self.period):
            try:
                self.held.reacquire()
            except redis.exceptions.LockError:
                if not ended.is_set():
                    say(lost=True)
                return
            except redis.exceptions.RedisError:
                pass

    def ask(self):
        return self.held.owned()

    def unlock(self):
        self.renewing.set()
        try:
            self.held.release()
            return True
        except redis.exceptions.LockError:
            return False


def main():
    kind, url, name, lease = sys.argv[1:5]
    client = redis.Redis.from_url(url)
    one = {"lock": Theirs, "set-nx": ByHand}[kind](client, name, int(lease))
    say(ready=True)
    for line in sys.stdin:
        try:
            if line.strip() == "lock":
                one.lock()
                say(locked=True, token=0)
            elif line.strip() == "ask":
                say(held=one.ask())
            elif line.strip() == "unlock":
                say(unlocked=one.unlock())
        except redis.exceptions.RedisError as error:
            say(error=str(error))


main()
