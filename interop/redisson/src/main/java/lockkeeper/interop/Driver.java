package lockkeeper.interop;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;

/**
 * Carries out commands with the real Redisson, for tests in another language.
 *
 * <p>A line is a command: {@code ID CLIENT THREAD OBJECT VERB NAME ARGUMENT...}. It runs on the thread with that name of the client with that
 * name, after what that thread was told before; other threads go on meanwhile. Its answer is a line of JSON: {@code {"id":ID,"value":...}} or
 * {@code {"id":ID,"error":CLASS,"message":...}}. The program ends with its input, and gives nothing back that it holds.
 */
public final class Driver {
    private Driver() {}

    public static void main(String[] arguments) throws IOException {
        Stalls.start();
        var clients = new Clients();
        var threads = new Threads();
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var output = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            List<String> words = Arrays.asList(line.split(" "));
            long id = Long.parseLong(words.get(0));
            String client = words.get(1);
            threads.run(client + "/" + words.get(2), () -> output.println(answer(id, clients, client, words.subList(3, words.size()))));
        }
        // Not exit: a shutdown hook might give something back, and threads that wait would be waited for.
        Runtime.getRuntime().halt(0);
    }

    private static String answer(long id, Clients clients, String client, List<String> words) {
        try {
            return Json.value(id, clients.run(client, words));
        } catch (Throwable trouble) {
            return Json.error(id, trouble);
        }
    }
}
