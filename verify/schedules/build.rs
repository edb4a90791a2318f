//! Compiles the library with the locks of `shuttle` instead of those of `std`.

fn main() {
    println!("cargo:rustc-cfg=lockkeeper_shuttle");
    println!("cargo:rerun-if-changed=build.rs");
}
