package lockkeeper.interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/**
 * Redisson as a contestant of the benchmarks: {@code WORKLOAD key=value...}, the same words, lines and workloads as the contestants in Rust;
 * a task is a thread. Its settings are its defaults, but for the codec, on which no lock depends.
 */
public final class Bench {
    private final String workload;
    private final Map<String, String> order = new HashMap<>();
    private final RedissonClient client;

    public static void main(String[] words) throws Exception {
        new Bench(words).run();
        Runtime.getRuntime().halt(0);
    }

    private Bench(String[] words) {
        workload = words[0];
        for (int word = 1; word < words.length; word++) {
            String[] pair = words[word].split("=", 2);
            order.put(pair[0], pair[1]);
        }
        var config = new Config();
        config.setCodec(StringCodec.INSTANCE);
        config.useSingleServer().setAddress(order.get("url"));
        client = Redisson.create(config);
    }

    private void run() throws Exception {
        List<Work.Lock> locks = IntStream.range(0, number("tasks", 1)).mapToObj(this::lock).collect(Collectors.toList());
        if (workload.equals("keep")) {
            takeMany(number("held", 1));
        }
        if (number("warm", 0) > 0) {
            heat(locks, Double.parseDouble(order.get("warm")));
        }
        System.out.println("\"ready\"");
        var input = new BufferedReader(new InputStreamReader(System.in));
        while (input.readLine() != null) {
            System.out.println(heat(locks, Double.parseDouble(order.get("seconds"))).json());
        }
    }

    private Work heat(List<Work.Lock> locks, double seconds) throws Exception {
        switch (workload) {
            case "cycle":
            case "readers":
                return Work.cycle(locks, seconds);
            case "contend":
                return Work.contend(locks, number("hold", 0), number("rest", 0), seconds);
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
                throw new IllegalArgumentException("it has no " + workload);
        }
    }

    private Work.Lock lock(int task) {
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
                return plain(client.getLock(workload.equals("cycle") ? name + ":" + task : name));
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

    private int number(String key, int otherwise) {
        return order.containsKey(key) ? (int) Math.ceil(Double.parseDouble(order.get(key))) : otherwise;
    }
}
