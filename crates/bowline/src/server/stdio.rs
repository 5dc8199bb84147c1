//! Serving a [`Server`] over standard input and output, with shutdown on signals.

use super::Server;
use crate::exit_signals::{SignalHandling, serve_until_signal};
use crate::{Result, wire};

impl Server {
    /// Serves the client that started this process, over standard input and output.
    ///
    /// The wire is first moved away from descriptors 0 and 1, so that neither `println!` nor a child process
    /// can corrupt it; see [`wire::stdio`].
    ///
    /// Returns when the client closes standard input, after running handlers had two seconds to finish. On SIGTERM
    /// or SIGINT (Ctrl-C outside Unix) the server [drains](Self::drain), without the delay: its only client has sent
    /// the signal. On a second signal it returns immediately. The default handling of both signals is replaced for the
    /// whole process.
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`](crate::Error::Misuse) if standard input and output are already in use,
    /// [`Error::Transport`](crate::Error::Transport) if they or the signals are not available, and as
    /// [`check`](Self::check).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the wire and drops every handler. Standard input and output are not restored.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// #[tokio::main]
    /// async fn main() -> bowline::Result<()> {
    ///     bowline::Server::new("calculator", "1.0.0").serve_stdio().await
    /// }
    /// ```
    pub async fn serve_stdio(self) -> Result<()> {
        let wire = wire::stdio()?;
        let serving = self.clone().serve(wire);
        let handling = SignalHandling::without_delay(&self.shared.shutdown);
        let account = self.definition().account.clone();
        serve_until_signal(serving, handling, move || account.requests()).await
    }
}
