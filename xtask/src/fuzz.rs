//! `cargo xtask fuzz`: runs one fuzz target with cargo-fuzz on a nightly compiler.

use std::path::Path;
use std::process::Command;

use crate::process;

/// Fuzzes `target` for `seconds`; returns whether no failure was found.
pub(crate) fn run(root: &Path, target: &str, seconds: u64) -> bool {
    if !TARGETS.contains(&target) {
        println!(
            "unknown fuzz target `{target}`; expected one of {}",
            TARGETS.join(", ")
        );
        return false;
    }
    if let Some(missing) = missing_tool() {
        println!("{missing}");
        return false;
    }
    // cargo-fuzz writes new inputs into the first folder, so that the committed seeds stay few and named.
    let new_inputs = process::target_folder(root).join("fuzz").join(target);
    let seeds = root.join("fuzz/corpus").join(target);
    let outcome = std::fs::create_dir_all(&new_inputs).and_then(|()| {
        process::run(
            Command::new("cargo")
                .current_dir(root)
                .args(["+nightly", "fuzz", "run", target])
                .args([new_inputs, seeds])
                .arg("--")
                .arg(format!("-max_total_time={seconds}")),
        )
    });
    outcome.unwrap_or_else(|error| {
        println!("failed to start cargo-fuzz: {error}");
        false
    })
}

fn missing_tool() -> Option<&'static str> {
    let works = |words: &[&str]| {
        Command::new("cargo")
            .args(words)
            .output()
            .is_ok_and(|output| output.status.success())
    };
    if !works(&["+nightly", "--version"]) {
        Some(
            "Fuzzing did not run: install a nightly compiler (`rustup toolchain install nightly`).",
        )
    } else if !works(&["+nightly", "fuzz", "--version"]) {
        Some("Fuzzing did not run: install cargo-fuzz (`cargo install cargo-fuzz`).")
    } else {
        None
    }
}

pub(crate) const DEFAULT_SECONDS: u64 = 60;

const TARGETS: [&str; 12] = [
    "json",
    "message",
    "sse",
    "headers",
    "admission",
    "mux",
    "challenge",
    "jws",
    "jwks",
    "callback",
    "recording",
    "host_config",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;

    #[test]
    fn every_target_has_a_program_and_seeds() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let tree = Tree::read(root).unwrap();
        let manifest = tree.text("fuzz/Cargo.toml").unwrap();

        for target in TARGETS {
            let program = format!("fuzz/fuzz_targets/{target}.rs");
            let corpus = format!("fuzz/corpus/{target}/");
            let seeds = tree.files().iter();
            let seeds = seeds.filter(|file| file.path.starts_with(&corpus)).count();

            assert!(tree.text(&program).is_some(), "{program} is missing");
            assert!(
                manifest.contains(&format!("name = \"{target}\"")),
                "{target}"
            );
            assert!(seeds >= 10, "{target} has {seeds} seeds");
        }
    }
}
