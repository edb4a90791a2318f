//! The scripts: sent by their hash, in full when the server does not have them. What several share is in `scripts/lib`.

use std::sync::LazyLock;

use redis::{Cmd, Script};

/// A script of this store, in two dialects: clusters of 7.0 and later publish in the slot.
pub(super) struct Lua {
    plain: LazyLock<Text>,
    sharded: LazyLock<Text>,
    /// What it is called in the script for many steps; empty if it is not one of these.
    pub(super) step: &'static str,
}

/// A script's hash and its text.
struct Text(String, String);

/// The first line of every script. Dragonfly lets a script use keys that it did not declare only if it says so; to others it is a comment. We cannot
/// declare them all: which readers have keys is known only when a script has looked.
const DRAGONFLY: &str = "--!df flags=allow-undeclared-keys\n";

impl Text {
    /// Without comments and indentation: the server keeps every script in memory.
    fn new(source: &str) -> Self {
        let mut text = String::with_capacity(source.len());
        text.push_str(DRAGONFLY);
        for line in source.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("--")) {
            text.push_str(line);
            text.push('\n');
        }
        Self(Script::new(&text).get_hash().to_owned(), text)
    }
}

/// A text from `scripts`.
macro_rules! file {
    ($file:literal) => {
        include_str!(concat!("scripts/", $file, ".lua"))
    };
}

/// A script out of its parts.
macro_rules! lua {
    ($name:ident = $($part:expr),*) => {
        lua! { $name, "" = $($part),* }
    };
    ($name:ident, $step:literal = $($part:expr),*) => {
        pub(super) static $name: Lua = Lua {
            step: $step,
            plain: LazyLock::new(|| Text::new(concat!($($part),*))),
            sharded: LazyLock::new(|| {
                Text::new(&$name.plain.1.replace("'PUBLISH'", "'SPUBLISH'").replace("'NUMSUB'", "'SHARDNUMSUB'"))
            }),
        };
    };
}

macro_rules! scripts {
    ($($name:ident = $($part:literal)*;)*) => {
        $(lua! { $name = $(file!($part)),* })*

        /// All that are no steps, but the script for many steps.
        pub(super) static OTHERS: &[&Lua] = &[$(&$name,)* &MULTI];
    };
}

/// A script as a function of the server it speaks to, its keys and arguments, with its libraries in front.
macro_rules! function {
    ($name:literal, $($file:literal)*) => {
        concat!("local function ", $name, "(redis, KEYS, ARGV)\n", $(file!($file),)* "\nend\n")
    };
}

/// Scripts for one step, which are also functions of the script for many. What stands before the semicolon does not depend on the key, and is there
/// once for all steps of a call.
macro_rules! steps {
    ($many:ident = $($shared:literal)*; $($name:ident, $step:literal = $($before:literal)*; $($own:literal)*;)*) => {
        $(lua! { $name, $step = $(file!($before),)* $(file!($own)),* })*

        lua! {
            $many =
                $(file!($shared),)*
                $(function!($step, $($own)*),)*
                "local STEPS = {", $($step, " = ", $step, ", ",)* "}\n",
                file!("many")
        }

        /// All of them.
        pub(super) static STEPS: &[&Lua] = &[$(&$name),*];
    };
}

// Every part runs on every call. What the common case needs stands first and returns before the rest is reached.
steps! {
    MANY = "lib/time" "lib/answers" "lib/token" "lib/shape" "lib/range" "lib/tell" "lib/fair_head" "lib/waiting" "lib/wake";
    MUTEX_RANGE, "mutex_range" =
        "lib/time" "lib/answers" "lib/token" "lib/range" "lib/waiting"; "mutex_range" "lib/names" "lib/shape" "lib/kind" "lib/hash" "mutex_registers";
    MUTEX_RELEASE, "mutex_release" = "lib/tell" "lib/fair_head" "lib/waiting" "lib/wake"; "lib/taken" "mutex_release";
    READ_ACQUIRE, "read_acquire" = "lib/time" "lib/answers" "lib/token" "lib/shape"; "lib/names" "lib/kind" "lib/readers" "read_acquire";
    READ_RELEASE, "read_release" = "lib/time" "lib/tell" "lib/shape"; "lib/names" "lib/readers" "lib/taken" "read_release";
    WRITE_ACQUIRE, "write_acquire" = "lib/time" "lib/answers" "lib/token" "lib/shape"; "lib/names" "lib/kind" "lib/readers" "write_acquire";
    WRITE_RELEASE, "write_release" = "lib/time" "lib/tell" "lib/shape"; "lib/names" "lib/readers" "lib/taken" "write_release";
    PERMITS_ACQUIRE, "permits_acquire" = "lib/time" "lib/answers" "lib/shape"; "lib/names" "lib/kind" "lib/permits" "permits_acquire";
    PERMITS_RELEASE, "permits_release" = "lib/time" "lib/tell"; "lib/names" "lib/permits" "permits_release";
    PERMITS_SIZE, "permits_size" = "lib/time" "lib/answers" "lib/shape"; "lib/names" "lib/kind" "lib/permits" "lib/counting" "permits_size";
    COUNTER, "counter" = "lib/time" "lib/answers" "lib/shape"; "lib/names" "lib/kind" "lib/counting" "counter";
    LATCH, "latch" = "lib/time" "lib/answers" "lib/shape"; "lib/names" "lib/kind" "lib/counting" "latch";
}

