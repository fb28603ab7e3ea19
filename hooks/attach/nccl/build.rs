//! Has the linker mark the library as one that stays.

fn main() {
    // NCCL closes a plugin with its last communicator while its threads may still be inside (NVIDIA/nccl#2000). A
    // library that stays mapped can be called then, and goes on with the same ring for the next communicator.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
