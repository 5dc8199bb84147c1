//! The cost of a cold build of a minimal server, and its number of crates.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::resource::{UsageWho, getrusage};

use crate::measure::Row;
use crate::options::Options;
use crate::program::Subject;

pub(crate) fn cold(options: &Options) -> Vec<Row> {
    let figures = |of: &dyn Fn(&Path) -> f64| {
        let minimal = Path::new(env!("CARGO_MANIFEST_DIR")).join("../minimal");
        [
            (Subject::Bowline, of(&minimal.join("bowline"))),
            (Subject::RmcpDefault, of(&minimal.join("rmcp"))),
        ]
    };
    let server = figures(&|folder| crates(folder, &[]));
    let both = figures(&|folder| crates(folder, &["--features", "client"]));
    let mut rows = vec![
        Row::plain("a minimal HTTP server is made of", "crates", None, &server),
        Row::plain(
            "a minimal HTTP server and client with TLS is made of",
            "crates",
            None,
            &both,
        ),
    ];
    if !options.quick {
        let seconds = figures(&build);
        rows.push(Row::plain(
            "a minimal HTTP server, cold release build",
            "s CPU",
            None,
            &seconds,
        ));
    }
    rows
}

/// Returns the number of crates, including itself.
fn crates(folder: &Path, features: &[&str]) -> f64 {
    let mut cargo = Command::new("cargo");
    cargo
        .current_dir(folder)
        .args(["tree", "--edges", "normal", "--prefix", "none"]);
    let output = cargo
        .args(["--format", "{p}"])
        .args(features)
        .output()
        .expect("failed to run cargo");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let names = text.lines().filter_map(|line| line.split(" (").next());
    names
        .filter(|name| !name.is_empty())
        .collect::<BTreeSet<_>>()
        .len() as f64
}

/// Returns the CPU time of a cold build, in seconds. Unlike the elapsed time, it excludes other processes.
fn build(folder: &Path) -> f64 {
    let target = std::env::temp_dir().join(format!("bench-build-{}", std::process::id()));
    let mut cargo = Command::new("cargo");
    cargo.current_dir(folder).args(["build", "--release"]);
    cargo.env("CARGO_TARGET_DIR", &target).stderr(Stdio::null());
    let before = children_seconds();
    let status = cargo.status().expect("failed to run cargo");
    let took = children_seconds() - before;
    let _ = std::fs::remove_dir_all(&target);
    assert!(status.success(), "{} does not build", folder.display());
    took
}

fn children_seconds() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).expect("resource usage");
    let (user, system) = (usage.user_time(), usage.system_time());
    let seconds = |whole: i64, micros: i64| whole as f64 + micros as f64 / 1e6;
    seconds(user.tv_sec(), user.tv_usec()) + seconds(system.tv_sec(), system.tv_usec())
}