scripts! {
    MUTEX_ACQUIRE = "lib/time" "lib/answers" "lib/token" "mutex_acquire" "lib/names" "lib/shape" "lib/kind" "lib/hash" "mutex_taken";
    MUTEX_LEAVE = "lib/tell" "lib/fair_head" "lib/waiting" "lib/wake" "mutex_leave";
    MUTEX_HAND_OVER =
        "lib/time" "lib/answers" "lib/token" "lib/taken" "mutex_hand_over" "lib/names" "lib/shape" "lib/kind" "lib/hash" "lib/fair_head" "mutex_kept";
    MUTEX_KEEP = "lib/time" "lib/answers" "lib/token" "lib/range" "lib/taken" "lib/tell" "lib/fair_head" "lib/waiting" "lib/wake" "mutex_keep";
    MUTEX_MANY = "lib/time" "lib/answers" "lib/shape" "lib/tell" "lib/fair_head" "lib/waiting" "lib/wake" "mutex_many";
    FAIR_ACQUIRE = "lib/time" "lib/answers" "lib/token" "lib/names" "lib/shape" "lib/kind" "lib/hash" "lib/queue" "fair_acquire";
    FAIR_RELEASE = "lib/time" "lib/names" "lib/queue" "lib/taken" "lib/tell" "fair_release";
    TOKEN = "lib/time" "lib/token" "token";
    RENEW = "lib/time" "lib/lasting" "renew";
    INSPECT = "lib/time" "lib/answers" "lib/names" "lib/shape" "lib/kind" "lib/readers" "inspect";
    SELF_TEST = "self_test";
    FENCE_ENTER = "fence_enter";
    FENCE_ENTER_SHARED = "fence_enter_shared";
    FENCE_CHECK = "fence_check";
    FORCE_RELEASE = "lib/time" "lib/answers" "lib/names" "lib/shape" "lib/kind" "lib/queue" "lib/readers" "lib/permits" "force_release";
    VOTE = "lib/time" "lib/answers" "lib/token" "lib/names" "lib/shape" "lib/kind" "lib/hash" "lib/run" "vote";
    KEEP_VOTES = "lib/time" "lib/run" "lib/lasting" "keep_votes";
    STANDING = "lib/time" "lib/run" "standing";
}

// Several names at once, all or none: the scripts for one, as functions.
lua! {
    MULTI =
        file!("lib/time"),
        file!("lib/answers"),
        file!("lib/shape"),
        function!("mutex", "lib/token" "mutex_acquire" "lib/names" "lib/kind" "lib/hash" "mutex_taken"),
        function!("fair", "lib/token" "lib/names" "lib/kind" "lib/hash" "lib/queue" "fair_acquire"),
        function!("read", "lib/token" "lib/names" "lib/kind" "lib/readers" "read_acquire"),
        function!("write", "lib/token" "lib/names" "lib/kind" "lib/readers" "write_acquire"),
        function!("permits", "lib/names" "lib/kind" "lib/permits" "permits_acquire"),
        file!("multi")
}

impl Lua {
    fn text(&self, sharded: bool) -> &Text {
        if sharded { &self.sharded } else { &self.plain }
    }

    /// Loads the script into the server's cache.
    pub(super) fn load(&self, sharded: bool) -> Cmd {
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(&self.text(sharded).1);
        load
    }

    /// The call by hash.
    pub(super) fn by_hash(&self, sharded: bool, keys: &[&str], arguments: &[Vec<u8>]) -> Cmd {
        call("EVALSHA", &self.text(sharded).0, keys, arguments)
    }

    /// The call in full, which also loads the script. Sent after `NOSCRIPT`, which means that nothing was done.
    pub(super) fn in_full(&self, sharded: bool, keys: &[&str], arguments: &[Vec<u8>]) -> Cmd {
        call("EVAL", &self.text(sharded).1, keys, arguments)
    }
}

fn call(command: &str, script: &str, keys: &[&str], arguments: &[Vec<u8>]) -> Cmd {
    let mut call = redis::cmd(command);
    call.arg(script).arg(keys.len()).arg(keys).arg(arguments);
    call
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_sent_without_comments_but_one() {
        for script in STEPS.iter().chain(OTHERS).chain([&&MANY]) {
            for text in [&script.plain.1, &script.sharded.1] {
                let code = text.strip_prefix(DRAGONFLY).expect("it may use other keys");
                assert!(!code.contains("--") && !code.contains("\n\n"), "{code}");
            }
        }
        assert!(MUTEX_RELEASE.sharded.1.contains("'SPUBLISH'") && !MUTEX_RELEASE.sharded.1.contains("'PUBLISH'"));
    }
}
