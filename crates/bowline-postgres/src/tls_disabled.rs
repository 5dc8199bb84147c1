//! Without the feature `tls`, connections are not encrypted, and a URL with `sslmode=require` fails to connect.

use std::error::Error as StdError;

use tokio_postgres::Config;

use crate::error::ConnectError;

pub(crate) type Tls = tokio_postgres::NoTls;

#[derive(Clone, Debug, Default)]
pub(crate) struct TlsOptions;

#[allow(
    clippy::needless_pass_by_ref_mut,
    reason = "the same signature as with the feature `tls`"
)]
pub(crate) fn connector(_: &mut Config, _: &TlsOptions) -> Result<Tls, ConnectError> {
    Ok(tokio_postgres::NoTls)
}

pub(crate) fn is_untrusted(_: &(dyn StdError + 'static)) -> bool {
    false
}
