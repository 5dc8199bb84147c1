//! Without the feature `tls`, connections are not encrypted, and a URL with `sslmode=require` fails to connect.

use tokio_postgres::Config;

use crate::error::ConnectError;

pub(crate) type Tls = tokio_postgres::NoTls;

pub(crate) fn connector(_: &Config) -> Result<Tls, ConnectError> {
    Ok(tokio_postgres::NoTls)
}
