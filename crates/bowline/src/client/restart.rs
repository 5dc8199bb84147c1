//! [`Client::restart`] and [`Connection::restart`], which start a child process again with the same command and
//! configuration, and [`Client::process_id`].

use std::sync::Arc;

use super::builder::ConnectTarget;
use super::config::ClientConfig;
use super::notification_dispatch::NotificationDispatch;
use super::transport::ChildCommand;
use super::{Change, Client, ClientBuilder, Connection, KnownServer};
use crate::{Error, Result};

impl Client {
    /// Starts the server of [`Client::spawn`] again, and returns a client that is connected to the new process.
    ///
    /// The protocol version is reused without a probe, and cached results are evicted. This client and its clones stay
    /// connected to the old process, which is [closed](Self::close) first: their calls fail, and subscriptions must be
    /// made again.
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`] if the server was not started by [`Client::spawn`]; otherwise the error of connecting, after
    /// which `restart` can be called again.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future terminates the new process. The old one may have been terminated already.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(mut client: bowline::Client) -> bowline::Result<()> {
    /// use bowline::Error;
    ///
    /// let mut forecast = client.call_tool("forecast", ()).await;
    /// if let Err(Error::Transport { what, .. }) = &forecast {
    ///     eprintln!("{what}"); // its exit status and the last lines of its stderr
    ///     client = client.restart().await?;
    ///     forecast = client.call_tool("forecast", ()).await;
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn restart(&self) -> Result<Self> {
        let Some(child) = &self.inner.child else {
            return Err(Error::misuse(NOT_A_CHILD));
        };
        self.inner.current_connection().close().await;
        let notifications = self.inner.notifications.clone();
        // The new process may offer other tools, resources and prompts.
        notifications.apply_change(&Change::Missed);
        let mut config = self.inner.config.clone();
        config.known_server = Some(self.known_server());
        config.caller.log_level = self.caller().log_level;
        let connect = ClientBuilder::with_config(ConnectTarget::Child(child.clone()), config);
        connect.connect_with(notifications).await
    }

    /// Returns the process id of the server of [`Client::spawn`], or `None` if it has ended or was not started by the
    /// client. After a [reconnect](ClientBuilder::reconnect) it is that of the process which runs now.
    #[must_use]
    pub fn process_id(&self) -> Option<u32> {
        self.inner.current_connection().process_id()
    }
}

impl Connection {
    /// Starts the server of [`Client::spawn`] again, and returns a connection to the new process.
    ///
    /// The protocol version is reused without a probe. This connection and its clones stay connected to the old
    /// process, which is [closed](Self::close) first: their exchanges fail.
    ///
    /// # Errors
    ///
    /// [`Error::Misuse`] if the server was not started by [`Client::spawn`]; otherwise the error of connecting, after
    /// which `restart` can be called again.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future terminates the new process. The old one may have been terminated already.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example() -> bowline::Result<()> {
    /// let mut connection = bowline::Client::spawn("weather-server").connection().await?;
    /// if connection.has_ended() {
    ///     connection = connection.restart().await?;
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn restart(&self) -> Result<Self> {
        let Some(settings) = self.restart_settings() else {
            return Err(Error::misuse(NOT_A_CHILD));
        };
        self.close().await;
        let mut config = settings.config.clone();
        config.known_server = Some(KnownServer::of(self));
        config.caller.log_level = self.caller().log_level;
        let target = ConnectTarget::Child(settings.command.clone());
        let builder = ClientBuilder::with_config(target, config);
        builder
            .bare_connection(settings.notifications.clone())
            .await
    }
}

/// What it takes to start the child process of a [`Connection`] again.
pub(super) struct RestartSettings {
    pub(super) command: ChildCommand,
    pub(super) config: ClientConfig,
    pub(super) notifications: Arc<NotificationDispatch>,
}

const NOT_A_CHILD: &str = "only a server started by `Client::spawn` can be restarted";
