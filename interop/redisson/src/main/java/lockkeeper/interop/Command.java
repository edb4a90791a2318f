package lockkeeper.interop;

import java.util.List;

/** {@code OBJECT VERB NAME ARGUMENT...}; times are in milliseconds. */
final class Command {
    final String object;
    final String verb;
    final String name;
    private final List<String> arguments;

    Command(List<String> words) {
        object = words.get(0);
        verb = words.get(1);
        name = words.size() > 2 ? words.get(2) : "";
        arguments = words.size() > 3 ? words.subList(3, words.size()) : List.of();
    }

    String text(int index) {
        return arguments.get(index);
    }

    long number(int index) {
        return Long.parseLong(arguments.get(index));
    }

    RuntimeException unknown() {
        return new IllegalArgumentException(object + " cannot " + verb);
    }
}
