//! Replaces `tls.rs` in builds without the feature `tls`.

use tokio::net::TcpStream;

use crate::signal::Signal;

/// Has no values, because this build cannot serve TLS.
#[derive(Clone, Debug)]
pub(super) enum TlsConfig {}

impl TlsConfig {
    #[allow(clippy::unused_async, reason = "the enabled counterpart awaits")]
    pub(super) async fn accept(&self, _: &Signal, _: TcpStream) -> Option<TcpStream> {
        match *self {}
    }
}
