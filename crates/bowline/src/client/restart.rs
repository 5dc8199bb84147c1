//! Starting a server again: by the same command, on the same terms, with what is known of it.

use std::sync::PoisonError;

use super::{Change, Client, Connect};
use crate::{Error, Result};

impl Client {
    /// Starts the server of [`Client::spawn`] again, and connects to it as before.
    ///
    /// What it speaks is remembered, so that it is not asked again. What was cached is forgotten. This
    /// client and its clones stay with the old process: if that is still there it is
    /// [ended](Self::close) first, and their calls fail. Subscriptions are to be made anew.
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`] if the server was not started by this client; otherwise as connecting fails, and
    /// then it can be tried again.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends whatever it has started. The old process may have been ended already.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(mut client: bowline::Client) -> bowline::Result<()> {
    /// use bowline::Error;
    ///
    /// let mut forecast = client.call_tool("forecast", ()).await;
    /// if let Err(Error::Transport { what, .. }) = &forecast {
    ///     eprintln!("{what}"); // how it ended, and its last lines on stderr
    ///     client = client.restart().await?;
    ///     forecast = client.call_tool("forecast", ()).await;
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn restart(&self) -> Result<Self> {
        let mut again = self.connect_again()?;
        if let Some(wire) = self.inner.wire() {
            wire.close().await;
        }
        let hearing = self.inner.hearing.clone();
        // Another process may offer something else.
        hearing.hear_change(&Change::Missed);
        again = again.remembered(self.verdict());
        if let Some(level) = self.caller().log_level {
            again = again.log_level(level);
        }
        again.connect_hearing(hearing).await
    }

    fn connect_again(&self) -> Result<Connect> {
        let again = self.inner.again.as_ref().and_then(|again| {
            let again = again.lock().unwrap_or_else(PoisonError::into_inner);
            again.again()
        });
        again.ok_or_else(|| {
            Error::misuse("only a server that `Client::spawn` started can be started again")
        })
    }
}
