//! `cargo xtask symbols`: writes `crates/bowline-cli/symbols.txt`, the order in which the linker puts the functions of the
//! command `bowline`.
//!
//! ```text
//! bowline call ──▶ bowline bridge, in callgrind ──▶ bowline serve-demo
//! ```
//!
//! The functions that a bridge executes come first, those with the most instructions before the others, so that the
//! program needs few pages of memory. The names contain hashes of the compiler and of the dependencies: after a change of
//! either run it again.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::process;
use crate::server_process::ServerProcess;

/// What to do with the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SymbolsMode {
    /// Fail if the program does not have most of the symbols.
    Check,
    Write,
}

/// Writes or checks the file, for the command in `folder`, or for one that is built.
pub(crate) fn run(root: &Path, mode: SymbolsMode, folder: Option<&str>) -> io::Result<bool> {
    let folder = match folder {
        Some(folder) => fs::canonicalize(folder)?,
        None => {
            let mut build = process::cargo(root);
            build.args(["build", "--release", "--package", "bowline-cli"]);
            if !process::run(&mut build)? {
                return Ok(false);
            }
            process::target_folder(root).join("release")
        }
    };
    let bowline = folder.join("bowline");
    let file = root.join("crates/bowline-cli/symbols.txt");
    match mode {
        SymbolsMode::Write => write(&bowline, &file),
        SymbolsMode::Check => check(&bowline, &file),
    }
}

fn write(bowline: &Path, file: &Path) -> io::Result<bool> {
    let mut costs = BTreeMap::new();
    let http = ServerProcess::start(Command::new(bowline).args(SERVE_HTTP))?;
    profile(bowline, &[http.url()], &mut costs)?;
    let program = bowline.to_string_lossy();
    profile(bowline, &["--", &program, "serve-demo"], &mut costs)?;
    let mut symbols: Vec<_> = costs.into_iter().collect();
    symbols.sort_by(|(one, cost), (other, other_cost)| other_cost.cmp(cost).then(one.cmp(other)));
    let names: String = symbols
        .iter()
        .map(|(name, _)| format!("{name}\n"))
        .collect();
    fs::write(file, names)?;
    println!("{} symbols", symbols.len());
    Ok(!symbols.is_empty())
}

/// Adds the instructions of each function of a bridge to `costs`, for calls of both eras to the server `behind` it.
fn profile(bowline: &Path, behind: &[&str], costs: &mut BTreeMap<String, u64>) -> io::Result<()> {
    let out = bowline.with_extension("callgrind");
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let url = format!("http://127.0.0.1:{port}/mcp");
    let mut bridge = Command::new("valgrind");
    bridge.args(["--tool=callgrind", "--demangle=no"]);
    bridge.arg(format!("--callgrind-out-file={}", out.display()));
    bridge.arg(bowline).args(["bridge", "--drain-delay", "0"]);
    bridge
        .args(["--http", &format!("127.0.0.1:{port}")])
        .args(behind);
    let bridge = ServerProcess::start_at(&mut bridge, port)?;
    for version in ["2026-07-28", "2025-11-25"] {
        for _ in 0..CALLS {
            let mut call = Command::new(bowline);
            call.args(["call", &url, "echo", "text=hello"]);
            call.args(["--protocol-version", version]);
            if !call.stdout(Stdio::null()).status()?.success() {
                return Err(io::Error::other("a call through the bridge failed"));
            }
        }
    }
    bridge.terminate(END_LIMIT)?;
    add_costs(&fs::read_to_string(out)?, costs);
    Ok(())
}

/// Adds the instructions that each function executed itself. The functions that it called are on lines after `calls=`.
fn add_costs(profile: &str, costs: &mut BTreeMap<String, u64>) {
    let mut names: BTreeMap<&str, &str> = BTreeMap::new();
    let (mut function, mut is_call) = (None, false);
    for line in profile.lines() {
        if let Some(id) = line
            .strip_prefix("fn=")
            .and_then(|it| name_id(it, &mut names))
        {
            function = Some(id);
        } else if let Some(called) = line.strip_prefix("cfn=") {
            name_id(called, &mut names);
        } else if line.starts_with("calls=") {
            is_call = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
            let cost = line
                .rsplit(' ')
                .next()
                .and_then(|cost| cost.parse::<u64>().ok());
            // Code without a symbol has an address and a space.
            let name = function.and_then(|id| names.get(id));
            let name = name.filter(|name| !name.contains(' '));
            if let (false, Some(cost), Some(name)) = (is_call, cost, name) {
                // Cycles have a number at the end.
                let name = name.split('\'').next().unwrap_or(name);
                *costs.entry(name.to_owned()).or_default() += cost;
            }
            is_call = false;
        }
    }
}

/// Reads `(id) name`, or `(id)` for a name that was there before.
fn name_id<'a>(text: &'a str, names: &mut BTreeMap<&'a str, &'a str>) -> Option<&'a str> {
    let (id, name) = text.strip_prefix('(')?.split_once(')')?;
    if !name.trim().is_empty() {
        names.insert(id, name.trim());
    }
    Some(id)
}

fn check(bowline: &Path, file: &Path) -> io::Result<bool> {
    let listed = fs::read_to_string(file)?;
    let output = Command::new("nm")
        .arg("--defined-only")
        .arg(bowline)
        .output()?;
    let defined = String::from_utf8_lossy(&output.stdout).into_owned();
    let defined: std::collections::BTreeSet<_> = defined
        .lines()
        .filter_map(|line| line.rsplit(' ').next())
        .collect();
    // Those of libraries are not in the program.
    let ours: Vec<_> = listed
        .lines()
        .filter(|name| name.starts_with("_ZN"))
        .collect();
    let found = ours.iter().filter(|name| defined.contains(**name)).count();
    println!("{found} of {} symbols are in the program", ours.len());
    let is_current = found * 10 >= ours.len() * 9;
    if !is_current {
        println!("run `cargo xtask symbols`: the compiler or a dependency has changed");
    }
    Ok(is_current)
}

const SERVE_HTTP: [&str; 3] = ["serve-demo", "--transport", "http"];
/// Enough that what each call executes counts more than what the start does.
const CALLS: usize = 100;
const END_LIMIT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_instructions_of_a_function_are_its_own_and_not_those_of_its_callees() {
        let profile = "events: Ir\n\nfl=(1) a.rs\nfn=(1) _ZN1aE\n16 4\ncfn=(2) _ZN1bE\ncalls=2 20\n16 100\n+1 3\n\n\
                       fn=(2)\n20 50\n* 50\nfn=(3) _ZN1aE'2\n16 1\n";
        let mut costs = BTreeMap::new();

        add_costs(profile, &mut costs);

        let expected = [("_ZN1aE", 8), ("_ZN1bE", 100)];
        assert_eq!(
            costs,
            expected.map(|(name, cost)| (name.to_owned(), cost)).into()
        );
    }
}
