//! The scripts: sent by their hash, in full when the server does not have them. What several share is in `scripts/lib` and put in front.

use std::sync::LazyLock;

use redis::{Cmd, Script};

/// A script of this store.
pub(super) struct Lua(LazyLock<(String, &'static str)>);

macro_rules! scripts {
    ($($name:ident = $file:literal with $($lib:literal)*;)*) => {
        $(pub(super) static $name: Lua = Lua(LazyLock::new(|| {
            let text = concat!($(include_str!(concat!("scripts/lib/", $lib, ".lua")),)* include_str!(concat!("scripts/", $file, ".lua")));
            (Script::new(text).get_hash().to_owned(), text)
        }));)*

        /// All of them.
        pub(super) static ALL: &[&Lua] = &[$(&$name),*];
    };
}

scripts! {
    MUTEX_ACQUIRE = "mutex_acquire" with "time" "answers" "token" "names" "kind" "hash";
    MUTEX_RELEASE = "mutex_release" with "time" "answers" "token" "names" "kind" "hash" "taken";
    FAIR_ACQUIRE = "fair_acquire" with "time" "answers" "token" "names" "kind" "hash" "queue";
    FAIR_RELEASE = "fair_release" with "time" "names" "queue" "taken";
    READ_ACQUIRE = "read_acquire" with "time" "answers" "token" "names" "kind" "readers";
    READ_RELEASE = "read_release" with "names" "readers" "taken";
    WRITE_ACQUIRE = "write_acquire" with "time" "answers" "token" "names" "kind" "readers";
    WRITE_RELEASE = "write_release" with "names" "readers" "taken";
    PERMITS_ACQUIRE = "permits_acquire" with "time" "answers" "names" "kind" "permits";
    PERMITS_RELEASE = "permits_release" with "time" "names" "permits";
    PERMITS_SIZE = "permits_size" with "time" "answers" "names" "kind" "permits" "counting";
    COUNTER = "counter" with "time" "answers" "names" "kind" "counting";
    LATCH = "latch" with "time" "answers" "names" "kind" "counting";
    RENEW = "renew" with "time";
    INSPECT = "inspect" with "time" "names";
    SELF_TEST = "self_test" with;
    FENCE_ENTER = "fence_enter" with;
    FENCE_ENTER_SHARED = "fence_enter_shared" with;
    FENCE_CHECK = "fence_check" with;
    FORCE_RELEASE = "force_release" with "time" "answers" "names" "kind" "queue" "readers" "permits";
}

impl Lua {
    /// Leaves the script with the server.
    pub(super) fn load(&self) -> Cmd {
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(self.0.1);
        load
    }

    /// The call by hash.
    pub(super) fn by_hash(&self, keys: &[&str], arguments: &[&[u8]]) -> Cmd {
        call("EVALSHA", &self.0.0, keys, arguments)
    }

    /// The call in full, which also leaves the script with the server. Sent only after `NOSCRIPT`, which means that nothing was done.
    pub(super) fn in_full(&self, keys: &[&str], arguments: &[&[u8]]) -> Cmd {
        call("EVAL", self.0.1, keys, arguments)
    }
}

fn call(command: &str, script: &str, keys: &[&str], arguments: &[&[u8]]) -> Cmd {
    let mut call = redis::cmd(command);
    call.arg(script).arg(keys.len()).arg(keys).arg(arguments);
    call
}
