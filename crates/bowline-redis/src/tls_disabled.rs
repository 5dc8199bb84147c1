//! Without the feature `tls`, a `rediss` URL is refused.

use std::error::Error as StdError;

use redis::Client;

use crate::ConnectError;

#[derive(Clone, Debug, Default)]
pub(crate) struct TlsOptions;

pub(crate) fn client(url: &str, _: &TlsOptions) -> Result<Client, ConnectError> {
    Client::open(url).map_err(ConnectError::InvalidUrl)
}

pub(crate) fn is_untrusted(_: &(dyn StdError + 'static)) -> bool {
    false
}
