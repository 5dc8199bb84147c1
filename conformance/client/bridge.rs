//! `bowline bridge` between the client and the server of the suite. The bridge signs in, with the credentials of the scenario
//! in its configuration file.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// Set for the browser that the bridge opens, which is this program.
pub(crate) const AS_BROWSER: &str = "EVERYTHING_CLIENT_AS_BROWSER";

/// A bridge, killed when this is dropped, and the folder for its configuration and its tokens.
pub(crate) struct BridgeProcess {
    pub(crate) url: String,
    child: Child,
    folder: PathBuf,
}

impl BridgeProcess {
    /// Starts a bridge to a server, which it reaches with these settings of OAuth.
    pub(crate) async fn start(
        program: &Path,
        server: &str,
        oauth: &Value,
    ) -> Result<Self, Box<dyn Error>> {
        let folder = format!("everything-client-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(&folder)?;
        // Signing in takes longer than a list waits by default, because the suite runs all scenarios at once.
        let settings = json!({"oauth": oauth, "listTimeout": "30s"});
        let config = json!({"mcpServers": {"suite": {"url": server, "bridge": settings}}});
        let file = folder.join("bridge.json");
        std::fs::write(&file, config.to_string())?;
        let mut child = Command::new(program)
            .args(["bridge", "--http", "127.0.0.1:0", "--drain-delay", "0"])
            .arg("--config")
            .arg(file)
            .arg("--token-dir")
            .arg(folder.join("tokens"))
            .env("BROWSER", std::env::current_exe()?)
            .env(AS_BROWSER, "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let stderr = child.stderr.take().ok_or("the bridge has no stderr")?;
        let mut lines = BufReader::new(stderr).lines();
        let mut bridge = Self {
            url: String::new(),
            child,
            folder,
        };
        while let Some(line) = lines.next_line().await? {
            if let Some(url) = line.strip_prefix("bowline: listening on ") {
                bridge.url = url.to_owned();
                tokio::spawn(async move {
                    // What it prints belongs to the output of a scenario that fails.
                    while let Ok(Some(line)) = lines.next_line().await {
                        eprintln!("{line}");
                    }
                });
                return Ok(bridge);
            }
            eprintln!("{line}");
        }
        Err("the bridge ended before it listened".into())
    }

    /// Ends the bridge as an operator does, so that it closes its connection to the server.
    pub(crate) async fn terminate(&mut self) -> Result<(), Box<dyn Error>> {
        let id = self.child.id().ok_or("the bridge has ended")?.to_string();
        let mut kill = Command::new("kill");
        kill.args(["-TERM", &id]).status().await?;
        let status = self.child.wait().await?;
        match status.success() {
            true => Ok(()),
            false => Err(format!("the bridge ended with {status}").into()),
        }
    }
}

impl Drop for BridgeProcess {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
