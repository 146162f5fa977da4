//! Gives the library a build id, by which a debugger finds the symbols that wheels leave out.
//! gcc does so by itself, zig does not.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,--build-id=sha1");
    }
}
