//! [`Receiver`], an OTLP receiver that keeps the metrics it gets.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use prost::Message as _;
use tokio::net::TcpListener;

use crate::exported::Exported;

pub(crate) struct Receiver {
    addr: SocketAddr,
    exported: Arc<Mutex<Exported>>,
}

impl Receiver {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let exported = Arc::<Mutex<Exported>>::default();
        let router = Router::new()
            .route("/v1/metrics", post(receive_metrics))
            .route("/v1/traces", post(async || ()))
            .with_state(exported.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { addr, exported }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Returns the metrics of all requests so far.
    pub(crate) fn exported(&self) -> Exported {
        self.exported.lock().unwrap().clone()
    }
}

async fn receive_metrics(State(exported): State<Arc<Mutex<Exported>>>, body: Bytes) {
    let request = ExportMetricsServiceRequest::decode(body).unwrap();
    exported.lock().unwrap().add_request(&request);
}
