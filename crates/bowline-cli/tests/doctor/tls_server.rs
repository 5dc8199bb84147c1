//! A server with TLS, whose certificate is signed by an authority that only the test knows.

use std::io::BufReader;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::http_server::{Answer, Request, read_request, write_response};

/// A running server.
#[derive(Debug)]
pub(crate) struct TlsServer {
    pub(crate) port: u16,
    /// A file with the certificate of the authority.
    pub(crate) authority: PathBuf,
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.authority);
    }
}

/// Serves with a certificate for this name.
pub(crate) fn serve(name: &str, handler: fn(&Request) -> Answer) -> TlsServer {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &authority).unwrap();

    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let file =
        std::env::temp_dir().join(format!("bowline-doctor-{}-{port}.pem", std::process::id()));
    std::fs::write(&file, authority.pem()).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let connection = ServerConnection::new(config.clone()).unwrap();
            std::thread::spawn(move || {
                let mut stream = BufReader::new(StreamOwned::new(connection, stream));
                while let Ok(Some(request)) = read_request(&mut stream) {
                    let answer = match request.header("origin") {
                        Some(_) => Answer::Full(super::http_server::Response::status(403)),
                        None => handler(&request),
                    };
                    let (response, is_complete) = match answer {
                        Answer::Full(response) | Answer::AfterClose(response) => (response, true),
                        Answer::Open(response) => (response, false),
                    };
                    if write_response(stream.get_mut(), &response, is_complete).is_err() {
                        return;
                    }
                }
            });
        }
    });
    TlsServer {
        port,
        authority: file,
    }
}
