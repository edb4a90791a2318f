package lockkeeper.interop;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

/** Curator as a contestant of the benchmarks, with its defaults. Each task has an InterProcessMutex of its own. */
public final class Bench extends Course {
    private final CuratorFramework client;

    public static void main(String[] words) throws Exception {
        new Bench(words).race();
        Runtime.getRuntime().halt(0);
    }

    private Bench(String[] words) throws InterruptedException {
        super(words);
        String servers = order.get("url").replace("zookeeper://", "");
        client = CuratorFrameworkFactory.newClient(servers, new ExponentialBackoffRetry(50, 5));
        client.start();
        client.blockUntilConnected();
    }

    @Override
    protected Work.Lock lock(int task) {
        var mutex = new InterProcessMutex(client, "/" + name(task));
        return () -> {
            mutex.acquire();
            return mutex::release;
        };
    }
}
