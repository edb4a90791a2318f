package lockkeeper.interop;

import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/** Redisson as a contestant of the benchmarks. Its settings are its defaults, but for the codec, on which no lock depends. */
public final class Bench extends Course {
    private final RedissonClient client;

    public static void main(String[] words) throws Exception {
        new Bench(words).race();
        Runtime.getRuntime().halt(0);
    }

    private Bench(String[] words) {
        super(words);
        var config = new Config();
        config.setCodec(StringCodec.INSTANCE);
        config.useSingleServer().setAddress(order.get("url"));
        client = Redisson.create(config);
    }

    @Override
    protected void prepare() throws InterruptedException {
        if (workload.equals("keep")) {
            takeMany(number("held", 1));
        }
    }

    @Override
    protected Work heat(List<Work.Lock> locks, double seconds) throws Exception {
        switch (workload) {
            case "readers":
                return Work.cycle(locks, seconds);
            case "reenter":
                RLock outer = client.getLock(order.get("name"));
                outer.lock();
                try {
                    return Work.cycle(List.of(plain(outer)), seconds, false);
                } finally {
                    outer.unlock();
                }
            case "keep":
                Thread.sleep((long) (seconds * 1000));
                return Work.counted(seconds, number("held", 1));
            default:
                return super.heat(locks, seconds);
        }
    }

    @Override
    protected Work.Lock lock(int task) {
        String name = order.get("name");
        switch (order.getOrDefault("as", "lock")) {
            case "fair":
                return plain(client.getFairLock(name));
            case "permit":
                RPermitExpirableSemaphore semaphore = client.getPermitExpirableSemaphore(name);
                semaphore.trySetPermits(8);
                return () -> {
                    String permit = semaphore.acquire();
                    return () -> semaphore.release(permit);
                };
            case "readers":
                boolean writer = task == number("tasks", 1) - 1;
                var lock = client.getReadWriteLock(name);
                return plain(writer ? lock.writeLock() : lock.readLock());
            default:
                return plain(client.getLock(name(task)));
        }
    }

    private static Work.Lock plain(RLock lock) {
        return () -> {
            lock.lock();
            return lock::unlock;
        };
    }

    /** Its locks belong to threads; these are taken by a few, which then end, and the watchdog keeps them. */
    private void takeMany(int held) throws InterruptedException {
        List<Thread> threads = IntStream.range(0, 64).mapToObj(first -> new Thread(() -> {
            for (int number = first; number < held; number += 64) {
                client.getLock(order.get("name") + ":" + number).lock();
            }
        })).collect(Collectors.toList());
        threads.forEach(Thread::start);
        for (Thread thread : threads) {
            thread.join(TimeUnit.MINUTES.toMillis(2));
        }
    }
}
