//! [`ReplicaProcess`]: one replica as a child process.

use std::error::Error;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// A replica that listens. Dropping it kills the process.
#[derive(Debug)]
pub(crate) struct ReplicaProcess {
    child: Child,
    address: SocketAddr,
}

impl ReplicaProcess {
    /// Starts the program `interop-server` on an engine, or without one.
    pub(crate) async fn start(
        program: &Path,
        engine: Option<&str>,
        state: &Path,
    ) -> Result<Self, Box<dyn Error>> {
        let mut command = Command::new(program);
        command.args(["--transport", "http"]);
        if let Some(engine) = engine {
            command.args(["--cluster", engine, "--state"]).arg(state);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn()?;
        let stdout = child.stdout.take().ok_or("no standard output")?;
        let mut lines = BufReader::new(stdout).lines();
        let line = timeout(LIMIT, lines.next_line()).await??;
        let line = line.ok_or("the replica exited before it listened")?;
        let address = line
            .strip_prefix("READY http://")
            .and_then(|rest| rest.split('/').next())
            .ok_or_else(|| format!("expected `READY <url>`, got `{line}`"))?;
        Ok(Self {
            child,
            address: address.parse()?,
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Kills it with SIGKILL, as a crash does.
    pub(crate) async fn kill(mut self) -> std::io::Result<()> {
        self.child.kill().await
    }

    /// Sends SIGTERM, on which it drains.
    pub(crate) fn terminate(&self) -> Result<(), Box<dyn Error>> {
        terminate(self.child.id().ok_or("the replica has exited")?)
    }

    /// Waits until it has exited, or kills it after a while.
    pub(crate) async fn exited(mut self) -> Result<ExitStatus, Box<dyn Error>> {
        Ok(timeout(LIMIT, self.child.wait()).await??)
    }
}

#[cfg(unix)]
fn terminate(id: u32) -> Result<(), Box<dyn Error>> {
    let id = rustix::process::Pid::from_raw(id.try_into()?).ok_or("no such process")?;
    Ok(rustix::process::kill_process(
        id,
        rustix::process::Signal::TERM,
    )?)
}

#[cfg(not(unix))]
fn terminate(_: u32) -> Result<(), Box<dyn Error>> {
    Err("only Unix has SIGTERM".into())
}

/// Longer than the drain of a replica with its grace.
const LIMIT: Duration = Duration::from_secs(60);
