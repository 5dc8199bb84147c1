//! Connects to the engine of `--cluster`.

use std::fs;

use bowline::cluster::Cluster;
use bowline_nats::{Nats, async_nats};
use bowline_postgres::Postgres;
use bowline_redis::Redis;

use super::BoxError;
use super::cluster_plan::{ClusterPlan, EngineKind};

/// Connects to the engine.
pub(super) async fn connect(plan: &ClusterPlan) -> Result<Cluster, BoxError> {
    let (url, keys) = (plan.url.as_str(), plan.keys());
    match plan.engine {
        EngineKind::Postgres => {
            let mut options = bowline_postgres::ConnectOptions::new();
            if let Some(pem) = root_certificates(plan)? {
                options = options.root_certificates(pem);
            }
            let connected = Postgres::connect_with(url, options, keys).await;
            connected.map(Into::into).map_err(|error| match error {
                bowline_postgres::ConnectError::UntrustedCertificate(_) => untrusted(),
                error => error.into(),
            })
        }
        EngineKind::Redis => {
            let mut options = bowline_redis::ConnectOptions::new();
            if let Some(pem) = root_certificates(plan)? {
                options = options.root_certificates(pem);
            }
            let connected = Redis::connect_with(url, options, keys).await;
            connected.map(Into::into).map_err(|error| match error {
                bowline_redis::ConnectError::UntrustedCertificate(_) => untrusted(),
                error => error.into(),
            })
        }
        EngineKind::Nats => {
            let mut options = async_nats::ConnectOptions::new();
            if let Some(file) = &plan.root_certificates {
                // The NATS client reads the file itself, and takes one without a certificate as an empty list.
                root_certificates(plan)?;
                options = options
                    .add_root_certificates(file.clone())
                    .require_tls(true);
            }
            let connected = Nats::connect_with(url, options, keys).await;
            connected.map(Into::into).map_err(|error| match error {
                bowline_nats::ConnectError::UntrustedCertificate(_) => untrusted(),
                error => error.into(),
            })
        }
    }
}

fn root_certificates(plan: &ClusterPlan) -> Result<Option<Vec<u8>>, BoxError> {
    let Some(file) = &plan.root_certificates else {
        return Ok(None);
    };
    let name = file.display();
    let pem = fs::read(file);
    let pem = pem
        .map_err(|error| format!("--cluster-root-certificates: failed to read {name}: {error}"))?;
    let begin = b"-----BEGIN CERTIFICATE-----";
    if !pem.windows(begin.len()).any(|window| window == begin) {
        let why = format!("--cluster-root-certificates: found no certificate in PEM in {name}");
        return Err(why.into());
    }
    Ok(Some(pem))
}

/// Names the option instead of the method.
fn untrusted() -> BoxError {
    let why = "--cluster: the certificate of the server is not signed by a trusted authority; give the certificate of \
               its authority with --cluster-root-certificates";
    why.into()
}
