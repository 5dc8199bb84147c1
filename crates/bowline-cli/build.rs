//! Tells the linker to put the functions that a running bridge uses next to each other (`symbols.txt`).
//!
//! The program has 22 MB of code, of which a bridge runs 2 MB. In the order of the crates they are spread over half of the
//! program, and the kernel maps 64 KB around each page that is used. `cargo xtask symbols` writes the file.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=symbols.txt");
    let variable = |name| env::var(name).unwrap_or_default();
    let symbols = Path::new(&variable("CARGO_MANIFEST_DIR")).join("symbols.txt");
    // Debug builds do not have these symbols.
    if variable("PROFILE") != "release" || !symbols.exists() {
        return;
    }
    let options = [
        format!("-Wl,--symbol-ordering-file={}", symbols.display()),
        // After a change of the compiler or of a dependency, the symbols have other names until the file is written again.
        "-Wl,--no-warn-symbol-ordering".to_owned(),
    ];
    if is_supported(&options) {
        for option in options {
            println!("cargo:rustc-link-arg-bin=bowline={option}");
        }
    }
}

/// Returns whether the linker accepts the options, which are those of LLD: links an empty program with them.
fn is_supported(options: &[String]) -> bool {
    let variable = |name| env::var(name).ok();
    let (Some(rustc), Some(folder), Some(target)) =
        (variable("RUSTC"), variable("OUT_DIR"), variable("TARGET"))
    else {
        return false;
    };
    let folder = PathBuf::from(folder);
    let source = folder.join("probe.rs");
    if fs::write(&source, "fn main() {}\n").is_err() {
        return false;
    }
    let mut probe = Command::new(rustc);
    probe.arg(source).arg("-o").arg(folder.join("probe"));
    probe.args(["--target", &target]);
    let flags = variable("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    probe.args(flags.split('\x1f').filter(|flag| !flag.is_empty()));
    probe.args(variable("RUSTC_LINKER").map(|linker| format!("-Clinker={linker}")));
    probe.args(options.iter().map(|option| format!("-Clink-arg={option}")));
    probe.stdout(Stdio::null()).stderr(Stdio::null());
    probe.status().is_ok_and(|status| status.success())
}
