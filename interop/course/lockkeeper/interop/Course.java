package lockkeeper.interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/**
 * A contestant of the benchmarks: {@code WORKLOAD key=value...}, the same words, lines and workloads as the contestants in Rust; a task is a
 * thread. The sources here are compiled into every driver that takes part.
 */
abstract class Course {
    protected final String workload;
    protected final Map<String, String> order = new HashMap<>();
    private Till till;

    protected Course(String[] words) {
        workload = words[0];
        for (int word = 1; word < words.length; word++) {
            String[] pair = words[word].split("=", 2);
            order.put(pair[0], pair[1]);
        }
    }

    /** The lock of a task. */
    protected abstract Work.Lock lock(int task);

    /** The name of the lock of a task: its own, or the one that all want. */
    protected String name(int task) {
        return workload.equals("cycle") ? order.get("name") + ":" + task : order.get("name");
    }

    protected int number(String key, int otherwise) {
        return order.containsKey(key) ? (int) Math.ceil(Double.parseDouble(order.get(key))) : otherwise;
    }

    /** What has to be done before the first heat. */
    protected void prepare() throws Exception {}

    protected Work heat(List<Work.Lock> locks, double seconds) throws Exception {
        switch (workload) {
            case "cycle":
                return Work.cycle(locks, seconds);
            case "contend":
                return Work.contend(locks, number("hold", 0), number("rest", 0), till(), seconds);
            default:
                throw new IllegalArgumentException("it has no " + workload);
        }
    }

    /** What is sold under the lock, with {@code sell=}: opened once. */
    private Till till() throws Exception {
        if (till == null && order.containsKey("sell")) {
            till = new Till(order.get("url"), order.get("name"));
        }
        return till;
    }

    /** Warms up, then runs a heat for every line of its input. */
    final void race() throws Exception {
        List<Work.Lock> locks = IntStream.range(0, number("tasks", 1)).mapToObj(this::lock).collect(Collectors.toList());
        prepare();
        if (number("warm", 0) > 0) {
            heat(locks, Double.parseDouble(order.get("warm")));
        }
        System.out.println("\"ready\"");
        var input = new BufferedReader(new InputStreamReader(System.in));
        while (input.readLine() != null) {
            System.out.println(heat(locks, Double.parseDouble(order.get("seconds"))).json());
        }
    }
}
