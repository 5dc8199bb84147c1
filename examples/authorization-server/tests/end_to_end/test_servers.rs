//! [`TestServers`]: a protected server, its authorization server, and the clock that both read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bowline::exchange::Principal;
use bowline::http::legacy::Legacy;
use bowline::{Server, Tool};
use bowline_auth::server::{Introspection, JwtVerifier, ResourceServer};
use bowline_example_authorization_server::AuthorizationServer;
use tokio::task::JoinHandle;

/// Both servers and their clock.
pub(crate) struct TestServers {
    pub(crate) authorization: AuthorizationServer,
    pub(crate) issuer: String,
    pub(crate) resource: String,
    pub(crate) clock: Arc<AtomicU64>,
    serving: Vec<JoinHandle<()>>,
}

/// How the protected server verifies tokens.
#[derive(Clone, Copy)]
pub(crate) enum Verification {
    Jwt,
    Introspection,
}

impl TestServers {
    pub(crate) async fn new(verification: Verification) -> Self {
        Self::with_layer(verification, |guard| guard).await
    }

    /// Starts both servers, with changes to the layer.
    pub(crate) async fn with_layer(
        verification: Verification,
        configure: impl FnOnce(ResourceServer) -> ResourceServer,
    ) -> Self {
        // Clients read the system clock, so this one starts at the same time.
        let start = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let clock = Arc::new(AtomicU64::new(start.as_secs()));
        let issuing = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let issuer = format!("http://{}", issuing.local_addr().unwrap());
        let service = notes().http().legacy(Legacy::sessions().http_sse());
        let bound = service.bind("127.0.0.1:0").await.unwrap();
        let resource = format!("http://{}/mcp", bound.local_addr());

        let now = clock_fn(&clock);
        let authorization = AuthorizationServer::new(issuer.clone())
            .resource(&resource, &["read", "write"])
            .introspection_client("notes", "hush")
            .token_lifetime(Duration::from_secs(300))
            .clock(now);
        let guard = match verification {
            Verification::Jwt => {
                let keys = JwtVerifier::discover(issuer.clone()).unwrap();
                let keys = keys.min_fetch_interval(Duration::ZERO);
                ResourceServer::new(&resource, issuer.clone(), keys)
            }
            Verification::Introspection => {
                let introspection =
                    Introspection::new(issuer.clone(), &format!("{issuer}/introspect"));
                let introspection = introspection.unwrap().credentials("notes", "hush");
                ResourceServer::new(&resource, issuer.clone(), introspection)
            }
        };
        let guard = configure(guard.unwrap())
            .scopes(["read"])
            .leeway(Duration::ZERO);
        let guarded = bound.layer(guard.clock(clock_fn(&clock)));
        let router = authorization.router();
        let serving = vec![
            tokio::spawn(async move { axum::serve(issuing, router).await.unwrap() }),
            tokio::spawn(async move { guarded.serve().await.unwrap() }),
        ];
        Self {
            authorization,
            issuer,
            resource,
            clock,
            serving,
        }
    }

    pub(crate) fn advance(&self, seconds: u64) {
        self.clock.fetch_add(seconds, Ordering::Relaxed);
    }
}

impl Drop for TestServers {
    fn drop(&mut self) {
        self.serving.iter().for_each(JoinHandle::abort);
    }
}

pub(crate) fn clock_fn(clock: &Arc<AtomicU64>) -> impl Fn() -> SystemTime + Send + Sync + 'static {
    let clock = clock.clone();
    move || UNIX_EPOCH + Duration::from_secs(clock.load(Ordering::Relaxed))
}

pub(crate) fn notes() -> Server {
    let whoami = Tool::new("whoami", async |principal: Principal| {
        principal.name().unwrap_or("anonymous").to_owned()
    });
    let write = Tool::new("write", async || "written").scopes(["write"]);
    Server::new("notes", "1.0.0").tool(whoami).tool(write)
}
