//! [`ConnectOptions`]: what a URL does not contain.

use crate::tls::TlsOptions;

/// Options of a connection to Postgres; passed to [`Postgres::connect_with`](crate::Postgres::connect_with).
#[derive(Clone, Debug, Default)]
pub struct ConnectOptions {
    pub(crate) tls: TlsOptions,
}

impl ConnectOptions {
    /// Creates the options that [`Postgres::connect`](crate::Postgres::connect) uses.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}
