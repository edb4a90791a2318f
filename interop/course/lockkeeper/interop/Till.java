package lockkeeper.interop;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.net.Socket;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.atomic.AtomicLong;

/** What the lock of the workload "hot name" protects: a counter on the server that is read and then written. */
final class Till {
    private final OutputStream requests;
    private final BufferedReader answers;
    private final String key;
    private final AtomicLong sold = new AtomicLong();

    Till(String url, String name) throws IOException {
        var server = URI.create(url);
        var socket = new Socket(server.getHost(), server.getPort());
        socket.setTcpNoDelay(true);
        requests = socket.getOutputStream();
        answers = new BufferedReader(new InputStreamReader(socket.getInputStream(), StandardCharsets.UTF_8));
        key = name + ":sold";
    }

    /** Reads, adds one, writes: nothing but the lock keeps other processes out in between. */
    void sell() throws IOException {
        String text = ask("GET", key);
        ask("SET", key, Long.toString(text == null ? 1 : Long.parseLong(text) + 1));
        sold.incrementAndGet();
    }

    long sold() {
        return sold.get();
    }

    private synchronized String ask(String... words) throws IOException {
        var request = new StringBuilder("*" + words.length + "\r\n");
        for (String word : words) {
            request.append("$").append(word.length()).append("\r\n").append(word).append("\r\n");
        }
        requests.write(request.toString().getBytes(StandardCharsets.UTF_8));
        String head = answers.readLine();
        return head.startsWith("$") && !head.startsWith("$-") ? answers.readLine() : null;
    }
}
