//! The packages that `bowline-core` links, including transitive dependencies.

use std::process::Command;

#[test]
fn the_core_links_no_runtime_no_sockets_and_no_randomness() {
    let linked = linked_by("bowline-core");

    assert!(
        linked.iter().any(|name| name == "bowline-types"),
        "{linked:?}"
    );
    for name in FORBIDDEN {
        assert!(
            !linked.iter().any(|linked| linked == name),
            "bowline-core links {name}"
        );
    }
}

/// Returns the names of all packages in the normal dependency tree of `package`.
fn linked_by(package: &str) -> Vec<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--package", package, "--edges", "normal"])
        .args(["--all-features", "--prefix", "none", "--format", "{p}"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo is installed");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo tree failed: {stderr}");
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| line.split(' ').next())
        .map(str::to_owned)
        .collect()
}

const FORBIDDEN: [&str; 14] = [
    "async-io",
    "async-std",
    "chrono",
    "futures-timer",
    "getrandom",
    "hyper",
    "jiff",
    "mio",
    "rand",
    "rand_core",
    "smol",
    "socket2",
    "time",
    "tokio",
];
