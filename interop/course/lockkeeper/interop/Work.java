package lockkeeper.interop;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Collectors;

/** The workloads of the benchmarks, and what came of one: operations of each thread, how long they took, or their turns. */
final class Work {
    /** Is taken, and gives what gives it back. */
    interface Lock {
        Give take() throws Exception;
    }

    /** Gives back what was taken. */
    interface Give {
        void give() throws Exception;
    }

    private interface Task {
        void run(Work part) throws Exception;
    }

    private double seconds;
    private String facts = "";
    private long count;
    private final List<Long> counts = new ArrayList<>();
    private long[] nanos = new long[1024];
    private int timed;
    private final List<long[]> turns = new ArrayList<>();

    static Work counted(double seconds, long count) {
        var work = new Work();
        work.seconds = seconds;
        work.counts.add(count);
        return work;
    }

    static Work cycle(List<Lock> locks, double seconds) throws Exception {
        return cycle(locks, seconds, true);
    }

    /** On threads of their own, or on this one. */
    static Work cycle(List<Lock> locks, double seconds, boolean threads) throws Exception {
        long start = System.nanoTime();
        long until = start + (long) (seconds * 1e9);
        List<Task> tasks = locks.stream().map(lock -> (Task) part -> {
            for (long began = System.nanoTime(); began < until;) {
                lock.take().give();
                long ended = System.nanoTime();
                part.time(ended - began);
                part.count++;
                began = ended;
            }
        }).collect(Collectors.toList());
        Work whole = all(tasks, threads);
        whole.seconds = (System.nanoTime() - start) / 1e9;
        return whole;
    }

    /** All want the same lock; each keeps it for so many microseconds or sells once, and wants it again after so many. */
    static Work contend(List<Lock> locks, long hold, long rest, Till till, double seconds) throws Exception {
        long until = System.nanoTime() + (long) (seconds * 1e9);
        List<Task> tasks = new ArrayList<>();
        for (int index = 0; index < locks.size(); index++) {
            long number = index;
            Lock lock = locks.get(index);
            tasks.add(part -> {
                while (System.nanoTime() < until) {
                    long asked = System.nanoTime();
                    Give taken = lock.take();
                    long granted = System.nanoTime();
                    pause(hold);
                    if (till != null) {
                        till.sell();
                    }
                    long released = System.nanoTime();
                    taken.give();
                    pause(rest);
                    if (granted < until) {
                        part.count++;
                        part.turns.add(new long[] {number, asked, granted, released});
                    }
                }
            });
        }
        Work whole = all(tasks, true);
        whole.seconds = seconds;
        whole.facts = till == null ? "" : "\"sold\":" + till.sold();
        return whole;
    }

    private static void pause(long micros) {
        long end = System.nanoTime() + micros * 1000;
        for (long left = micros * 1000; left > 0; left = end - System.nanoTime()) {
            LockSupport.parkNanos(left);
        }
    }

    private static Work all(List<Task> tasks, boolean threads) throws Exception {
        List<Work> parts = new ArrayList<>();
        List<Thread> running = new ArrayList<>();
        for (Task task : tasks) {
            var part = new Work();
            parts.add(part);
            if (threads) {
                running.add(new Thread(() -> part.carryOut(task)));
            } else {
                task.run(part);
            }
        }
        running.forEach(Thread::start);
        for (Thread thread : running) {
            thread.join();
        }
        var whole = new Work();
        for (Work part : parts) {
            whole.counts.add(part.count);
            Arrays.stream(part.nanos, 0, part.timed).forEach(whole::time);
            whole.turns.addAll(part.turns);
        }
        return whole;
    }

    /** Whatever goes wrong ends the program: a contestant that fails has no figures. */
    private void carryOut(Task task) {
        try {
            task.run(this);
        } catch (Throwable trouble) {
            trouble.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private void time(long took) {
        if (timed == nanos.length) {
            nanos = Arrays.copyOf(nanos, 2 * timed);
        }
        nanos[timed++] = took;
    }

    String json() {
        int step = timed / 20_000 + 1;
        var text = new StringBuilder("{\"seconds\":" + seconds + ",\"counts\":" + counts + ",\"facts\":{" + facts + "},\"nanos\":[");
        for (int index = 0; index < timed; index += step) {
            text.append(index == 0 ? "" : ",").append(nanos[index]);
        }
        text.append("],\"turns\":").append(turns.stream().map(Arrays::toString).collect(Collectors.toList())).append("}");
        return text.toString();
    }
}
