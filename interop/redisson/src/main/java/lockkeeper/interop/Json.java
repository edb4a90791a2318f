package lockkeeper.interop;

/** The little JSON that answers need. */
final class Json {
    private Json() {}

    static String value(long id, Object value) {
        return "{\"id\":" + id + ",\"value\":" + (value instanceof String text ? quoted(text) : String.valueOf(value)) + "}";
    }

    /** What lies under Redisson's wrappings. */
    static String error(long id, Throwable thrown) {
        Throwable trouble = thrown;
        while (trouble.getCause() != null) {
            trouble = trouble.getCause();
        }
        String message = String.valueOf(trouble.getMessage());
        return "{\"id\":" + id + ",\"error\":" + quoted(trouble.getClass().getSimpleName()) + ",\"message\":" + quoted(message) + "}";
    }

    private static String quoted(String text) {
        var quoted = new StringBuilder("\"");
        text.chars().forEach(unit -> {
            if (unit < ' ' || unit == '"' || unit == '\\') {
                quoted.append(String.format("\\u%04x", unit));
            } else {
                quoted.append((char) unit);
            }
        });
        return quoted.append('"').toString();
    }
}
