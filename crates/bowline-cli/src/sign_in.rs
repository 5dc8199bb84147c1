//! Signs in with OAuth when a server refuses a request: opens a browser, and keeps the tokens in files.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use bowline_auth::client::{FileStore, Loopback, OAuth};

/// Whether to sign in with OAuth when the server refuses a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SignIn {
    Never,
    /// With tokens in this folder, or in the default one.
    WhenRefused(Option<PathBuf>),
}

impl SignIn {
    /// Returns a client that registers as `name`; `None` if the command must not sign in.
    ///
    /// Calls that are refused meanwhile wait for the same sign-in. It goes on when they are dropped: hosts give a call up
    /// after a minute, which is less than a person may need.
    pub(crate) fn oauth(&self, url: &str, name: &str) -> Option<OAuth> {
        let Self::WhenRefused(folder) = self else {
            return None;
        };
        let oauth = with_browser(OAuth::new(url).name(name), "the server");
        Some(with_files(oauth, folder.clone()).outlive_calls())
    }
}

/// Makes the user sign in with a browser. `server` names the server in the message for the user.
pub(crate) fn with_browser(oauth: OAuth, server: &str) -> OAuth {
    let server = server.to_owned();
    oauth.user_agent(Loopback::new(move |url| {
        eprintln!("bowline: {server} requires a sign-in; open this address in a browser:\n{url}");
        open_browser(url);
        Ok(())
    }))
}

/// Keeps the tokens in files of this folder, or of the default one.
pub(crate) fn with_files(oauth: OAuth, folder: Option<PathBuf>) -> OAuth {
    match folder.or_else(default_folder) {
        Some(folder) => oauth.store(FileStore::new(folder)),
        None => {
            tracing::warn!("no home directory: tokens are kept in memory only; see --token-dir");
            oauth
        }
    }
}

/// Tries to open an address in a browser. Without one, the user opens the address that was printed.
pub(crate) fn open_browser(url: &str) {
    let started = browser(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    match started {
        // Reaped on a thread of its own: the browser may run for days.
        Ok(mut child) => drop(std::thread::spawn(move || child.wait())),
        Err(error) => tracing::debug!(%error, "failed to open a browser"),
    }
}

/// Returns the command that opens an address. It is passed as one argument, never through a shell.
fn browser(url: &str) -> Command {
    let configured = env::var_os("BROWSER").filter(|program| !program.is_empty());
    let (program, args): (_, &[&str]) = match configured {
        Some(program) => (program, &[]),
        None if cfg!(target_os = "macos") => ("open".into(), &[]),
        None if cfg!(windows) => ("rundll32".into(), &["url.dll,FileProtocolHandler"]),
        None => ("xdg-open".into(), &[]),
    };
    let mut command = Command::new(program);
    command.args(args).arg(url);
    command
}

/// Returns the folder for tokens in the place for the state of programs; `None` without a home directory.
fn default_folder() -> Option<PathBuf> {
    let path = |name| {
        env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let state = if cfg!(windows) {
        path("LOCALAPPDATA")
    } else if cfg!(target_os = "macos") {
        path("HOME").map(|home| home.join("Library/Application Support"))
    } else {
        path("XDG_STATE_HOME").or_else(|| path("HOME").map(|home| home.join(".local/state")))
    };
    state.map(|state| state.join("bowline").join("tokens"))
}
