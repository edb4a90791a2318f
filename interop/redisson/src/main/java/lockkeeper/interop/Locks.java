package lockkeeper.interop;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.util.concurrent.TimeUnit;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

/** Everything that is an RLock. A lease of -1 is kept by Redisson's watchdog. */
final class Locks {
    private Locks() {}

    static Object run(RedissonClient client, Command command) throws Exception {
        RLock lock = find(client, command);
        switch (command.verb) {
            case "lock":
                lock.lock(command.number(0), TimeUnit.MILLISECONDS);
                return true;
            case "try":
                return lock.tryLock();
            case "tryLock":
                return lock.tryLock(command.number(0), command.number(1), TimeUnit.MILLISECONDS);
            case "lockAndGetToken":
            case "getToken":
                return Fenced.call(lock, command.verb);
            case "unlock":
                lock.unlock();
                return true;
            case "forceUnlock":
                return lock.forceUnlock();
            case "isLocked":
                return lock.isLocked();
            case "isHeld":
                return lock.isHeldByCurrentThread();
            case "holdCount":
                return lock.getHoldCount();
            case "ttl":
                return lock.remainTimeToLive();
            case "count":
                count(lock, command.number(0), command.text(1));
                return true;
            case "contend":
                return contend(lock, command.number(0), command.number(1), command.number(2));
            default:
                throw command.unknown();
        }
    }

    private static RLock find(RedissonClient client, Command command) {
        switch (command.object) {
            case "lock":
                return client.getLock(command.name);
            case "fair":
                return client.getFairLock(command.name);
            case "fenced":
                return Fenced.find(client, command.name);
            case "read":
                return client.getReadWriteLock(command.name).readLock();
            case "write":
                return client.getReadWriteLock(command.name).writeLock();
            case "none":
                return null;
            default:
                throw command.unknown();
        }
    }

    /** Adds one to the number in a file, that often, each time under the lock: without it additions get lost. */
    private static void count(RLock lock, long turns, String path) throws IOException {
        try (var file = new RandomAccessFile(path, "rw")) {
            for (long turn = 0; turn < turns; turn++) {
                if (lock != null) {
                    lock.lock();
                }
                try {
                    file.seek(0);
                    long number = file.readLong();
                    file.seek(0);
                    file.writeLong(number + 1);
                } finally {
                    if (lock != null) {
                        lock.unlock();
                    }
                }
            }
        }
    }

    /**
     * Acquires the lock again and again for {@code time}, and holds it for {@code hold} each time; with {@code wait} above 0 by
     * {@code tryLock(wait)}. The answer is {@code GRANTS LONGEST_WAIT TIMEOUTS}.
     */
    private static String contend(RLock lock, long hold, long time, long wait) throws InterruptedException {
        long grants = 0;
        long longest = 0;
        long timeouts = 0;
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(time);
        while (System.nanoTime() < end) {
            long asked = System.nanoTime();
            boolean held = true;
            if (wait > 0) {
                held = lock.tryLock(wait, -1, TimeUnit.MILLISECONDS);
            } else {
                lock.lock();
            }
            longest = Math.max(longest, System.nanoTime() - asked);
            if (!held) {
                timeouts++;
                continue;
            }
            try {
                Thread.sleep(hold);
                grants++;
            } finally {
                lock.unlock();
            }
        }
        return grants + " " + TimeUnit.NANOSECONDS.toMillis(longest) + " " + timeouts;
    }
}
