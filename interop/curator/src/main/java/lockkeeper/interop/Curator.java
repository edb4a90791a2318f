package lockkeeper.interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * Curator's own locks, told what to do by lines on standard input: {@code NUMBER HAND COMMAND KIND PATH …}. A hand is a thread: Curator's
 * locks belong to threads. Each answer is a line {@code NUMBER WORD}; it comes when the command has ended, so several may be under way.
 * What {@code count} adds is told at once, before the release: {@code value KIND N}. So a process that is killed has told what it wrote.
 */
public final class Curator {
    private final CuratorFramework client;
    private final Map<String, InterProcessMutex> mutexes = new ConcurrentHashMap<>();
    private final Map<String, InterProcessReadWriteLock> readWrites = new ConcurrentHashMap<>();
    private final Map<String, InterProcessSemaphoreV2> semaphores = new ConcurrentHashMap<>();
    private final Map<String, Lease> leases = new ConcurrentHashMap<>();

    private Curator(CuratorFramework client) {
        this.client = client;
    }

    /** Arguments: the servers, and the session's length in milliseconds. */
    public static void main(String[] arguments) throws Exception {
        int session = Integer.parseInt(arguments[1]);
        CuratorFramework client =
                CuratorFrameworkFactory.newClient(arguments[0], session, session, new ExponentialBackoffRetry(50, 5));
        client.start();
        client.blockUntilConnected();
        say("0 ready");
        Curator curator = new Curator(client);
        Map<String, ExecutorService> hands = new HashMap<>();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            hands.computeIfAbsent(words[1], hand -> Executors.newSingleThreadExecutor()).submit(() -> {
                try {
                    say(words[0] + " " + curator.run(words));
                } catch (Throwable trouble) {
                    say(words[0] + " error " + trouble);
                }
            });
        }
        hands.values().forEach(ExecutorService::shutdownNow);
        client.close();
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private String run(String[] words) throws Exception {
        switch (words[2]) {
            case "acquire":
                return acquire(words[1], words[3], words[4], Long.parseLong(words[5])) ? "granted" : "busy";
            case "release":
                release(words[1], words[3], words[4]);
                return "released";
            case "count":
                for (int round = 0; round < Integer.parseInt(words[5]); round++) {
                    if (!acquire(words[1], words[3], words[4], 60_000)) {
                        return "busy";
                    }
                    say("value " + words[3] + " " + add(Path.of(words[6])));
                    release(words[1], words[3], words[4]);
                }
                return "counted";
            case "note":
                if (!acquire(words[1], words[3], words[4], 60_000)) {
                    return "busy";
                }
                Path notes = Path.of(words[6]);
                Files.writeString(notes, Files.readString(notes) + words[5] + " ");
                release(words[1], words[3], words[4]);
                return "noted";
            default:
                return "error unknown command";
        }
    }

    /**
     * Reads, then writes: two at once lose an update. The file itself is replaced at once, so that a kill leaves the old number or the
     * new one.
     */
    private static long add(Path file) throws Exception {
        long number = Long.parseLong(Files.readString(file).trim()) + 1;
        Path own = Path.of(file + "." + ProcessHandle.current().pid());
        Files.writeString(own, Long.toString(number));
        Files.move(own, file, StandardCopyOption.ATOMIC_MOVE);
        return number;
    }

    private boolean acquire(String hand, String kind, String path, long millis) throws Exception {
        if (kind.startsWith("semaphore-")) {
            Lease lease = semaphore(kind, path).acquire(millis, TimeUnit.MILLISECONDS);
            if (lease != null) {
                leases.put(hand + path, lease);
            }
            return lease != null;
        }
        return mutex(kind, path).acquire(millis, TimeUnit.MILLISECONDS);
    }

    private void release(String hand, String kind, String path) throws Exception {
        if (kind.startsWith("semaphore-")) {
            semaphore(kind, path).returnLease(leases.remove(hand + path));
        } else {
            mutex(kind, path).release();
        }
    }

    private InterProcessSemaphoreV2 semaphore(String kind, String path) {
        int size = Integer.parseInt(kind.substring("semaphore-".length()));
        return semaphores.computeIfAbsent(path, where -> new InterProcessSemaphoreV2(client, where, size));
    }

    private InterProcessMutex mutex(String kind, String path) {
        switch (kind) {
            case "read":
                return readWrites.computeIfAbsent(path, where -> new InterProcessReadWriteLock(client, where)).readLock();
            case "write":
                return readWrites.computeIfAbsent(path, where -> new InterProcessReadWriteLock(client, where)).writeLock();
            default:
                return mutexes.computeIfAbsent(path, where -> new InterProcessMutex(client, where));
        }
    }
}
