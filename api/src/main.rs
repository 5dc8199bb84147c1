//! Compares the public API of the published crates with the text that is committed in `api/`, so that a change of it
//! shows in review.
//!
//! `cargo xtask api` compares, `cargo xtask api --bless` writes. The API is read from rustdoc's JSON, which a
//! stable compiler writes if `RUSTC_BOOTSTRAP` is set.

#![allow(clippy::print_stdout, reason = "a command-line tool reports on stdout")]

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    if std::env::var_os(AS_RUSTDOC).is_some() {
        return rustdoc();
    }
    let is_bless = std::env::args().any(|word| word == "--bless");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let written = rustdoc_json()?;
    let mut is_same = true;
    for name in PUBLISHED {
        let json = written.join(format!("{}.json", name.replace('-', "_")));
        if !is_readable(&fs::read_to_string(&json)?) {
            println!(
                "DID NOT RUN: rustdoc of this compiler writes another format than {FORMAT_VERSION}, that of Rust 1.95"
            );
            return Ok(ExitCode::SUCCESS);
        }
        let text = public_api(json)?;
        let path = folder.join(format!("{name}.txt"));
        let committed = fs::read_to_string(&path).unwrap_or_default();
        if is_bless {
            fs::write(path, text)?;
        } else if text != committed {
            is_same = false;
            println!("the public API of `{name}` differs from api/{name}.txt:");
            print_difference(&committed, &text);
        }
    }
    if is_same {
        return Ok(ExitCode::SUCCESS);
    }
    println!("if the change is intended, run `cargo xtask api --bless` and commit the result");
    Ok(ExitCode::FAILURE)
}

/// Returns whether the JSON has the format that the pinned version of `public-api` reads.
fn is_readable(json: &str) -> bool {
    json.contains(&format!("\"format_version\":{FORMAT_VERSION}"))
}

/// Returns the public items of a crate with all its features, one per line.
fn public_api(json: PathBuf) -> Result<String, Box<dyn Error>> {
    let api = public_api::Builder::from_rustdoc_json(json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build()?;
    Ok(format!("{api}"))
}

/// Writes the JSON of all crates of the workspace, and returns its folder.
fn rustdoc_json() -> Result<PathBuf, Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    // The target folder, packages and features of the step `doc`, whose dependencies are built already. With packages
    // chosen one by one, cargo would choose other features of the dependencies, and build them again.
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let flags = "-Z unstable-options --output-format json --cap-lints allow";
    let status = Command::new(cargo)
        .current_dir(&root)
        .env("RUSTDOC", std::env::current_exe()?)
        .env(AS_RUSTDOC, "1")
        .env("RUSTDOCFLAGS", flags)
        .env("CARGO_TARGET_DIR", &target)
        .args(["doc", "--quiet", "--lib", "--no-deps"])
        .args(["--workspace", "--all-features"])
        .status()?;
    match status.success() {
        true => Ok(target.join("doc")),
        false => Err("failed to document the workspace".into()),
    }
}

/// Runs rustdoc in the place of cargo's, with unstable options allowed.
///
/// If `RUSTC_BOOTSTRAP` were set for cargo, build scripts that read it would run again, and every dependency would be
/// built again, here and in the next ordinary build.
fn rustdoc() -> Result<ExitCode, Box<dyn Error>> {
    let status = Command::new("rustdoc")
        .env("RUSTC_BOOTSTRAP", "1")
        .args(std::env::args_os().skip(1))
        .status()?;
    Ok(ExitCode::from(u8::from(!status.success())))
}

fn print_difference(committed: &str, actual: &str) {
    let missing = |from: &str, line: &&str| !from.lines().any(|other| other == *line);
    for line in committed.lines().filter(|line| missing(actual, line)) {
        println!("- {line}");
    }
    for line in actual.lines().filter(|line| missing(committed, line)) {
        println!("+ {line}");
    }
}

/// Set for the process that cargo starts as rustdoc.
const AS_RUSTDOC: &str = "BOWLINE_API_AS_RUSTDOC";
const FORMAT_VERSION: u32 = 57;
const PUBLISHED: [&str; 10] = [
    "bowline",
    "bowline-auth",
    "bowline-bridge",
    "bowline-core",
    "bowline-recording",
    "bowline-tasks",
    "bowline-postgres",
    "bowline-redis",
    "bowline-nats",
    "bowline-types",
];
