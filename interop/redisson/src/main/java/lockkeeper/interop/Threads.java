package lockkeeper.interop;

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;

/** Threads by name, each made when it is first asked for. A lock of Redisson's belongs to a thread, so a thread stays the same one. */
final class Threads {
    private final Map<String, BlockingQueue<Runnable>> queues = new HashMap<>();

    /** Called by one thread only. */
    void run(String name, Runnable task) {
        queues.computeIfAbsent(name, this::start).add(task);
    }

    private BlockingQueue<Runnable> start(String name) {
        var queue = new LinkedBlockingQueue<Runnable>();
        var thread = new Thread(() -> work(queue), name);
        thread.setDaemon(true);
        thread.start();
        return queue;
    }

    private static void work(BlockingQueue<Runnable> queue) {
        while (true) {
            try {
                queue.take().run();
            } catch (InterruptedException ignored) {
                // Meant for the command before, which is over.
            }
        }
    }
}
