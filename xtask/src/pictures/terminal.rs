//! [`Terminal`]: a shell in tmux, which a scene types into.

use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::Size;
use super::screen::Screen;

/// A shell in a tmux server of its own, which ends when this is dropped.
pub(super) struct Terminal {
    /// The name of the server's socket.
    socket: String,
}

impl Terminal {
    /// Starts a shell in `folder`, with `programs` first in its `PATH` and a home that has no configuration.
    pub(super) fn start(size: Size, programs: &Path, folder: &Path) -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let socket = format!("bowline-pictures-{}-{number}", std::process::id());
        let terminal = Self { socket };
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("PATH={}:{path}", programs.display());
        let home = format!("HOME={}", folder.display());
        let (columns, rows) = (size.columns.to_string(), size.rows.to_string());
        let mut start = terminal.tmux();
        start
            .args(["-f", "/dev/null", "new-session", "-d"])
            .args(["-x", &columns, "-y", &rows, "-c"])
            .arg(folder)
            .args(["env", "-i", &path, &home, "TERM=screen-256color"])
            .args(["LANG=C.UTF-8", "PS1=$ ", "bash", "--norc", "--noprofile"]);
        let started = start.output().map_err(|error| {
            io::Error::other(format!(
                "failed to start tmux, which draws the pictures; install it: {error}"
            ))
        })?;
        if !started.status.success() {
            let why = String::from_utf8_lossy(&started.stderr);
            return Err(io::Error::other(format!("failed to start tmux: {why}")));
        }
        // The status line would take a row of the screen.
        terminal.command(&["set-option", "-g", "status", "off"])?;
        terminal.command(&["resize-window", "-x", &columns, "-y", &rows])?;
        terminal.wait_for_prompt()?;
        Ok(terminal)
    }

    /// Types a text, and waits until the screen shows it.
    pub(super) fn type_text(&self, text: &str) -> io::Result<()> {
        self.command(&["send-keys", "-l", text])?;
        self.wait_for(text)
    }

    /// Presses a key by its tmux name, such as `Enter` or `C-c`.
    pub(super) fn press(&self, key: &str) -> io::Result<()> {
        self.command(&["send-keys", key]).map(drop)
    }

    /// Waits until the screen contains `text`.
    pub(super) fn wait_for(&self, text: &str) -> io::Result<()> {
        self.wait_until(&format!("`{text}`"), |shown| shown.contains(text))
    }

    /// Waits until the last line is a prompt without a command.
    pub(super) fn wait_for_prompt(&self) -> io::Result<()> {
        self.wait_until("a prompt", |shown| {
            let last = shown.lines().rfind(|line| !line.trim().is_empty());
            last.is_some_and(|line| line.trim() == "$")
        })
    }

    fn wait_until(&self, what: &str, is_shown: impl Fn(&str) -> bool) -> io::Result<()> {
        let deadline = Instant::now() + DEADLINE;
        loop {
            // Lines that the terminal has wrapped are joined.
            let shown = self.command(&["capture-pane", "-p", "-J"])?;
            if is_shown(&shown) {
                return Ok(());
            }
            if Instant::now() > deadline {
                let what = format!("the screen did not show {what}, but:\n{shown}");
                return Err(io::Error::other(what));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Returns what the terminal shows, and what has scrolled out of it.
    pub(super) fn screen(&self) -> io::Result<Screen> {
        let shown = self.command(&["capture-pane", "-e", "-p", "-S", "-"])?;
        Ok(Screen::parse(&shown))
    }

    fn command(&self, args: &[&str]) -> io::Result<String> {
        let output = self.tmux().args(args).output()?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => {
                let why = String::from_utf8_lossy(&output.stderr);
                Err(io::Error::other(format!("tmux {}: {why}", args.join(" "))))
            }
        }
    }

    fn tmux(&self) -> Command {
        let mut tmux = Command::new("tmux");
        tmux.args(["-L", &self.socket]);
        tmux
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Fails if the server has ended already.
        let _ = self.command(&["kill-server"]);
    }
}

const DEADLINE: Duration = Duration::from_secs(120);
/// tmux does not notify of a change of the screen.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
