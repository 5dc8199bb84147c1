//! Ending a [`Server`] without losing calls: its drain, and the settings of it.

use std::time::Duration;

use super::Server;
use crate::shutdown::DrainReport;

impl Server {
    /// Sets for how long a [drain](Self::drain) still takes new requests. Defaults to 5 s.
    ///
    /// Load balancers see that the server is not ready at their next probe, and send it requests until then. Set it to
    /// more than the interval of the probes times the failures that they need.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use bowline::Server;
    ///
    /// // Probed every 10 s; one failure is enough.
    /// let server = Server::new("calculator", "1.0.0").drain_delay(Duration::from_secs(12));
    /// ```
    pub fn drain_delay(self, delay: Duration) -> Self {
        let shutdown = &self.shared.shutdown;
        shutdown.change_settings(|settings| settings.delay = delay);
        self
    }

    /// Sets for how long running requests may go on after new ones are refused. Defaults to 20 s; [`Duration::MAX`]
    /// means without a limit.
    ///
    /// The process must not be killed before: Kubernetes does so after `terminationGracePeriodSeconds`, 30 by default,
    /// which should be more than [`drain_delay`](Self::drain_delay) and this together.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use bowline::Server;
    ///
    /// let server = Server::new("reports", "1.0.0").grace(Duration::from_secs(120));
    /// ```
    pub fn grace(self, grace: Duration) -> Self {
        let shutdown = &self.shared.shutdown;
        shutdown.change_settings(|settings| settings.grace = grace);
        self
    }

    /// Drains the server, as SIGTERM does in [`serve_http`](Self::serve_http). Returns at once.
    ///
    /// 1. Readiness ends ([`HttpService::readiness`](crate::http::HttpService::readiness)). New requests are still taken,
    ///    for [`drain_delay`](Self::drain_delay).
    /// 2. Then they are refused with an error that can be retried: over HTTP with status 503 and `Retry-After`. Cancels,
    ///    answers, `tasks/*` and retries of a call that asked for input are still taken. Subscriptions end with a result.
    /// 3. Running requests finish within [`grace`](Self::grace). Those that do not are cancelled, and counted in the
    ///    [report](Self::drain_report).
    ///
    /// A drain that has begun can only be shortened, by another one or by [`shut_down`](Self::shut_down). In process a
    /// running handler is part of its caller's future and continues as long as that does.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example() -> bowline::Result<()> {
    /// use bowline::Server;
    ///
    /// let server = Server::new("calculator", "1.0.0");
    /// let task = tokio::spawn(server.http().bind("127.0.0.1:0").await?.serve());
    /// server.drain();
    /// task.await.expect("the server does not panic")?;
    /// assert_eq!(server.drain_report().cancelled, 0);
    /// # Ok(()) }
    /// ```
    pub fn drain(&self) {
        self.shared.shutdown.drain();
    }

    /// Drains without a delay: refuses new requests, ends subscriptions with a result, and cancels running requests
    /// after `grace`.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn example() -> bowline::Result<()> {
    /// use std::time::Duration;
    /// use bowline::Server;
    ///
    /// let server = Server::new("calculator", "1.0.0");
    /// let task = tokio::spawn(server.clone().serve_http("127.0.0.1:0"));
    /// server.shut_down(Duration::from_secs(10));
    /// task.await.expect("the server does not panic")
    /// # }
    /// ```
    pub fn shut_down(&self, grace: Duration) {
        self.shared.shutdown.request(grace);
    }

    /// Returns what a drain did so far: its phase, and how many requests it refused and cancelled.
    #[must_use]
    pub fn drain_report(&self) -> DrainReport {
        self.shared.shutdown.report()
    }
}
