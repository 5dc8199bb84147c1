//! [`EngineServer`]: an engine in the target folder, on a free port.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use super::Engine;
use super::programs;
use crate::process;
use crate::server_process::ServerProcess;

/// A running engine. Dropping it kills the process.
#[derive(Debug)]
pub(super) struct EngineServer {
    engine: Engine,
    tls: Option<TlsFiles>,
    port: u16,
    program: PathBuf,
    data: PathBuf,
    user: Option<UnprivilegedUser>,
    process: Option<ServerProcess>,
}

impl EngineServer {
    pub(super) fn start(root: &Path, engine: Engine) -> io::Result<Self> {
        let target = process::target_folder(root).join("cluster");
        Self::start_in(&target, engine, None)
    }

    /// Starts another server of this engine, which requires TLS. There is at most one at a time.
    pub(super) fn start_with_tls(&self, tls: &TlsFiles) -> io::Result<Self> {
        let target = self.data.parent().unwrap_or(&self.data);
        Self::start_in(target, self.engine, Some(tls))
    }

    fn start_in(target: &Path, engine: Engine, tls: Option<&TlsFiles>) -> io::Result<Self> {
        fs::create_dir_all(target)?;
        let suffix = if tls.is_some() { "-tls" } else { "" };
        let data = empty(target, &format!("{}{suffix}-data", engine.name()))?;
        let (program, user) = match engine {
            Engine::Postgres => prepare_postgres(target, &data)?,
            Engine::Redis => (programs::redis(target)?, None),
            Engine::Nats => (programs::nats(target)?, None),
        };
        let tls = tls
            .map(|files| files.copy_to(&data, engine, user))
            .transpose()?;
        // Another program may take the port before the engine does; then the start fails and says so.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut server = Self {
            engine,
            tls,
            port,
            program,
            data,
            user,
            process: None,
        };
        server.start_again()?;
        Ok(server)
    }

    pub(super) fn engine(&self) -> Engine {
        self.engine
    }

    pub(super) fn requires_tls(&self) -> bool {
        self.tls.is_some()
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn url(&self) -> String {
        let port = self.port;
        match self.engine {
            Engine::Postgres => format!("postgres://bowline@127.0.0.1:{port}/postgres"),
            Engine::Redis => format!("redis://127.0.0.1:{port}"),
            Engine::Nats => format!("nats://127.0.0.1:{port}"),
        }
    }

    /// Kills the engine, as a crash of its machine would.
    pub(super) fn stop(&mut self) -> io::Result<()> {
        self.process = None;
        // Postgres refuses to start while this file names a process, and a killed one leaves it.
        match fs::remove_file(self.data.join("postmaster.pid")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Starts the engine on the same port, with the same data.
    pub(super) fn start_again(&mut self) -> io::Result<()> {
        // The children of a killed Postgres need a moment to end, and it does not start before.
        for _ in 0..START_ATTEMPTS {
            match self.try_start() {
                Err(error) if error.kind() != io::ErrorKind::TimedOut => {}
                ended => return ended,
            }
            thread::sleep(ATTEMPT_INTERVAL);
        }
        self.try_start()
    }

    fn try_start(&mut self) -> io::Result<()> {
        let mut command = Command::new(&self.program);
        let port = self.port.to_string();
        match self.engine {
            Engine::Postgres => {
                command.arg("-D").arg(&self.data).args(["-p", &port]);
                let settings = [
                    "listen_addresses=127.0.0.1",
                    "unix_socket_directories=",
                    "fsync=off",
                    // Scenarios run in parallel, with three replicas each.
                    "max_connections=400",
                ];
                command.args(settings.iter().flat_map(|setting| ["-c", setting]));
                if let Some(tls) = &self.tls {
                    let (certificate, key) = (tls.certificate.display(), tls.key.display());
                    command.args(["-c", "ssl=on"]);
                    command.args(["-c", &format!("ssl_cert_file={certificate}")]);
                    command.args(["-c", &format!("ssl_key_file={key}")]);
                }
            }
            Engine::Redis => {
                command.args(["--bind", "127.0.0.1", "--save", ""]);
                command
                    .args(["--appendonly", "no", "--dir"])
                    .arg(&self.data);
                match &self.tls {
                    None => command.args(["--port", &port]),
                    Some(tls) => {
                        command.args(["--port", "0", "--tls-port", &port]);
                        command.args(["--tls-auth-clients", "no"]);
                        command.arg("--tls-ca-cert-file").arg(&tls.certificate);
                        command.arg("--tls-cert-file").arg(&tls.certificate);
                        command.arg("--tls-key-file").arg(&tls.key)
                    }
                };
            }
            Engine::Nats => {
                // A limit, so that tests can fill the storage; only a file can set it.
                let config = self.data.join("nats.conf");
                let folder = self.data.display().to_string();
                let mut text = format!(
                    "jetstream {{ store_dir: {folder:?}, max_file_store: {NATS_STORAGE} }}\n"
                );
                if let Some(TlsFiles { certificate, key }) = &self.tls {
                    let tls = format!("tls {{ cert_file: {certificate:?}, key_file: {key:?} }}\n");
                    text.push_str(&tls);
                }
                fs::write(&config, text)?;
                command.args(["-a", "127.0.0.1", "-p", &port, "-c"]);
                command.arg(config);
            }
        }
        if let Some(user) = self.user {
            user.apply(&mut command);
        }
        let lock_file = self.data.join("postmaster.pid");
        let is_ready = |process| match self.engine {
            Engine::Postgres => {
                fs::read_to_string(&lock_file).is_ok_and(|text| accepts_clients(&text, process))
            }
            Engine::Redis | Engine::Nats => true,
        };
        let started = ServerProcess::start_at_when(&mut command, self.port, is_ready)?;
        self.process = Some(started);
        Ok(())
    }
}

/// Returns whether the lock file of Postgres is of this process and says that clients are accepted. Its port is open
/// before, and then they are told that the database is starting up.
fn accepts_clients(lock_file: &str, process: u32) -> bool {
    let line = |number: usize| lock_file.lines().nth(number - 1).map(str::trim);
    line(1).and_then(|it| it.parse().ok()) == Some(process) && line(8) == Some("ready")
}

/// A certificate and its private key, in PEM.
#[derive(Debug)]
pub(super) struct TlsFiles {
    certificate: PathBuf,
    key: PathBuf,
}

impl TlsFiles {
    /// The files that a test has written.
    pub(super) fn in_folder(folder: &Path) -> Self {
        Self {
            certificate: folder.join("certificate.pem"),
            key: folder.join("key.pem"),
        }
    }

    /// Copies the files beside the data of an engine, and makes Postgres refuse connections without TLS, as the others
    /// do.
    fn copy_to(
        &self,
        data: &Path,
        engine: Engine,
        user: Option<UnprivilegedUser>,
    ) -> io::Result<Self> {
        let copied = Self::in_folder(data);
        fs::copy(&self.certificate, &copied.certificate)?;
        fs::copy(&self.key, &copied.key)?;
        only_for_owner(&copied.key)?;
        if let Some(user) = user {
            user.own(&copied.certificate)?;
            user.own(&copied.key)?;
        }
        if engine == Engine::Postgres {
            fs::write(
                data.join("pg_hba.conf"),
                "hostssl all all 127.0.0.1/32 trust\n",
            )?;
        }
        Ok(copied)
    }
}

/// Postgres does not use a private key that others can read.
#[cfg(unix)]
fn only_for_owner(file: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(file, fs::Permissions::from_mode(0o600))
}

#[cfg(not(unix))]
fn only_for_owner(_: &Path) -> io::Result<()> {
    Ok(())
}

/// Creates a database cluster, owned by an unprivileged user if this runs as root.
fn prepare_postgres(target: &Path, data: &Path) -> io::Result<(PathBuf, Option<UnprivilegedUser>)> {
    let programs = programs::postgres(target)?;
    let user = programs::is_root()
        .then(UnprivilegedUser::find)
        .transpose()?;
    let mut initdb = Command::new(programs.initdb);
    initdb
        .arg("-D")
        .arg(data)
        .args(["-U", "bowline", "-A", "trust", "--no-sync"]);
    initdb
        .args(["-E", "UTF8", "--locale=C"])
        .stdout(Stdio::null());
    if let Some(user) = user {
        user.own(data)?;
        user.apply(&mut initdb);
    }
    if !process::run(&mut initdb)? {
        return Err(io::Error::other("initdb failed"));
    }
    Ok((programs.postgres, user))
}

/// Returns an empty folder.
fn empty(target: &Path, name: &str) -> io::Result<PathBuf> {
    let folder = target.join(name);
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// A user other than root: Postgres does not run as root.
#[derive(Clone, Copy, Debug)]
struct UnprivilegedUser {
    user: u32,
    group: u32,
}

impl UnprivilegedUser {
    /// Returns the user `postgres`, or `daemon`.
    fn find() -> io::Result<Self> {
        let users = fs::read_to_string("/etc/passwd")?;
        let find = |name: &str| {
            let line = users
                .lines()
                .find(|line| line.split(':').next() == Some(name))?;
            let mut fields = line.split(':').skip(2);
            let user = fields.next()?.parse().ok()?;
            let group = fields.next()?.parse().ok()?;
            Some(Self { user, group })
        };
        let found = find("postgres").or_else(|| find("daemon"));
        found.ok_or_else(|| io::Error::other("found no unprivileged user for Postgres"))
    }

    #[cfg(unix)]
    fn own(self, folder: &Path) -> io::Result<()> {
        std::os::unix::fs::chown(folder, Some(self.user), Some(self.group))
    }

    #[cfg(unix)]
    fn apply(self, command: &mut Command) {
        use std::os::unix::process::CommandExt as _;
        command.uid(self.user).gid(self.group);
    }

    #[cfg(not(unix))]
    fn own(self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    #[cfg(not(unix))]
    fn apply(self, _: &mut Command) {}
}

const START_ATTEMPTS: usize = 20;
const ATTEMPT_INTERVAL: Duration = Duration::from_millis(250);
const NATS_STORAGE: usize = 64 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn postgres_accepts_clients_when_its_lock_file_says_so() {
        let file =
            |status| format!("4321\n/data\n1795017600\n5432\n\n127.0.0.1\n  1 2\n{status}\n");

        assert!(accepts_clients(&file("ready   "), 4321));
        assert!(!accepts_clients(&file("starting"), 4321));
        // Of a process before.
        assert!(!accepts_clients(&file("ready   "), 4322));
        assert!(!accepts_clients("4321\n/data\n", 4321));
    }
}
