//! The packages that `bowline-types` and `bowline-core` depend on, and link, including transitive dependencies.

use std::collections::BTreeSet;
use std::process::Command;

#[test]
fn the_core_depends_on_listed_crates_only() {
    for (package, listed) in DIRECT {
        let direct = packages(package, &["--depth", "1", "--target", "all"]);

        let listed = listed.iter().chain([&package]);
        assert_eq!(
            direct,
            listed.map(|name| (*name).to_owned()).collect(),
            "{package}"
        );
    }
}

#[test]
fn the_core_links_no_runtime_no_sockets_and_no_randomness() {
    let linked = packages("bowline-core", &[]);

    assert!(linked.contains("bowline-types"), "{linked:?}");
    for name in FORBIDDEN {
        assert!(!linked.contains(name), "bowline-core links {name}");
    }
}

/// Returns the names of all packages in the normal dependency tree of `package`, sorted.
fn packages(package: &str, options: &[&str]) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--package", package, "--edges", "normal"])
        .args(["--all-features", "--prefix", "none", "--format", "{p}"])
        .args(options)
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

/// A new one must be better than the fifty lines that it replaces.
const DIRECT: [(&str, &[&str]); 2] = [
    (
        "bowline-types",
        &["base64", "bytes", "serde", "serde_json", "thiserror"],
    ),
    (
        "bowline-core",
        &[
            "base64",
            "bowline-types",
            "bytes",
            "http",
            "memchr",
            "serde",
            "serde_json",
            "sha2",
            "thiserror",
        ],
    ),
];

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
