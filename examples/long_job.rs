//! A job that takes long, reports progress, and cleans up after itself when its call is dropped.
//!
//! `cargo run --example long_job` waits for a client on standard input. A call of `render` writes the frames of a film
//! into a temporary folder and reports each of them. When the client drops the call, presses "stop" or disappears, the
//! server drops the handler, and with it `Workspace`, which removes the folder and says so on standard error.

use std::path::PathBuf;
use std::time::Duration;
use std::{env, fs, io, process};

use bowline::Progress;
use bowline::prelude::*;

/// Renders a film, which takes a while.
#[tool]
async fn render(
    cx: Context,
    #[schemars(range(min = 1, max = 1000))] frames: u32,
    /// for each frame
    #[tool(default = 100)]
    milliseconds: u64,
) -> Result<String, ToolError> {
    let workspace = Workspace::create()?;
    for frame in 1..=frames {
        tokio::time::sleep(Duration::from_millis(milliseconds)).await; // the work
        tokio::fs::write(workspace.folder.join(format!("{frame}.txt")), "🎞").await?;
        cx.progress(
            Progress::new(frame)
                .total(frames)
                .message(workspace.folder.display().to_string()),
        );
    }
    Ok(format!("rendered {frames} frames"))
}

/// A temporary folder that exists as long as this value.
struct Workspace {
    folder: PathBuf,
}

impl Workspace {
    fn create() -> io::Result<Self> {
        let mut number = 0;
        loop {
            let name = format!("film-{}-{number}", process::id());
            let folder = env::temp_dir().join(name);
            match fs::create_dir(&folder) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                created => return created.map(|()| Self { folder }),
            }
        }
    }
}

/// Runs at the end of the handler, and wherever it is dropped.
impl Drop for Workspace {
    fn drop(&mut self) {
        match fs::remove_dir_all(&self.folder) {
            Ok(()) => eprintln!("removed {}", self.folder.display()),
            Err(error) => eprintln!("failed to remove {}: {error}", self.folder.display()),
        }
    }
}

#[tokio::main]
async fn main() -> bowline::Result<()> {
    Server::new("film", "1.0.0")
        .tool(render)
        .serve_stdio()
        .await
}
