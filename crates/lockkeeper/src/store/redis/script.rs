//! The scripts: sent by their hash, in full when the server does not have them.

use std::sync::LazyLock;

use redis::{Cmd, Script};

/// A script of this store.
pub(super) struct Lua(LazyLock<Script>, &'static str);

macro_rules! scripts {
    ($($name:ident = $file:literal;)*) => {
        $(pub(super) static $name: Lua = Lua(LazyLock::new(|| Script::new(include_str!($file))), include_str!($file));)*

        /// All of them.
        pub(super) static ALL: &[&Lua] = &[$(&$name),*];
    };
}

scripts! {
    ACQUIRE = "scripts/acquire.lua";
    RELEASE = "scripts/release.lua";
    RENEW = "scripts/renew.lua";
    INSPECT = "scripts/inspect.lua";
    FORCE_RELEASE = "scripts/force_release.lua";
}

impl Lua {
    /// Leaves the script with the server.
    pub(super) fn load(&self) -> Cmd {
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(self.1);
        load
    }

    /// The call by hash.
    pub(super) fn by_hash(&self, keys: &[&str], arguments: &[&[u8]]) -> Cmd {
        call("EVALSHA", self.0.get_hash(), keys, arguments)
    }

    /// The call in full, which also leaves the script with the server. Sent only after `NOSCRIPT`, which means that nothing was done.
    pub(super) fn in_full(&self, keys: &[&str], arguments: &[&[u8]]) -> Cmd {
        call("EVAL", self.1, keys, arguments)
    }
}

fn call(command: &str, script: &str, keys: &[&str], arguments: &[&[u8]]) -> Cmd {
    let mut call = redis::cmd(command);
    call.arg(script).arg(keys.len()).arg(keys).arg(arguments);
    call
}
