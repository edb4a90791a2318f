package lockkeeper.interop;

import java.lang.reflect.InvocationTargetException;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

/** RFencedLock by reflection: Redisson has it since 3.19.0, and this compiles against older ones. */
final class Fenced {
    private Fenced() {}

    static RLock find(RedissonClient client, String name) {
        try {
            return (RLock) RedissonClient.class.getMethod("getFencedLock", String.class).invoke(client, name);
        } catch (NoSuchMethodException missing) {
            throw new UnsupportedOperationException("this Redisson has no RFencedLock");
        } catch (ReflectiveOperationException trouble) {
            throw new IllegalStateException(trouble);
        }
    }

    static Object call(RLock lock, String method) throws Exception {
        try {
            return Class.forName("org.redisson.api.RFencedLock").getMethod(method).invoke(lock);
        } catch (InvocationTargetException thrown) {
            throw thrown.getCause() instanceof Exception cause ? cause : thrown;
        }
    }
}
