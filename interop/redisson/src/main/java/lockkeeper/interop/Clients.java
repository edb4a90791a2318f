package lockkeeper.interop;

import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/** Redisson clients by name, so that each test has one of its own in a process that many share. */
final class Clients {
    private final Map<String, RedissonClient> clients = new ConcurrentHashMap<>();

    Object run(String name, List<String> words) throws Exception {
        var command = new Command(words);
        if (command.object.equals("client") && command.verb.equals("open")) {
            clients.put(name, open(command));
            return null;
        }
        RedissonClient client = clients.get(name);
        if (client == null) {
            throw new IllegalStateException("there is no client " + name);
        }
        switch (command.object) {
            case "client":
                return about(name, client, command);
            case "semaphore":
            case "permit":
            case "latch":
                return Numbers.run(client, command);
            default:
                return Locks.run(client, command);
        }
    }

    /** {@code client open ADDRESS DATABASE WATCHDOG IDLE}: few connections, because there are many clients. */
    private static RedissonClient open(Command command) {
        var config = new Config();
        // What the codec of a version does is not the question here; no lock depends on it.
        config.setCodec(StringCodec.INSTANCE);
        config.setLockWatchdogTimeout(command.number(1));
        config.setThreads(4);
        config.setNettyThreads(4);
        config.useSingleServer()
            .setAddress(command.name)
            .setDatabase((int) command.number(0))
            .setIdleConnectionTimeout((int) command.number(2))
            .setConnectionMinimumIdleSize(2)
            .setConnectionPoolSize(16)
            .setSubscriptionConnectionMinimumIdleSize(1)
            .setSubscriptionConnectionPoolSize(8);
        return Redisson.create(config);
    }

    private Object about(String name, RedissonClient client, Command command) {
        switch (command.verb) {
            case "owner":
                // As the wire has it.
                return client.getId() + ":" + Thread.currentThread().getId();
            case "stalls":
                return Stalls.since(Long.parseLong(command.name));
            case "close":
                clients.remove(name);
                client.shutdown();
                return null;
            default:
                throw command.unknown();
        }
    }
}
