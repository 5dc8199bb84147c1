//! [`TlsServer`]: an engine that requires TLS, with a certificate of an authority that only the test knows.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cluster_tests::Engine;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// A running server, which `cargo xtask cluster` ends.
pub(crate) struct TlsServer {
    pub(crate) port: u16,
    /// The authority of its certificate, in PEM.
    pub(crate) authority: PathBuf,
    /// Another one.
    pub(crate) other_authority: PathBuf,
}

impl TlsServer {
    pub(crate) async fn start(engine: Engine) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("tls-{}", engine.name()));
        fs::create_dir_all(&folder).unwrap();
        let (authority, other) = (new_authority(), new_authority());
        let key = KeyPair::generate().unwrap();
        // Not an address, so that a test can use one that the certificate is not for.
        let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &authority).unwrap();
        let write = |name: &str, text: String| {
            let file = folder.join(name);
            fs::write(&file, text).unwrap();
            file
        };
        write("certificate.pem", certificate.pem());
        write("key.pem", key.serialize_pem());
        Self {
            port: start_engine(engine, &folder).await,
            authority: write("authority.pem", authority.pem()),
            other_authority: write("other-authority.pem", other.pem()),
        }
    }
}

fn new_authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Returns the port.
async fn start_engine(engine: Engine, folder: &Path) -> u16 {
    let address = std::env::var("BOWLINE_CLUSTER_CONTROL").expect("run by `cargo xtask cluster`");
    let mut stream = TcpStream::connect(address).await.unwrap();
    let line = format!("tls {} {}\n", engine.name(), folder.display());
    stream.write_all(line.as_bytes()).await.unwrap();
    let mut answer = String::new();
    let mut answers = BufReader::new(stream);
    let read = timeout(START_LIMIT, answers.read_line(&mut answer)).await;
    read.expect("the engine starts in time").unwrap();
    let port = answer
        .trim()
        .strip_prefix("ok ")
        .and_then(|it| it.parse().ok());
    port.unwrap_or_else(|| panic!("the engine did not start: {answer}"))
}

/// Of a new database, on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(90);
