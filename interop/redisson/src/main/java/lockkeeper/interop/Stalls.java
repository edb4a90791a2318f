package lockkeeper.interop;

import java.util.ArrayDeque;
import java.util.concurrent.TimeUnit;

/** Measures for how long threads of this process did not run although they had to: the machine is busy, or garbage is collected. */
final class Stalls {
    private static final long PERIOD = 10;
    private static final long WORTH_TELLING = 5;
    private static final int MOST = 100_000;
    private static final ArrayDeque<long[]> FOUND = new ArrayDeque<>();

    private Stalls() {}

    static void start() {
        var thread = new Thread(Stalls::watch, "stalls");
        thread.setDaemon(true);
        thread.start();
    }

    private static void watch() {
        while (true) {
            long began = System.nanoTime();
            try {
                Thread.sleep(PERIOD);
            } catch (InterruptedException ignored) {
                return;
            }
            long late = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - began) - PERIOD;
            if (late >= WORTH_TELLING) {
                synchronized (FOUND) {
                    FOUND.add(new long[] {System.currentTimeMillis() - late, late});
                    if (FOUND.size() > MOST) {
                        FOUND.remove();
                    }
                }
            }
        }
    }

    /** {@code BEGIN:LENGTH ...} of those since a time, in milliseconds since the epoch. */
    static String since(long time) {
        var text = new StringBuilder();
        synchronized (FOUND) {
            for (long[] stall : FOUND) {
                if (stall[0] + stall[1] >= time) {
                    text.append(text.length() == 0 ? "" : " ").append(stall[0]).append(':').append(stall[1]);
                }
            }
        }
        return text.toString();
    }
}
