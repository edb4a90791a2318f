//! One target of `lockkeeper_verify::fuzz`, chosen by `LOCKKEEPER_FUZZ_TARGET`, with libFuzzer. `cargo xtask evidence fuzz` builds and runs it.
#![no_main]

use std::sync::LazyLock;

use lockkeeper_verify::fuzz::{TARGETS, Target};

static CHOSEN: LazyLock<&'static Target> = LazyLock::new(|| {
    let name = std::env::var("LOCKKEEPER_FUZZ_TARGET").unwrap_or_default();
    let known = TARGETS.iter().map(|target| target.name).collect::<Vec<_>>().join(", ");
    TARGETS.iter().find(|target| target.name == name).unwrap_or_else(|| panic!("set LOCKKEEPER_FUZZ_TARGET to one of {known}"))
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| (CHOSEN.run)(data));
