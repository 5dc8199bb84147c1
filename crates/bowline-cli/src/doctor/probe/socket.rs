//! Opens connections step by step: the name, the address, TLS. Each step is a fact.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::Uri;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// Where a URL leads.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) is_tls: bool,
}

impl Address {
    /// Reads scheme, host and port of a URL.
    pub(crate) fn of(uri: &Uri) -> Option<Self> {
        let is_tls = match uri.scheme_str()? {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        let host = uri.host().filter(|host| !host.is_empty())?;
        Some(Self {
            host: host
                .trim_start_matches('[')
                .trim_end_matches(']')
                .to_owned(),
            port: uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 }),
            is_tls,
        })
    }

    /// Returns whether the host is this machine.
    pub(crate) fn is_loopback(&self) -> bool {
        let is_name = self.host == "localhost" || self.host.ends_with(".localhost");
        is_name || self.host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
    }
}

/// Why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConnectFailure {
    /// The name has no address.
    Dns(String),
    /// No address accepts a connection.
    Tcp(String),
    TimedOut(Duration),
    Tls(TlsFailure),
}

/// Why TLS failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TlsFailure {
    /// The certificate is for other names, which are these.
    Name(Vec<String>),
    Expired,
    NotYetValid,
    Untrusted,
    /// This machine has no root certificates.
    NoRoots,
    Other(String),
}

impl std::fmt::Display for ConnectFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Dns(why) | Self::Tcp(why) => f.write_str(why),
            Self::TimedOut(after) => write!(f, "no connection after {after:?}"),
            Self::Tls(failure) => write!(f, "TLS failed: {failure:?}"),
        }
    }
}

/// An open connection.
pub(crate) struct Opened {
    pub(crate) io: Box<dyn Io>,
    pub(crate) address: SocketAddr,
    /// Whether TLS negotiated HTTP/2.
    pub(crate) is_http2: bool,
    /// Whether the certificate expires within [`SOON`].
    pub(crate) expires_soon: bool,
}

pub(crate) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// Which versions of HTTP the TLS handshake offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offer {
    Any,
    Http1,
}

/// Opens a connection.
///
/// # Errors
///
/// If a step fails, or all of them take longer than `limit`.
pub(crate) async fn open(
    address: &Address,
    offer: Offer,
    limit: Duration,
) -> Result<Opened, ConnectFailure> {
    let opening = async {
        let (stream, peer) = connect(address).await?;
        match address.is_tls {
            true => secure(address, offer, stream, peer).await,
            false => Ok(Opened {
                io: Box::new(stream),
                address: peer,
                is_http2: false,
                expires_soon: false,
            }),
        }
    };
    match timeout(limit, opening).await {
        Ok(opened) => opened,
        Err(_) => Err(ConnectFailure::TimedOut(limit)),
    }
}

async fn connect(address: &Address) -> Result<(TcpStream, SocketAddr), ConnectFailure> {
    let Address { host, port, .. } = address;
    let found = tokio::net::lookup_host((host.as_str(), *port)).await;
    let found = found.map_err(|error| ConnectFailure::Dns(format!("{host}: {error}")))?;
    let mut last = ConnectFailure::Dns(format!("{host} has no address"));
    for peer in found {
        match TcpStream::connect(peer).await {
            Ok(stream) => return Ok((stream, peer)),
            Err(error) => last = ConnectFailure::Tcp(format!("{peer}: {error}")),
        }
    }
    Err(last)
}

async fn secure(
    address: &Address,
    offer: Offer,
    stream: TcpStream,
    peer: SocketAddr,
) -> Result<Opened, ConnectFailure> {
    let other = |why: String| ConnectFailure::Tls(TlsFailure::Other(why));
    let name =
        ServerName::try_from(address.host.clone()).map_err(|error| other(error.to_string()))?;
    let verifier = Arc::new(RecordingVerifier::new()?);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| other(error.to_string()))?
        .dangerous() // it records what the usual verifier says, and says the same
        .with_custom_certificate_verifier(verifier.clone())
        .with_no_client_auth();
    config.alpn_protocols = match offer {
        Offer::Any => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        Offer::Http1 => vec![b"http/1.1".to_vec()],
    };
    match TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
    {
        Ok(stream) => Ok(Opened {
            is_http2: stream.get_ref().1.alpn_protocol() == Some(b"h2"),
            io: Box::new(stream),
            address: peer,
            expires_soon: verifier.expires_soon(),
        }),
        Err(error) => Err(ConnectFailure::Tls(judge(&error))),
    }
}

/// Returns what is wrong with a certificate, from the error of a handshake.
fn judge(error: &io::Error) -> TlsFailure {
    let inner = error
        .get_ref()
        .and_then(|it| it.downcast_ref::<rustls::Error>());
    let Some(rustls::Error::InvalidCertificate(why)) = inner else {
        return TlsFailure::Other(error.to_string());
    };
    match why {
        CertificateError::NotValidForNameContext { presented, .. } => {
            TlsFailure::Name(presented.clone())
        }
        CertificateError::NotValidForName => TlsFailure::Name(Vec::new()),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => TlsFailure::Expired,
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            TlsFailure::NotYetValid
        }
        // `BadSignature`: a trusted authority has the name of the issuer, but not its key.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => TlsFailure::Untrusted,
        other => TlsFailure::Other(format!("{other:?}")),
    }
}

/// Verifies certificates as clients do, and also records whether they expire soon.
#[derive(Debug)]
struct RecordingVerifier {
    inner: Arc<WebPkiServerVerifier>,
    expires_soon: Mutex<bool>,
}

impl RecordingVerifier {
    fn new() -> Result<Self, ConnectFailure> {
        let mut roots = RootCertStore::empty();
        let system = rustls_native_certs::load_native_certs();
        let (usable, _) = roots.add_parsable_certificates(system.certs);
        if usable == 0 {
            return Err(ConnectFailure::Tls(TlsFailure::NoRoots));
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let inner = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
        let inner =
            inner.map_err(|error| ConnectFailure::Tls(TlsFailure::Other(error.to_string())))?;
        Ok(Self {
            inner,
            expires_soon: Mutex::new(false),
        })
    }

    fn expires_soon(&self) -> bool {
        *self
            .expires_soon
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl ServerCertVerifier for RecordingVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let at =
            |time| (self.inner).verify_server_cert(end_entity, intermediates, name, ocsp, time);
        let verified = at(now)?;
        // Valid now and not then: it expires in between.
        let soon = UnixTime::since_unix_epoch(Duration::from_secs(now.as_secs()) + SOON);
        let is_invalid_soon = at(soon).is_err();
        *self
            .expires_soon
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = is_invalid_soon;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls12_signature(message, cert, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls13_signature(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

/// Two weeks: renewals run a month before the end, so one that is this late has failed.
pub(crate) const SOON: Duration = Duration::from_secs(14 * 24 * 60 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    fn address(url: &str) -> Option<Address> {
        Address::of(&url.parse().unwrap())
    }

    #[test]
    fn a_url_leads_to_a_host_and_a_port() {
        let secure = address("https://[::1]/mcp").unwrap();

        assert_eq!((secure.host.as_str(), secure.port), ("::1", 443));
        assert!(secure.is_tls && secure.is_loopback());
        let plain = address("http://tools.example:8080/").unwrap();
        assert_eq!(
            (plain.port, plain.is_tls, plain.is_loopback()),
            (8080, false, false)
        );
        assert!(address("http://localhost").unwrap().is_loopback());
        assert!(address("/mcp").is_none());
    }
}
