package lockkeeper.interop;

import java.util.concurrent.TimeUnit;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;

/** Semaphores of both kinds, and latches. A permit with a lease of -1 never ends: Redisson has no watchdog for it. */
final class Numbers {
    private Numbers() {}

    static Object run(RedissonClient client, Command command) throws Exception {
        switch (command.object) {
            case "semaphore":
                return semaphore(client.getSemaphore(command.name), command);
            case "permit":
                return permit(client.getPermitExpirableSemaphore(command.name), command);
            default:
                return latch(client.getCountDownLatch(command.name), command);
        }
    }

    private static Object semaphore(RSemaphore semaphore, Command command) throws InterruptedException {
        switch (command.verb) {
            case "set":
                return semaphore.trySetPermits((int) command.number(0));
            case "acquire":
                semaphore.acquire((int) command.number(0));
                return true;
            case "try":
                return semaphore.tryAcquire((int) command.number(0));
            case "release":
                semaphore.release((int) command.number(0));
                return true;
            case "add":
                semaphore.addPermits((int) command.number(0));
                return true;
            case "drain":
                return semaphore.drainPermits();
            case "available":
                return semaphore.availablePermits();
            default:
                throw command.unknown();
        }
    }

    private static Object permit(RPermitExpirableSemaphore semaphore, Command command) throws InterruptedException {
        switch (command.verb) {
            case "set":
                return semaphore.trySetPermits((int) command.number(0));
            case "acquire":
                return command.number(0) < 0 ? semaphore.acquire() : semaphore.acquire(command.number(0), TimeUnit.MILLISECONDS);
            case "try":
                return semaphore.tryAcquire();
            case "tryAcquire":
                return semaphore.tryAcquire(command.number(0), command.number(1), TimeUnit.MILLISECONDS);
            case "release":
                semaphore.release(command.text(0));
                return true;
            case "tryRelease":
                return semaphore.tryRelease(command.text(0));
            case "add":
                semaphore.addPermits((int) command.number(0));
                return true;
            case "available":
                return semaphore.availablePermits();
            default:
                throw command.unknown();
        }
    }

    private static Object latch(RCountDownLatch latch, Command command) throws InterruptedException {
        switch (command.verb) {
            case "set":
                return latch.trySetCount(command.number(0));
            case "down":
                latch.countDown();
                return true;
            case "count":
                return latch.getCount();
            case "await":
                latch.await();
                return true;
            case "delete":
                return latch.delete();
            default:
                throw command.unknown();
        }
    }
}
