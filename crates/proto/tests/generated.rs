//! The committed Rust code is what `ingest.proto` yields. After a change of that file:
//! `LITD_REGENERATE=1 cargo test -p litd-proto --test generated`.

use std::fs;
use std::path::Path;

const FILE: &str = "litd.ingest.v1.rs";

#[test]
fn committed_code_is_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let committed = root.join("src/wire").join(FILE);
    let out = tempfile::tempdir().unwrap();
    let descriptors = protox::compile([root.join("ingest.proto")], [root]).unwrap();
    prost_build::Config::new()
        .btree_map(["."])
        .out_dir(out.path())
        .compile_fds(descriptors)
        .unwrap();
    let generated = fs::read_to_string(out.path().join(FILE)).unwrap();
    if std::env::var_os("LITD_REGENERATE").is_some() {
        fs::write(&committed, &generated).unwrap();
    }
    assert!(
        fs::read_to_string(&committed).unwrap() == generated,
        "{} is not what ingest.proto yields: run this test with LITD_REGENERATE=1",
        committed.display()
    );
}
