//! TLS for connections to Postgres, with ring, and the certificates of the system or of the application.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bowline::exchange::BoxFuture;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError, ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Config;
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream as RustlsStream;

use crate::ConnectOptions;
use crate::error::ConnectError;

/// The certificates of the application. `Debug` does not print them.
#[derive(Clone, Default)]
pub(crate) struct TlsOptions {
    /// In PEM; those of the system if it is `None`.
    roots: Option<Vec<u8>>,
}

impl ConnectOptions {
    /// Requires TLS, and trusts only servers whose certificate is signed by one of these authorities, in PEM, instead
    /// of those of the system.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use bowline_postgres::{ConnectOptions, Postgres};
    ///
    /// # async fn example(key: [u8; 32]) -> Result<(), Box<dyn std::error::Error>> {
    /// let options = ConnectOptions::new().root_certificates(std::fs::read("internal-ca.pem")?);
    /// let postgres = Postgres::connect_with("postgres://app@db.internal/app", options, key).await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn root_certificates(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.tls.roots = Some(pem.into());
        self
    }
}

impl fmt::Debug for TlsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsOptions")
            .field("has_roots", &self.roots.is_some())
            .finish()
    }
}

/// Makes TLS connections. Whether they are used is the `sslmode` of the URL.
#[derive(Clone)]
pub(crate) struct Tls(Arc<ClientConfig>);

/// Returns a connector that verifies the certificate of the server.
pub(crate) fn connector(config: &mut Config, options: &TlsOptions) -> Result<Tls, ConnectError> {
    let mut roots = RootCertStore::empty();
    match &options.roots {
        Some(pem) => {
            add_roots(&mut roots, pem)?;
            // Otherwise an attacker in the place of the server could ask for a connection without TLS.
            config.ssl_mode(SslMode::Require);
        }
        // Reading them takes time, and is not needed without TLS.
        None if config.get_ssl_mode() == SslMode::Disable => {}
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let versions = versions.map_err(|error| ConnectError::Certificates(error.into()))?;
    let client = versions.with_root_certificates(roots).with_no_client_auth();
    Ok(Tls(Arc::new(client)))
}

fn add_roots(roots: &mut RootCertStore, pem: &[u8]) -> Result<(), ConnectError> {
    let invalid = |error: Box<dyn StdError + Send + Sync>| ConnectError::RootCertificates(error);
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| invalid(error.into()))?;
        roots
            .add(certificate)
            .map_err(|error| invalid(error.into()))?;
    }
    match roots.is_empty() {
        true => Err(invalid("found no certificate in PEM".into())),
        false => Ok(()),
    }
}

/// Returns whether a connection failed because the authority of the server is not trusted.
pub(crate) fn is_untrusted(error: &(dyn StdError + 'static)) -> bool {
    if let Some(found) = error.downcast_ref::<rustls::Error>() {
        // `BadSignature`: a trusted authority has the name of the issuer, but not its key.
        return matches!(
            found,
            rustls::Error::InvalidCertificate(
                CertificateError::UnknownIssuer | CertificateError::BadSignature
            )
        );
    }
    // `io::Error::source` skips the error inside.
    let inner = match error.downcast_ref::<io::Error>() {
        Some(io) => io.get_ref().map(|inner| inner as &(dyn StdError + 'static)),
        None => error.source(),
    };
    inner.is_some_and(is_untrusted)
}

impl<S> MakeTlsConnect<S> for Tls
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    type Stream = Stream<S>;
    type TlsConnect = Handshake;
    type Error = rustls::pki_types::InvalidDnsNameError;

    fn make_tls_connect(&mut self, host: &str) -> Result<Handshake, Self::Error> {
        Ok(Handshake {
            connector: TlsConnector::from(self.0.clone()),
            server: ServerName::try_from(host.to_owned())?,
        })
    }
}

/// A handshake with one server.
pub(crate) struct Handshake {
    connector: TlsConnector,
    server: ServerName<'static>,
}

impl<S> TlsConnect<S> for Handshake
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    type Stream = Stream<S>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Stream<S>>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let connected = self.connector.connect(self.server, stream).await?;
            Ok(Stream(Box::new(connected)))
        })
    }
}

/// An encrypted stream. Without channel binding: the certificate is verified, and few servers require it.
pub(crate) struct Stream<S>(Box<RustlsStream<S>>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Stream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Stream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_read(cx, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_shutdown(cx)
    }
}
