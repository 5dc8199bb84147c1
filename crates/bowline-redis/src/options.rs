//! [`ConnectOptions`]: what a URL does not contain.

use crate::tls::TlsOptions;

/// Options of a connection to Redis; passed to [`Redis::connect_with`](crate::Redis::connect_with).
#[derive(Clone, Debug, Default)]
pub struct ConnectOptions {
    pub(crate) tls: TlsOptions,
}

impl ConnectOptions {
    /// Creates the options that [`Redis::connect`](crate::Redis::connect) uses.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}
