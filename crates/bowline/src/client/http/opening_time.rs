//! [`OpeningTime`], how long opening a connection over HTTP may take in all.

use std::time::Duration;

use tokio::time::Instant;

use crate::client::ConnectTimeout;
use crate::client::config::ClientConfig;
use crate::sync::Mutex;
use crate::{Error, Result};

/// The connect timeout of one opening. The time in which a user authorizes does not count.
pub(super) struct OpeningTime {
    limit: Duration,
    began: Instant,
    paused: Mutex<Duration>,
    /// The limit of a handshake if the connect timeout is not set.
    idle_timeout: Option<Duration>,
}

impl OpeningTime {
    pub(super) fn start(config: &ClientConfig) -> Self {
        let is_set = config.connect_timeout.is_some();
        Self {
            limit: config.connect_timeout(),
            began: Instant::now(),
            paused: Mutex::default(),
            idle_timeout: (!is_set).then_some(config.idle_timeout),
        }
    }

    pub(super) fn remaining(&self) -> Duration {
        let used = self.began.elapsed().saturating_sub(*self.paused.lock());
        self.limit.saturating_sub(used)
    }

    /// Returns the limit of a handshake that begins now.
    pub(super) fn handshake(&self) -> Duration {
        let remaining = self.remaining();
        self.idle_timeout
            .map_or(remaining, |idle| idle.min(remaining))
    }

    pub(super) fn add_pause(&self, time: Duration) {
        *self.paused.lock() += time;
    }

    /// Replaces a timeout by the error of the connect timeout, if that has elapsed.
    pub(super) fn name_timeout<T>(&self, opened: Result<T>) -> Result<T> {
        match opened {
            Err(Error::Timeout { .. }) if self.remaining().is_zero() => {
                Err(ConnectTimeout { after: self.limit }.into_error())
            }
            opened => opened,
        }
    }
}
