//! `cargo xtask proto`: generates the messages of etcd's API, which are committed. The generator is a crate of its own, so that nobody else builds it.

use crate::steps::{Outcome, Run, step};

const PROTO: &str = "xtask/proto/etcd.proto";
const OUT: &str = "crates/lockkeeper/src/store/etcd/proto.rs";

pub(crate) fn run() -> Result<(), String> {
    step("proto", "messages of etcd's API", || {
        let words = ["run", "--manifest-path", "xtask/proto/Cargo.toml", "--", PROTO, OUT];
        Run::cargo(&words).stream().map(|()| Outcome::Done)
    })
    .map(drop)
}
